"""Measure communications between ranks, and the host time that DDP and FSDP2 add; runs in each rank."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import distributed

from clockwatt.gpu.interface import InstalledGpu
from clockwatt.gpu.registry import open_installed
from clockwatt.schema.links import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    COMMUNICATIONS,
    DDP_COSTS,
    FSDP_COSTS,
    REDUCE_SCATTER,
    SEND_RECEIVE,
)

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


_WIDTH = 8
"""Of layers, so small that the host decides."""
_STEPS, _BLOCKS = 5, 5
"""Steps of a block, and blocks, whose median counts; on CPU processes one block, since gloo's time hides the host's."""
_ONE_EACH_MB = 1e-4
"""Size of a bucket that holds one parameter."""


def host_costs(device: torch.device, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Return `schema.links.HOST_COSTS` in s, from steps of networks with different numbers of all that adds time."""
    return {**_ddp_costs(device, clock), **_fsdp_costs(device, clock)}


def _ddp_costs(device: torch.device, clock: Callable[[], float]) -> dict[str, float]:
    from torch.nn.parallel import DistributedDataParallel

    added = []
    counts = []
    for layers, buffers, each in ((4, 0, False), (16, 0, False), (4, 0, True), (4, 32, False)):
        plain, wrapped = _network(4, layers, buffers, device), _network(4, layers, buffers, device)
        ids = [device.index] if device.type == "cuda" else None
        ddp = DistributedDataParallel(wrapped, ids, bucket_cap_mb=_ONE_EACH_MB if each else None)
        parameters = len(list(plain.parameters()))
        added.append(_step_s(ddp, device, clock) - _step_s(plain, device, clock))
        counts.append([1, parameters, parameters if each else 1, buffers])
    return _solved(DDP_COSTS, counts, added)


def _fsdp_costs(device: torch.device, clock: Callable[[], float]) -> dict[str, float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    added = []
    counts = []
    optimizers: dict[str, float] = {}
    for blocks, layers in ((4, 1), (4, 4), (2, 2)):
        plain, sharded = _network(blocks, layers, 0, device), _network(blocks, layers, 0, device)
        for block in sharded:
            fully_shard(block, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        parameters = len(list(plain.parameters()))
        added.append(_step_s(sharded, device, clock) - _step_s(plain, device, clock))
        counts.append([1, parameters, blocks])
        for name, optimizer in (("fsdp_sgd_s", _sgd), ("fsdp_adamw_s", torch.optim.AdamW)):
            of_both = [_timed(optimizer(one.parameters()).step, device, clock) for one in (sharded, plain)]
            optimizers[name] = max(0.0, of_both[0] - of_both[1]) / parameters
    return {**_solved(FSDP_COSTS[:3], counts, added), **optimizers}


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def _network(blocks: int, layers: int, buffers: int, device: torch.device) -> torch.nn.Sequential:
    network = torch.nn.Sequential(
        *(torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(layers))) for _ in range(blocks))
    ).to(device)
    for number in range(buffers):
        network.register_buffer(f"buffer{number}", torch.zeros(_WIDTH, device=device))
    return network


def _step_s(network: torch.nn.Module, device: torch.device, clock: Callable[[], float]) -> float:
    given = torch.ones(1, _WIDTH, device=device)
    return _timed(lambda: network(given).sum().backward(), device, clock)


def _timed(step: Callable[[], Any], device: torch.device, clock: Callable[[], float]) -> float:
    """Return the time of one step: the median of blocks, after steps in which buckets and states are made."""
    times = []
    for block in range((_BLOCKS if device.type == "cuda" else 1) + 1):
        begun_s = clock()
        for _ in range(_STEPS):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if block:
            times.append((clock() - begun_s) / _STEPS)
    return statistics.median(times)


def _solved(names: tuple[str, ...], counts: list[list[int]], added: list[float]) -> dict[str, float]:
    from scipy.optimize import nnls

    found, _ = nnls(np.array(counts, dtype=float), np.array(added))
    return {name: float(value) for name, value in zip(names, found, strict=True)}
