"""Measure the host time that DDP and FSDP2 add to a training step; runs in each rank."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from clockwatt.schema.links import DDP_COSTS, FSDP_COSTS

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
