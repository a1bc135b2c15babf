"""Measure communications between ranks; runs in each rank."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from clockwatt.gpu.interface import InstalledGpu
from clockwatt.gpu.registry import open_installed
from clockwatt.measure.links.host_calls import host_costs
from clockwatt.schema.links import ALL_GATHER, ALL_REDUCE, BROADCAST, COMMUNICATIONS, REDUCE_SCATTER, SEND_RECEIVE

_ELEMENT = 4
_BLOCKS = 5
"""Blocks of repetitions; their median counts."""
_MOST_BYTES = 2**26
"""Bytes that a block moves at least, up to the number of repetitions."""
_QUEUED = 20


@dataclass(frozen=True)
class Plan:
    """What the ranks measure.

    Attributes
    ----------
    counts
        Numbers of ranks that communicate, ascending.
    sizes
        Bytes of the tensors, ascending.
    repetitions
        Most repetitions in a block.
    stop_after_s
        After which no measurement is started.
    power_s
        For how long power is measured while communicating; 0 for not.
    gpus
        GPU of each rank; empty on CPU processes.
    """

    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    repetitions: int
    stop_after_s: float
    power_s: float
    gpus: tuple[InstalledGpu, ...] = ()


def measure(rank: int, plan: Plan) -> dict[str, Any]:
    """Return `rows` (kind, gpus, bytes, time_s), `power_w` (None if not measured) and `host_costs` of a rank."""
    begun_s = time.monotonic()
    device = torch.device("cuda", rank) if plan.gpus else torch.device("cpu")
    costs = host_costs(device)
    rows: list[dict[str, Any]] = []
    for count in sorted(plan.counts, reverse=True):
        group = distributed.new_group(list(range(count)))
        for size in plan.sizes:
            for kind in COMMUNICATIONS:
                members = 2 if kind == SEND_RECEIVE else count
                if members < count:  # pairs are measured once
                    continue
                if _largest(time.monotonic() - begun_s, device) > plan.stop_after_s:
                    break
                seconds = _seconds(kind, rank, count, size, group, device, plan.repetitions) if rank < count else 0.0
                rows.append({"kind": kind, "gpus": count, "bytes": size, "time_s": _largest(seconds, device)})
    return {"rows": rows, "power_w": _power(rank, plan, device), "host_costs": costs}


def _seconds(kind: str, rank: int, count: int, size: int, group: Any, device: torch.device, repetitions: int) -> float:
    """Return the time of one communication in this rank: the median of blocks."""
    communicate = _communication(kind, rank, count, size, group, device)
    communicate()
    repeated = max(1, min(repetitions, _MOST_BYTES // size))
    return statistics.median(_block(communicate, repeated, group, device) for _ in range(_BLOCKS))


def _block(communicate: Callable[[], Any], repeated: int, group: Any, device: torch.device) -> float:
    distributed.barrier(group)
    if device.type == "cpu":
        begun_s = time.perf_counter()
        for _ in range(repeated):
            communicate()
        return (time.perf_counter() - begun_s) / repeated
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeated):
        communicate()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / repeated


def _communication(kind: str, rank: int, count: int, size: int, group: Any, device: torch.device) -> Callable[[], Any]:
    elements = max(1, size // _ELEMENT // count) * count
    whole, part = torch.zeros(elements, device=device), torch.zeros(elements // count, device=device)
    if kind == SEND_RECEIVE:
        if rank == 0:
            return lambda: distributed.send(whole, 1, group)
        return lambda: distributed.recv(whole, 0, group)
    calls: dict[str, Callable[[], Any]] = {
        ALL_REDUCE: lambda: distributed.all_reduce(whole, group=group),
        ALL_GATHER: lambda: distributed.all_gather_into_tensor(whole, part, group=group),
        REDUCE_SCATTER: lambda: distributed.reduce_scatter_tensor(part, whole, group=group),
        BROADCAST: lambda: distributed.broadcast(whole, 0, group=group),
    }
    return calls[kind]


def _largest(value: float, device: torch.device) -> float:
    """Return the largest value over all ranks."""
    tensor = torch.tensor([value], dtype=torch.float64, device=device)
    distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
    return float(tensor.item())


def _power(rank: int, plan: Plan, device: torch.device) -> float | None:
    """Return the mean power of this rank's GPU while all ranks reduce the largest tensor again and again, in W."""
    if not plan.gpus or not plan.power_s:
        return None
    tensor = torch.zeros(plan.sizes[-1] // _ELEMENT, device=device)
    gpu = open_installed(plan.gpus[rank])
    try:
        began_s, before_j, started_s = time.monotonic(), 0.0, 0.0
        while True:
            for _ in range(_QUEUED):
                distributed.all_reduce(tensor)
            torch.cuda.synchronize()
            elapsed_s = _largest(time.monotonic() - began_s, device)
            if not started_s and elapsed_s > plan.power_s / 4:  # the counter lags behind the load
                before_j, started_s = gpu.energy_counter_j(), time.monotonic()
            elif elapsed_s > plan.power_s:
                return (gpu.energy_counter_j() - before_j) / (time.monotonic() - started_s)
    finally:
        gpu.close()
