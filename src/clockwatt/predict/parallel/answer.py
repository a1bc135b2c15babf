"""Time, energy and memory of a training step on several GPUs of one node, or of several."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from clockwatt.config import NetworkConfig, Pass
from clockwatt.errors import RequestError
from clockwatt.gpu.specs import find_spec
from clockwatt.operations.partition import in_flight
from clockwatt.predict.all_gpus import AllGpus
from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import OperationCosts, predict_network, with_memory
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.memory import PassMemory, most_at_once
from clockwatt.predict.parallel.links import ClusterLinks, LinkProfile
from clockwatt.predict.parallel.schedules import (
    Schedule,
    Stage,
    Step,
    ddp,
    ends,
    fsdp,
    fsdp_groups,
    sends,
    split,
    step_of,
)
from clockwatt.predict.request import DDP, PIPELINE, Request
from clockwatt.predict.tracing import TracedNetwork, with_batch
from clockwatt.predict.warning_kinds import AnswerWarning, WarningKind, is_of
from clockwatt.schema.records import (
    ACTIVATIONS,
    GRADIENTS,
    INFERENCE,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    TEMPORARY,
    TRAINING,
    WORKSPACE,
    MemoryRow,
)

if TYPE_CHECKING:
    import pandas as pd

Trace = Callable[[NetworkConfig, Pass], TracedNetwork]
"""Function from a network and a pass to its calls."""
_LESS = "Choose a smaller batch, another strategy or more GPUs."


@dataclass(frozen=True)
class ParallelAnswer:
    """A training step on several GPUs.

    Attributes
    ----------
    strategy, gpus, nodes, links
        `ddp`, `fsdp` or `pipeline`; the number of GPUs in all, and of nodes; the name of their link.
    time_s, power_w
        Of a step; mean power of all GPUs together.
    energy_j, energies_j
        Of all GPUs, and of each.
    memory_bytes
        Most that PyTorch has allocated at once, of each rank; None where it cannot be predicted.
    speed_up, efficiency
        Items per second relative to one GPU, and this for each GPU.
    items, unit, items_per_s, items_per_joule
        What a step processes on all GPUs together.
    busy_s
        Time of the kernels of each rank.
    device_s, host_s
        Of the rank that takes longest.
    communication_s, exposed_s
        Time of its communications, and the part in which it computes nothing; `exposed_s` of a pipeline is all waiting.
    limited_by
        `host-bound` or `device-bound`.
    stages
        First module of each stage of a pipeline.
    microbatches, schedule
        Of a pipeline; None for others.
    single
        The answer for one GPU, with the whole batch of a pipeline, with the batch of one rank for others.
    warnings
        Limits of the answer.
    """

    strategy: str
    gpus: int
    links: str
    time_s: float
    energy_j: float
    energies_j: tuple[float, ...]
    memory_bytes: tuple[int, ...] | None
    speed_up: float
    efficiency: float
    busy_s: tuple[float, ...]
    items: int | None
    unit: str
    items_per_s: float | None
    items_per_joule: float | None
    device_s: float
    host_s: float
    communication_s: float
    exposed_s: float
    limited_by: str
    stages: tuple[str, ...]
    microbatches: int | None
    schedule: str | None
    single: Answer
    warnings: tuple[str, ...] = ()
    nodes: int = 1

    def __repr__(self) -> str:
        """Return a line: what was asked, and its cost."""
        names = ("time_s", "power_w", "energy_j", "speed_up")
        costs = ", ".join(f"{name}={getattr(self, name):.4g}" for name in names)
        one, gpus = self.single, gpus_in_words(self.gpus, self.nodes)
        of_pass = f"{one.network_id}, {one.pass_}, {one.execution}, {one.gpu} at {one.point}"
        return f"<ParallelAnswer {of_pass}, {self.strategy} on {gpus}: {costs}>"

    @property
    def power_w(self) -> float:
        """Mean power of all GPUs together."""
        return self.energy_j / self.time_s

    def to_frame(self) -> pd.DataFrame:
        """Return a frame of one row, without what each rank has; `memory_bytes` is that of the rank with most."""
        import pandas as pd

        of_ranks = ("energies_j", "busy_s", "stages", "single")
        values = {name: value for name, value in self.to_dict().items() if name not in of_ranks}
        memory = None if self.memory_bytes is None else max(self.memory_bytes)
        more = {"memory_bytes": memory, "warnings": list(self.warnings)}
        return pd.DataFrame([pass_columns(self.single) | values | more])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return values | {"power_w": self.power_w, "single": self.single.to_dict()}


def pass_columns(single: Answer) -> dict[str, str]:
    """Return columns of frames that name the pass of a step on several GPUs, as `answer.to_frame` does."""
    return {
        "gpu": single.gpu, "point": single.point, "network_id": single.network_id, "pass": single.pass_,
        "execution": str(single.execution),
    }  # fmt: skip


def gpus_in_words(gpus: int, nodes: int) -> str:
    """Return `8 GPUs of 2 nodes`; of one node, `8 GPUs`."""
    return f"{gpus} GPUs" + (f" of {nodes} nodes" if nodes > 1 else "")


def lacks_memory_of_rank(answer: ParallelAnswer) -> str | None:
    """Return the message for ranks that do not fit their GPU; None where they fit or that is not known."""
    of_one = answer.single.memory
    if answer.memory_bytes is None or of_one is None or of_one.gpu_bytes is None:
        return None
    needed = max(answer.memory_bytes)
    more_than_one = answer.strategy == DDP and of_one.fits is False  # a rank of DDP needs what one GPU does, and more
    if needed + of_one.used_bytes <= of_one.gpu_bytes and not more_than_one:
        return None
    there = of_one.gpu_bytes / 2**30
    return f"Does not fit: a rank needs {needed / 2**30:.1f} GiB; {answer.single.gpu} has {there:.1f} GiB."


def ask_parallel(predictors: AllGpus, request: Request, network: NetworkConfig, trace: Trace) -> ParallelAnswer:
    """Answer a request with a strategy.

    Parameters
    ----------
    predictors
        Predictors of the request's GPU.
    request, network, trace
        The request, its network, and a function that traces the network.

    Raises
    ------
    ClockwattError
        As `AllGpus.ask`; if the strategy does not suit the network, or the links are unknown.
    """
    return Steps(predictors, request, network, trace).answer(request)


class Steps:
    """Training steps of one network on GPUs of one model; each pass is traced and predicted once.

    Parameters are those of `ask_parallel`, which raises the same.
    """

    def __init__(self, predictors: AllGpus, request: Request, network: NetworkConfig, trace: Trace) -> None:
        self._links = LinkProfile.read(request.links or "")
        if request.node_links is not None:  # refused before anything is traced
            ClusterLinks.of(self._links, 1, request.node_links)
        if not request.gpus and len(predictors.gpus) > 1:
            request = request.model_copy(update={"gpus": (self._links.gpu_name,)})
        self._predictors, self._request, self._network = predictors, request, network
        self.model = predictors.model(predictors.gpu_at(request))
        self._trace = trace
        self._traced: dict[tuple[str, Pass], TracedNetwork] = {}
        self._singles: dict[tuple[str, str], Answer] = {}
        self._steps: dict[tuple[str, str], Step] = {}
        self._host, factor = predictors.profile(request.host), 1.0
        if self._host is not None:
            median = self.model.hosts_seen.costs(TRAINING, is_network=True)
            factor = self._host.costs(self.model, TRAINING).overall / median.overall
        self._links = self._links.on_host(factor)

    def answer(self, request: Request) -> ParallelAnswer:
        """Answer a request that differs in strategy, number of GPUs or operating point only."""
        nodes, links = request.nodes or 1, self._links
        if request.node_links is not None:
            links = ClusterLinks.of(links, nodes, request.node_links)
        count = nodes * (request.gpus_per_node or 0)
        network = self._network
        if request.strategy == PIPELINE:
            batch = network.first_input.shape[0]
            if batch % request.microbatches:
                raise RequestError(
                    f"{{microbatches}} {request.microbatches}: the batch of {batch} is not a multiple of it."
                )
            network = with_batch(network, batch // request.microbatches)
        single, one = (self._single(each, request.point) for each in (self._network, network))
        make = _pipeline if request.strategy == PIPELINE else functools.partial(_data_parallel, self.model)
        answer = make(request, links, count, self._step(network, request.point), one, single)
        between, own = (name.removeprefix("NVIDIA ") for name in (self._links.gpu_name, single.gpu_name))
        other = "on another machine" if self._links.origin else f"between other GPUs ({between})"
        warnings = [one for one in single.warnings if not is_of(one, WarningKind.DOES_NOT_FIT)]
        if (lacking := lacks_memory_of_rank(answer)) is not None:
            warnings.insert(0, AnswerWarning(f"{lacking} {_LESS}", WarningKind.DOES_NOT_FIT))
        if self._links.origin or between != own:
            warnings.append(
                f"The links were measured {other}. For yours, run `clockwatt calibrate --links links.json`."
            )
        return replace(answer, nodes=nodes, warnings=tuple(warnings))

    def single(self, point: str) -> Answer:
        """Answer for one GPU at an operating point."""
        return self._single(self._network, point)

    def _single(self, network: NetworkConfig, point: str) -> Answer:
        key = network.network_id, point
        if key not in self._singles:
            traced = self._calls(network, "training")
            execution = self._predictors.execution(self._request, traced)
            answer = predict_network(self.model, traced, point, execution=execution, host=self._host)
            (self._singles[key],) = with_memory(traced, answer)
        return self._singles[key]

    def _step(self, network: NetworkConfig, point: str) -> Step:
        key = network.network_id, point
        if key not in self._steps:
            one, forward = self._single(network, point), None
            if INFERENCE in self.model.description.passes:
                traced = self._calls(network, "inference")
                forward = predict_network(self.model, traced, one.point, execution=one.execution, host=self._host)
            self._steps[key] = step_of(one, forward, self.model.description.overheads(one.point).power_idle_w)
        return self._steps[key]

    def _calls(self, network: NetworkConfig, pass_: Pass) -> TracedNetwork:
        key = network.network_id, pass_
        if key not in self._traced:
            self._traced[key] = self._trace(network, pass_)
        return self._traced[key]


def _data_parallel(
    model: GpuPredictor, request: Request, links: LinkProfile, count: int, step: Step, one: Answer, single: Answer
) -> ParallelAnswer:
    bytes_per_s = 1e9 * find_spec(model.description.gpu_name).bandwidth_gb_s
    if request.strategy == DDP:
        schedule = ddp(step, links, count, bytes_per_s)
    else:
        adaptive = "ada" in str((one.optimizer or {}).get("optimizer", "sgd"))
        schedule = fsdp(step, links, count, bytes_per_s, adaptive=adaptive)
    time_s = max(schedule.device_s, schedule.host_s)
    energy_j = _energy(step, links, count, time_s, schedule)
    memory = _memory(request.strategy or "", step, one, count)
    return _assembled(
        request, links, single, count, time_s, (energy_j,) * count, (memory,) * count if memory else None, schedule
    )


def _energy(step: Step, links: LinkProfile, count: int, time_s: float, schedule: Schedule) -> float:
    """Return the energy of one GPU: kernels at their mean power, communications, and idle power over the step.

    While GPUs wait for each other, communications run on all but the last of them.
    """
    kernels_j = step.dynamic_j * schedule.busy_s / step.device_s if step.device_s else 0.0
    more_w = max(0.0, (links.power_w or 0.0) - step.idle_w)
    waited_s = max(0.0, time_s - schedule.busy_s)
    communicating_s = max(0.0, schedule.communication_s - schedule.exposed_s) + waited_s * (count - 1) / count
    return kernels_j + more_w * communicating_s + step.idle_w * time_s


def _memory(strategy: str, step: Step, one: Answer, count: int) -> int | None:
    """Return the peak of one rank: of DDP with its buckets, of FSDP2 with shards and two gathered blocks."""
    if one.memory is None:
        return None
    if strategy == DDP:
        return one.memory.allocated_bytes + sum(step.gradients)
    assert isinstance(one.detail, OperationCosts)
    root, blocks = fsdp_groups(step)
    gathered = root.size + 2 * max((block.size for block in blocks), default=0)
    sharded = most_at_once(
        one.detail.traced.memory or (),
        lambda event: 1 / count if event.kind in (PARAMETERS, GRADIENTS, OPTIMIZER_STATE) else 1.0,
    )
    return round(sharded + gathered + _kept(one.memory, WORKSPACE))


def _kept(memory: PassMemory, *kinds: str) -> int:
    """Return the bytes of some kinds at the peak."""
    return sum(memory.parts.get(name, 0) for name in kinds)


def _pipeline(
    request: Request, links: LinkProfile, count: int, step: Step, one: Answer, single: Answer
) -> ParallelAnswer:
    batches, schedule = request.microbatches, request.schedule
    stages = split(step, count, request.stages)
    whole = sum(step.gradients) or 1
    longer_s = max(step.optimizer_s, step.optimizer_host_s)
    optimizers_s = [longer_s * stage.gradient_bytes / whole for stage in stages]
    sends_s = sends(stages, links)
    finished = ends(stages, sends_s, schedule, batches)
    time_s = max(end + optimizer_s for end, optimizer_s in zip(finished, optimizers_s, strict=True))
    energies = []
    schedules = []
    for place, stage in enumerate(stages):
        busy_s = batches * (stage.forward_s + stage.backward_s) + step.optimizer_s * stage.gradient_bytes / whole
        of_links_s = 2 * batches * (sends_s[place] + (sends_s[place - 1] if place else 0.0))
        host_s = (
            batches * (stage.forward_host_s + stage.backward_host_s)
            + step.optimizer_host_s * stage.gradient_bytes / whole
        )
        schedules.append(Schedule(time_s, host_s, busy_s, of_links_s, max(0.0, time_s - busy_s)))
        energies.append(_energy(step, links, count, time_s, schedules[-1]))
    longest = max(schedules, key=lambda each: each.busy_s)
    memory = None
    if one.memory is not None:
        assert isinstance(one.detail, OperationCosts)
        memory = _memory_of_stages(one.memory, one.detail.traced.memory or (), stages, whole, schedule, batches)
    answer = _assembled(request, links, single, count, time_s, tuple(energies), memory, longest)
    return replace(
        answer, busy_s=tuple(each.busy_s for each in schedules), stages=tuple(stage.first for stage in stages),
        microbatches=batches, schedule=schedule if batches > 1 else None,
    )  # fmt: skip


def _is_of(paths: Collection[str], kinds: Collection[str], event: MemoryRow) -> bool:
    return event.kind in kinds and event.module_path in paths


def _memory_of_stages(
    memory: PassMemory, events: Sequence[MemoryRow], stages: Sequence[Stage], whole: int, schedule: str, batches: int
) -> tuple[int, ...]:
    """Return the peak of each stage: in a backward pass with all its microbatches under way, or in the optimizer.

    `memory`, `events` and `whole`, the bytes of all gradients, are those of one GPU with a microbatch. What a stage
    sends is kept until the step ends. A gradient is added to that of the microbatches before, and freed.
    """
    states = _kept(memory, PARAMETERS, OPTIMIZER_STATE) + whole
    temporary = most_at_once(events, lambda event: event.kind == TEMPORARY)
    found = []
    for place, stage in enumerate(stages):
        share, under_way = stage.gradient_bytes / whole, in_flight(schedule, place, len(stages), batches)
        received = stages[place - 1].output_bytes if place else 0
        sent = stage.output_bytes * (batches - under_way + 1) + received * (under_way + batches)
        activations = most_at_once(events, functools.partial(_is_of, stage.paths, {ACTIVATIONS}))
        last = most_at_once(
            events,
            functools.partial(_is_of, stage.paths, {ACTIVATIONS, GRADIENTS} if batches > 1 else {ACTIVATIONS}),
            freed_at_once=GRADIENTS,
        )
        passes = (under_way - 1) * activations + last + _kept(memory, INPUTS) + sent
        found.append(round(states * share + _kept(memory, WORKSPACE) + max(passes, temporary * share)))
    return tuple(found)


def _assembled(
    request: Request,
    links: LinkProfile,
    single: Answer,
    count: int,
    time_s: float,
    energies_j: tuple[float, ...],
    memory: tuple[int, ...] | None,
    schedule: Schedule,
) -> ParallelAnswer:
    pipeline = request.strategy == PIPELINE
    items = None if single.items is None else single.items * (1 if pipeline else count)
    speed_up = (1 if pipeline else count) * single.time_s / time_s
    energy_j = math.fsum(energies_j)
    return ParallelAnswer(
        strategy=request.strategy or "", gpus=count, links=links.name, time_s=time_s, energy_j=energy_j,
        energies_j=energies_j, memory_bytes=memory, speed_up=speed_up, efficiency=speed_up / count,
        busy_s=(schedule.busy_s,) * count, items=items,
        unit=single.unit, items_per_s=items / time_s if items else None,
        items_per_joule=items / energy_j if items else None, device_s=schedule.device_s, host_s=schedule.host_s,
        communication_s=schedule.communication_s, exposed_s=schedule.exposed_s,
        limited_by="host-bound" if schedule.host_s > schedule.device_s else "device-bound",
        stages=(), microbatches=None, schedule=None, single=single,
    )  # fmt: skip
