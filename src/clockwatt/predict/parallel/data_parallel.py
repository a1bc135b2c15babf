"""DDP and FSDP2: when the gradients and parameters of a step are communicated, and what that delays.

The device has two queues: kernels of the network, and communications. A communication starts when its data are
complete and the one before it has ended.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from clockwatt.predict.parallel.links import LinkProfile
from clockwatt.predict.parallel.step import Step, Unit
from clockwatt.schema.links import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE_SCATTER

BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * 2**20, 2**20
"""Sizes from which on DDP closes a bucket, and its first bucket."""
SLOWED = 24 / 132
"""Share of the time of a communication by which kernels beside it take longer: SMs that NCCL's channels keep on an
H100."""


@dataclass(frozen=True)
class Schedule:
    """A step of one rank.

    Attributes
    ----------
    device_s, host_s
        Time from the first to the last kernel or communication, and host time.
    busy_s
        Time in which the rank's own kernels run, copies for communications included.
    communication_s, exposed_s
        Time of all communications, and the part of it in which no kernel runs.
    """

    device_s: float
    host_s: float
    busy_s: float
    communication_s: float
    exposed_s: float


def ddp(step: Step, links: LinkProfile, gpus: int, bytes_per_s: float) -> Schedule:
    """Return the step of a rank in DistributedDataParallel.

    Parameters
    ----------
    step, links, gpus
        Of one GPU, between them, and their number.
    bytes_per_s
        Memory bandwidth of a GPU, at which gradients are copied into buckets and back.
    """
    costs, now_s, free_s, communication_s = links.host_costs, 0.0, 0.0, 0.0
    if step.buffers:
        now_s = communication_s = links.time_s(BROADCAST, sum(step.buffers), gpus)
    exposed_s = now_s
    now_s += math.fsum(unit.forward_s for unit in step.units)
    buckets = 0
    for backward_s, bucket in _buckets(step.units):
        now_s += backward_s
        if bucket:
            now_s += 2 * bucket / bytes_per_s
            seconds = links.time_s(ALL_REDUCE, bucket, gpus)
            free_s, communication_s, buckets = max(free_s, now_s) + seconds, communication_s + seconds, buckets + 1
    waited_s = max(0.0, free_s - now_s)
    exposed_s += waited_s
    copies_s = 4 * sum(step.gradients) / bytes_per_s
    slowed_s = SLOWED * max(0.0, communication_s - exposed_s)
    host_s = (
        step.host_s * (1 + links.host_shares.get("ddp", 0.0))
        + costs["ddp_step_s"]
        + costs["ddp_parameter_s"] * len(step.gradients)
    )
    host_s += costs["ddp_bucket_s"] * buckets + costs["ddp_buffer_s"] * len(step.buffers)
    busy_s = step.device_s + copies_s + slowed_s
    return Schedule(busy_s + exposed_s, host_s, busy_s, communication_s, exposed_s)


def _buckets(units: Sequence[Unit]) -> list[tuple[float, int]]:
    """Return backward times in their order, each with the bytes of the bucket that is full afterwards, or 0."""
    found, filled, limit = [], 0, FIRST_BUCKET_BYTES
    for unit in reversed(units):
        backward_s = unit.backward_s
        for size in unit.gradients:
            filled += size
            if filled >= limit:
                found.append((backward_s, filled))
                backward_s, filled, limit = 0.0, 0, BUCKET_BYTES
        found.append((backward_s, 0))
    return [*found, (0.0, filled)]


@dataclass(frozen=True)
class _Group:
    """Parameters that FSDP2 gathers together."""

    forward_s: float
    backward_s: float
    size: int


def fsdp_groups(step: Step) -> tuple[_Group, list[_Group]]:
    """Return what is outside of blocks, and the blocks in the order of the forward pass.

    Blocks without parameters belong to the one before.
    """
    trained = {unit.block for unit in step.units if unit.gradients}
    of_group: dict[str, list[Unit]] = {"": []}
    name = ""
    for unit in step.units:
        name = unit.block if unit.block in trained or not unit.block else name
        of_group.setdefault(name, []).append(unit)
    root, *blocks = (
        _Group(
            math.fsum(unit.forward_s for unit in units),
            math.fsum(unit.backward_s for unit in units),
            sum(itertools.chain.from_iterable(unit.gradients for unit in units)),
        )
        for units in of_group.values()
    )
    return root, blocks


def fsdp(step: Step, links: LinkProfile, gpus: int, bytes_per_s: float, *, adaptive: bool) -> Schedule:
    """Return the step of a rank in FSDP2, with `fully_shard` for each block and for the network.

    Blocks are gathered before they run, while the block before runs; they are resharded after their forward pass, and
    gathered again for the backward pass. The network's other parameters are gathered once.

    Parameters
    ----------
    step, links, gpus, bytes_per_s
        As for `ddp`.
    adaptive
        Whether the optimizer is one of the Adam family, which issues more calls for each parameter than SGD.
    """
    root, blocks = fsdp_groups(step)
    queue = _Queues(links, gpus, bytes_per_s)
    if root.size:
        queue.gather(root.size, 0.0)
    queue.run(root.forward_s, queue.free_s)
    gathered_s = queue.gather(blocks[0].size, queue.start_s) if blocks else 0.0
    for group, following in itertools.zip_longest(blocks, blocks[1:]):
        queue.run(group.forward_s, gathered_s)
        if following is not None:
            gathered_s = queue.gather(following.size, queue.start_s)
    queue.run(root.backward_s, 0.0)
    if blocks:
        gathered_s = queue.gather(blocks[-1].size, queue.start_s)
    for group, following in itertools.zip_longest(blocks[::-1], blocks[-2::-1]):
        queue.run(group.backward_s, gathered_s)
        if following is not None:
            gathered_s = queue.gather(following.size, queue.start_s)
        queue.scatter(group.size)
    if root.size:
        queue.scatter(root.size)
    costs, parameters = links.host_costs, len(step.gradients)
    of_optimizer = costs["fsdp_adamw_s" if adaptive else "fsdp_sgd_s"]
    host_s = (
        step.host_s * (1 + links.host_shares.get("fsdp", 0.0))
        + costs["fsdp_step_s"]
        + costs["fsdp_group_s"] * len(blocks)
    )
    host_s += (costs["fsdp_parameter_s"] + of_optimizer) * parameters
    exposed_s = max(queue.now_s, queue.free_s) - queue.busy_s
    busy_s = queue.busy_s + step.optimizer_s / gpus + SLOWED * max(0.0, queue.communication_s - exposed_s)
    return Schedule(busy_s + exposed_s, host_s, busy_s, queue.communication_s, exposed_s)


class _Queues:
    """Kernels and communications of one GPU.

    Attributes
    ----------
    start_s, now_s
        When the last kernels started and ended.
    free_s
        When the last communication ends.
    busy_s, communication_s
        Sums of both.
    """

    def __init__(self, links: LinkProfile, gpus: int, bytes_per_s: float) -> None:
        self._links, self._gpus, self._bytes_per_s = links, gpus, bytes_per_s
        self.start_s = self.now_s = self.free_s = self.busy_s = self.communication_s = 0.0

    def run(self, seconds: float, ready_s: float) -> None:
        """Run kernels once what they need is gathered."""
        self.start_s = max(self.now_s, ready_s)
        self.now_s = self.start_s + seconds
        self.busy_s += seconds

    def gather(self, size: int, ready_s: float) -> float:
        """Gather parameters, which are copied to their places afterwards; return when they are there."""
        self._communicate(self._links.time_s(ALL_GATHER, size, self._gpus), ready_s)
        self._copy(size)
        return self.free_s

    def scatter(self, size: int) -> None:
        """Reduce and scatter the gradients of what ran last, which are put in order first."""
        self._copy(size)
        self._communicate(self._links.time_s(REDUCE_SCATTER, size, self._gpus), self.now_s)

    def _communicate(self, seconds: float, ready_s: float) -> None:
        self.free_s = max(self.free_s, ready_s) + seconds
        self.communication_s += seconds

    def _copy(self, size: int) -> None:
        seconds = 2 * size / self._bytes_per_s
        self.now_s, self.busy_s = self.now_s + seconds, self.busy_s + seconds
