"""Pipelines: a network split into stages, a stage on each GPU, and the schedule of its microbatches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from clockwatt.errors import RequestError, did_you_mean
from clockwatt.predict.parallel.links import LinkProfile
from clockwatt.predict.parallel.step import Step, Unit
from clockwatt.schema.links import SEND_RECEIVE

GPIPE = "gpipe"


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
        Of its gradients.
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
    places = _places(parts, begins) if begins else _balanced([_seconds(part) for part in parts], gpus)
    if len(places) != gpus - 1:
        raise RequestError(f"{{stages}} {','.join(begins)}: begin {len(places) + 1} stages for {gpus} GPUs.")
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


def _balanced(seconds: Sequence[float], gpus: int) -> list[int]:
    """Return where stages begin, so that the longest is as short as possible."""
    if len(seconds) < gpus:
        raise RequestError(f"{{gpus_per_node}} {gpus}: the network has {len(seconds)} blocks, fewer than GPUs.")
    until = [0.0, *itertools.accumulate(seconds)]
    longest = {(1, end): (until[end], 0) for end in range(1, len(until))}
    for stages in range(2, gpus + 1):
        for end in range(stages, len(until)):
            longest[stages, end] = min(
                (max(longest[stages - 1, begin][0], until[end] - until[begin]), begin)
                for begin in range(stages - 1, end)
            )
    places, end = [], len(seconds)
    for stages in range(gpus, 1, -1):
        end = longest[stages, end][1]
        places.append(end)
    return places[::-1]


def _stage(step: Step, units: Sequence[Unit], *, last: bool) -> Stage:
    forward_s, backward_s = (math.fsum(getattr(unit, name) for unit in units) for name in ("forward_s", "backward_s"))
    calls = len(units) / len(step.units)
    return Stage(
        units[0].block or units[0].path,
        forward_s,
        backward_s,
        calls * step.forward_host_s,
        calls * (step.host_s - step.optimizer_host_s - step.forward_host_s),
        sum(size for unit in units for size in unit.gradients),
        0 if last else units[-1].output_bytes,
        frozenset(unit.path for unit in units),
    )


def order(schedule: str, stage: int, stages: int, microbatches: int) -> list[tuple[bool, int]]:
    """Return what a stage computes: whether a forward pass, and the number of the microbatch."""
    before = in_flight(schedule, stage, stages, microbatches)
    rest = [(is_forward, number) for number in range(microbatches) for is_forward in (False, True)]
    following = [(is_forward, number + before * is_forward) for is_forward, number in rest]
    return [
        *((True, number) for number in range(before)),
        *((is_forward, number) for is_forward, number in following if number < microbatches),
    ]


def in_flight(schedule: str, stage: int, stages: int, microbatches: int) -> int:
    """Return how many microbatches a stage keeps activations of at once."""
    return microbatches if schedule == GPIPE else min(microbatches, stages - stage)


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
