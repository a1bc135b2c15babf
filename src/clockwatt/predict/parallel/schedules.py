"""Schedules of a training step on several GPUs: DDP and FSDP2, and pipelines with a stage on each GPU.

The step is that of one GPU, split into forward and backward times of its modules. With DDP and FSDP2, the device has
two queues: kernels of the network, and communications. A communication starts when its data are complete and the one
before it has ended. A pipeline splits the network into stages, which wait for the microbatches of each other.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from clockwatt.errors import RequestError, did_you_mean
from clockwatt.operations.partition import balanced, block_of, order
from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import OperationCosts
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.parallel.links import LinkProfile
from clockwatt.schema.costs import TIME_DEVICE_CORRECTED, TIME_HOST_CORRECTED
from clockwatt.schema.links import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE_SCATTER, SEND_RECEIVE
from clockwatt.schema.records import ACCUMULATION, FORWARD, GRADIENTS, LOSS, OPTIMIZER, PARAMETERS

_DEVICE, _HOST = TARGETS.index(TIME_DEVICE_CORRECTED), TARGETS.index(TIME_HOST_CORRECTED)
_FORWARD_SHARE = 1 / 3
"""Of a module's time, where the forward pass alone is not predicted."""


Shared = tuple[str, str, int]
"""The first and the last module that use a parameter, and its bytes."""


@dataclass(frozen=True)
class Unit:
    """Calls of one module that follow each other.

    Attributes
    ----------
    path
        Of the module; empty for the network itself.
    forward_s, backward_s
        Device times.
    gradients
        Bytes of each gradient that is complete when the backward pass of this unit ends.
    output_bytes
        What the last call gives to the next unit.
    """

    path: str
    forward_s: float
    backward_s: float
    gradients: tuple[int, ...]
    output_bytes: int

    @property
    def block(self) -> str:
        """The outermost numbered module that the unit belongs to; empty without one."""
        return block_of(self.path)


@dataclass(frozen=True)
class Step:
    """A training step on one GPU.

    Attributes
    ----------
    units
        In the order of the forward pass.
    optimizer_s
        Device time of the optimizer.
    forward_host_s, host_s, optimizer_host_s
        Host time of the forward pass, of the whole step, and of the optimizer.
    time_s, dynamic_j, idle_w
        Time of the whole step, its energy without idle power, and idle power.
    buffers
        Bytes of each buffer, such as the statistics of a batch norm.
    shared
        Parameters that several modules use, such as tied embeddings.
    """

    units: tuple[Unit, ...]
    optimizer_s: float
    forward_host_s: float
    host_s: float
    time_s: float
    dynamic_j: float
    idle_w: float
    buffers: tuple[int, ...]
    optimizer_host_s: float = 0.0
    shared: tuple[Shared, ...] = ()

    @property
    def device_s(self) -> float:
        """Device time of the whole step."""
        return math.fsum(unit.forward_s + unit.backward_s for unit in self.units) + self.optimizer_s

    @property
    def gradients(self) -> list[int]:
        """Bytes of each gradient, in the order of the backward pass."""
        return [size for unit in reversed(self.units) for size in unit.gradients]


def step_of(training: Answer, forward: Answer | None, idle_w: float | None) -> Step:
    """Split the answer for a training step.

    Parameters
    ----------
    training
        With the operations behind it.
    forward
        The answer for inference, whose times are those of the forward pass; None where it is not predicted.
    idle_w
        Idle power of the GPU.

    Raises
    ------
    RequestError
        If device and host time, or the energy, are not known.
    NetworkError
        If its memory cannot be recorded, which its gradients are read from.
    """
    detail, expected = training.detail, training.expected
    assert isinstance(detail, OperationCosts)
    if expected.device_s is None or expected.host_s is None or training.energy_j is None or idle_w is None:
        raise RequestError(
            f"{{strategy}}: on {training.gpu}, device time, host time and energy were not measured separately. "
            "Choose another GPU."
        )
    host_bound = expected.host_s > expected.device_s
    device_s = expected.device_s if host_bound else training.time_s
    calls = _calls(detail, forward)
    scale = device_s / (float(calls[["forward_s", "backward_s"]].to_numpy().sum()) or 1.0)
    optimizer_s = scale * float(calls.loc[calls["phase"] == OPTIMIZER, "backward_s"].sum())
    gradients, shared, buffers = _trained(detail)
    units = _units(calls[calls["phase"].isin((FORWARD, LOSS))], scale, gradients)
    host_s = training.time_s if host_bound else expected.host_s
    of_calls = np.nan_to_num(detail.costs.mean[:, _HOST])[detail.traced.composer.positions]
    is_optimizer = (calls["phase"] == OPTIMIZER).to_numpy()
    optimizer_host_s = host_s * float(of_calls[is_optimizer].sum() / (of_calls.sum() or 1.0))
    forward_host_s = _FORWARD_SHARE * (host_s - optimizer_host_s)
    if forward is not None and forward.expected.host_s is not None:
        forward_host_s = min(host_s - optimizer_host_s, forward.expected.host_s)
    dynamic_j = max(0.0, training.energy_j - idle_w * training.time_s)
    return Step(
        units, optimizer_s, forward_host_s, host_s, training.time_s, dynamic_j, idle_w, buffers,
        optimizer_host_s, shared,
    )  # fmt: skip


def _device_s(detail: OperationCosts) -> pd.DataFrame:
    """Return path, phase and device time of each call."""
    positions, calls = detail.traced.composer.positions, detail.traced.calls
    return pd.DataFrame({
        "path": calls["module_path"].fillna("").to_numpy(object),
        "phase": calls["phase"].to_numpy(object),
        "device_s": np.nan_to_num(detail.costs.mean[:, _DEVICE])[positions],
        "output_bytes": detail.traced.operations["bytes_written"].to_numpy()[positions],
    })  # fmt: skip


def _calls(detail: OperationCosts, forward: Answer | None) -> pd.DataFrame:
    """Return the calls with their forward and backward times, not scaled to the time of the step."""
    calls = _device_s(detail)
    is_forward = calls["phase"].isin((FORWARD, LOSS))
    of_module = calls[is_forward].groupby("path")["device_s"].sum()
    added = calls[calls["phase"] == ACCUMULATION].groupby("path")["device_s"].sum()
    share = pd.Series(_FORWARD_SHARE, of_module.index)
    if forward is not None:
        assert isinstance(forward.detail, OperationCosts)
        alone = _device_s(forward.detail)
        share = alone.groupby("path")["device_s"].sum().reindex(of_module.index).fillna(0.0)
        share = (share / of_module.where(of_module > 0)).fillna(0.0).clip(upper=1.0)
        outputs = alone[alone["output_bytes"] > 0].groupby("path")["output_bytes"].last()
        calls["output_bytes"] = calls["path"].map(outputs).fillna(calls["output_bytes"])
    calls["forward_s"] = np.where(is_forward, calls["device_s"] * calls["path"].map(share).fillna(0.0), 0.0)
    calls["backward_s"] = calls["device_s"] - calls["forward_s"]
    first = calls[is_forward].drop_duplicates("path")
    known = added.reindex(first["path"]).fillna(0.0).to_numpy()
    calls.loc[first.index, "backward_s"] += known
    calls.loc[calls["phase"] == ACCUMULATION, "backward_s"] = 0.0
    calls.loc[first.index[:1], "backward_s"] += float(added.sum() - known.sum())
    return calls


def _units(calls: pd.DataFrame, scale: float, gradients: dict[str, list[int]]) -> tuple[Unit, ...]:
    run = (calls["path"] != calls["path"].shift()).cumsum()
    table = calls.groupby(run, sort=False).agg(
        path=("path", "first"), forward_s=("forward_s", "sum"), backward_s=("backward_s", "sum"),
        output_bytes=("output_bytes", "last"),
    )  # fmt: skip
    paths = list(table["path"])
    owned: defaultdict[int, list[int]] = defaultdict(list)
    for path, sizes in gradients.items():
        owned[_first_user(path, paths)] += sizes
    forward_s, backward_s = (scale * table[name].to_numpy(float) for name in ("forward_s", "backward_s"))
    outputs = table["output_bytes"].to_numpy(int)
    return tuple(
        Unit(path, float(forward_s[place]), float(backward_s[place]), tuple(owned[place]), int(outputs[place]))
        for place, path in enumerate(paths)
    )


def _first_user(path: str, paths: Sequence[str]) -> int:
    """Return the first unit of a module, or of the module above it that uses its parameters."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if (above := ".".join(parts[:length])) in paths:
            return paths.index(above)
    return 0


def _trained(detail: OperationCosts) -> tuple[dict[str, list[int]], tuple[Shared, ...], tuple[int, ...]]:
    """Return bytes of the gradients of each module in the order of the backward pass, shared parameters, and buffers.

    A shared parameter is recorded in its first module, and its gradient in its last one; it is complete in the first.
    """
    events = [(event.kind, event.module_path, event.bytes) for event in detail.traced.memory or () if event.bytes]
    recorded = [(path, size) for kind, path, size in events if kind == GRADIENTS]
    recorded = recorded[len(recorded) // 2 :]  # two steps are recorded
    gradients: defaultdict[str, list[int]] = defaultdict(list)
    for path, size in recorded:
        gradients[path].append(size)
    state = Counter((path, size) for kind, path, size in events if kind == PARAMETERS)
    untrained, shared = list((state - Counter(recorded)).elements()), []
    for last, size in (Counter(recorded) - state).elements():
        first = next((path for path, other in untrained if other == size), last)
        if first != last:
            untrained.remove((first, size))
            gradients[last].remove(size)
            gradients[first].append(size)
            shared.append((first, last, size))
    return dict(gradients), tuple(shared), tuple(size for _, size in untrained)


BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * 2**20, 2**20
"""Sizes from which on DDP closes a bucket, and its first bucket."""
SLOWED = 24 / 132
"""Share of the time of a communication by which kernels beside it take longer: SMs that NCCL's channels keep on an
H100."""

RANKS = 1.3
"""Host time of a step in the slowest of several data-parallel ranks, relative to that of one process."""
ADDED = 0.6
"""Host time that DDP and FSDP2 add, relative to what they add to the tiny layers of `calibrate --links`."""


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
    added_s = costs["ddp_step_s"] + costs["ddp_parameter_s"] * len(step.gradients)
    added_s += costs["ddp_bucket_s"] * buckets + costs["ddp_buffer_s"] * len(step.buffers)
    host_s = RANKS * step.host_s + ADDED * added_s
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
    added_s = costs["fsdp_step_s"] + costs["fsdp_group_s"] * len(blocks)
    added_s += (costs["fsdp_parameter_s"] + of_optimizer) * parameters
    host_s = RANKS * step.host_s + ADDED * added_s
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


@dataclass(frozen=True)
class Stage:
    """Modules of one GPU, with the times of one microbatch.

    Attributes
    ----------
    first
        Path of the first module.
    forward_s, backward_s
        Device times.
    forward_host_s, backward_host_s
        Host times.
    gradient_bytes
        Of its gradients; a stage that uses a parameter of an earlier one has a copy of it.
    output_bytes
        What the next stage gets for a microbatch; 0 for the last one.
    paths
        Of its modules.
    """

    first: str
    forward_s: float
    backward_s: float
    forward_host_s: float
    backward_host_s: float
    gradient_bytes: int
    output_bytes: int
    paths: frozenset[str]


def split(step: Step, gpus: int, begins: Sequence[str] = ()) -> list[Stage]:
    """Split a step of one microbatch into stages.

    Parameters
    ----------
    step
        The step.
    gpus
        Number of stages.
    begins
        Modules with which the second and further stages begin; without any, stages take about the same time.

    Raises
    ------
    RequestError
        If a module is unknown, or there are more stages than blocks.
    """
    parts = [list(units) for _, units in itertools.groupby(step.units, key=lambda unit: unit.block or unit.path)]
    places = _places(parts, begins) if begins else balanced([_seconds(part) for part in parts], gpus)
    if len(places) != gpus - 1:
        raise RequestError(
            f"{{stages}} {','.join(begins)}: name the first module of each stage but the first: {gpus - 1} for {gpus} "
            f"GPUs, not {len(places)}."
        )
    bounds = [0, *places, len(parts)]
    return [
        _stage(step, [unit for part in parts[begin:end] for unit in part], last=end == len(parts))
        for begin, end in itertools.pairwise(bounds)
    ]


def _places(parts: Sequence[Sequence[Unit]], begins: Sequence[str]) -> list[int]:
    found = []
    for name in begins:
        places = [
            place for place, part in enumerate(parts)
            if place and any(unit.path == name or unit.path.startswith(f"{name}.") for unit in part)
        ]  # fmt: skip
        if not places:
            known = sorted({part[0].block or part[0].path for part in parts[1:]})
            raise RequestError(f"{{stages}} {name}: no block after the first begins there{did_you_mean(name, known)}")
        found.append(places[0])
    if found != sorted(set(found)):
        raise RequestError(f"{{stages}} {','.join(begins)}: name modules in the order of the forward pass.")
    return found


def _seconds(units: Sequence[Unit]) -> float:
    return math.fsum(unit.forward_s + unit.backward_s for unit in units)


def _stage(step: Step, units: Sequence[Unit], *, last: bool) -> Stage:
    forward_s, backward_s = (math.fsum(getattr(unit, name) for unit in units) for name in ("forward_s", "backward_s"))
    calls = len(units) / len(step.units)
    paths = frozenset(unit.path for unit in units)
    copied = sum(size for first, path, size in step.shared if path in paths and first not in paths)
    return Stage(
        units[0].block or units[0].path,
        forward_s,
        backward_s,
        calls * step.forward_host_s,
        calls * (step.host_s - step.optimizer_host_s - step.forward_host_s),
        sum(size for unit in units for size in unit.gradients) + copied,
        0 if last else units[-1].output_bytes,
        paths,
    )


def sends(stages: Sequence[Stage], links: LinkProfile) -> list[float]:
    """Return how long the output of each stage travels to the next one, in s; 0 for the last stage."""
    return [links.time_s(SEND_RECEIVE, stage.output_bytes, 2) if stage.output_bytes else 0.0 for stage in stages]


def ends(stages: Sequence[Stage], sends_s: Sequence[float], schedule: str, microbatches: int) -> list[float]:
    """Return when each stage has finished its last backward pass, in s; `sends_s` as `sends` returns it.

    Devices wait for each other. Hosts do not: they issue communications and go on.
    """
    done: dict[tuple[int, bool, int], float] = {}
    queues = [order(schedule, place, len(stages), microbatches) for place in range(len(stages))]
    now_s, issued_s, next_ = [0.0] * len(stages), [0.0] * len(stages), [0] * len(stages)
    last = len(stages) - 1
    while any(at < len(queue) for at, queue in zip(next_, queues, strict=True)):
        for place, stage in enumerate(stages):
            while next_[place] < len(queues[place]):
                is_forward, number = queues[place][next_[place]]
                source = (place - 1, True, number) if is_forward else (place + 1, False, number)
                outer = place == (0 if is_forward else last)
                if not outer and source not in done:
                    break
                link_s = 0.0 if outer else sends_s[place - 1 if is_forward else place]
                ready_s = 0.0 if outer else done[source] + link_s
                issued_s[place] += stage.forward_host_s if is_forward else stage.backward_host_s
                seconds = stage.forward_s if is_forward else stage.backward_s
                now_s[place] = max(max(now_s[place], ready_s) + seconds, issued_s[place])
                done[place, is_forward, number] = now_s[place]
                next_[place] += 1
    return now_s
