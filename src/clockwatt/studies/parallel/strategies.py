"""Training steps of a network on several ranks: DDP, FSDP2, and a pipeline."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from clockwatt.operations.networks import BuiltNetwork
from clockwatt.operations.partition import block_of, order
from clockwatt.studies.parallel.stages import Stage, balanced_begins

Step = Callable[[], object]
SCHEDULE = "1f1b"


def ddp_step(built: BuiltNetwork) -> Step:
    """Wrap a network in DistributedDataParallel."""
    from torch.nn.parallel import DistributedDataParallel

    built.forward = DistributedDataParallel(built.module, [built.device] if built.device.type == "cuda" else None)
    return built.call


def fsdp_step(built: BuiltNetwork) -> Step:
    """Shard each block of a network, and what is outside of blocks."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(built.device.type, (distributed.get_world_size(),))
    owners = (block_of(path.rpartition(".")[0]) for path, _ in built.module.named_parameters())
    for block in dict.fromkeys(owner for owner in owners if owner):
        fully_shard(built.module.get_submodule(block), mesh=mesh)
    fully_shard(built.module, mesh=mesh)
    built.make_optimizer()
    return built.call


def pipeline_step(built: BuiltNetwork, microbatches: int, begins: Sequence[str] = ()) -> Step:
    """Keep one stage of a network, and run microbatches in the order of 1F1B.

    Parameters
    ----------
    built
        The network, with the input of a microbatch.
    microbatches
        Of a step.
    begins
        Modules with which the second and further stages begin; without any, stages take about the same time.

    Raises
    ------
    ClockwattError
        If the network cannot be split into as many stages as there are ranks.
    """
    rank, count = distributed.get_rank(), distributed.get_world_size()
    chosen: list[list[str]] = [list(begins)]
    if not begins:
        chosen = [balanced_begins(built, count)]
        distributed.broadcast_object_list(chosen, 0, device=built.device)
    stage = Stage(built, chosen[0], rank)
    gc.collect()
    trains = next(built.module.parameters(), None) is not None  # a stage may be an activation and a pool
    if trains:
        built.make_optimizer()
    queue = order(SCHEDULE, rank, count, microbatches)
    forward, backward = _directions(built.device)

    def step() -> None:
        if trains:
            built.optimizer.zero_grad(set_to_none=True)
        kept: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        sends = []
        for is_forward, number in queue:
            if is_forward:
                given = _received(stage.received, rank - 1, forward)
                output = stage(None if given is None else given.requires_grad_())
                kept[number] = output, given
                if stage.sent is not None:
                    sends.append(distributed.isend(output.detach().contiguous(), rank + 1, forward))
            else:
                gradient = _received(stage.sent, rank + 1, backward)
                output, given = kept.pop(number)
                output.backward(gradient)
                if given is not None:
                    assert given.grad is not None
                    sends.append(distributed.isend(given.grad.contiguous(), rank - 1, backward))
        for send in sends:
            if send is not None:
                send.wait()
        if trains:
            built.optimizer.step()

    return step


@functools.cache
def _directions(device: torch.device) -> list[Any]:
    """Return a group for each direction: within one, NCCL keeps all messages of two ranks in their order."""
    groups: list[Any] = [distributed.new_group() for _ in range(2)]
    for group in groups:
        distributed.all_reduce(torch.ones(1, device=device), group=group)
    return groups


def _received(like: torch.Tensor | None, rank: int, group: Any) -> torch.Tensor | None:
    """Return what another rank sends; None where there is no such rank."""
    if like is None:
        return None
    given = torch.empty_like(like)
    distributed.recv(given, rank, group)
    return given
