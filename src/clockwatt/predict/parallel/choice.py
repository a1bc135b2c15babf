"""Recommend on how many GPUs, with which strategy and at which operating point training costs least per item."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from clockwatt.config import STRATEGIES, NetworkConfig, OperatingPoint
from clockwatt.errors import ClockwattError
from clockwatt.predict.all_gpus import AllGpus
from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import lacks_memory
from clockwatt.predict.description import NotPredictableError
from clockwatt.predict.evaluation.errors import objective_of
from clockwatt.predict.parallel.answer import (
    ParallelAnswer,
    Steps,
    Trace,
    gpus_in_words,
    lacks_memory_of_rank,
    pass_columns,
)
from clockwatt.predict.recommend import Limits, why_not
from clockwatt.predict.request import PIPELINE, Request
from clockwatt.predict.warning_kinds import WarningKind, is_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Placement:
    """One way to train.

    Attributes
    ----------
    gpus, nodes, strategy, point
        Number of GPUs in all, and of nodes; `ddp`, `fsdp` or `pipeline`, None on one GPU; operating point.
    time_s, energy_j, power_w
        Of a step on all GPUs together.
    items, items_per_s, items_per_joule
        What a step processes on all of them; in a second; for a joule.
    memory_bytes
        Peak of the rank with most; None if not known.
    speed_up, energy_ratio
        Items per second and energy per item relative to one GPU at the first operating point.
    """

    gpus: int
    strategy: str | None
    point: str
    time_s: float
    energy_j: float
    items: int
    memory_bytes: int | None
    speed_up: float = 1.0
    energy_ratio: float = 1.0
    nodes: int = 1

    @property
    def power_w(self) -> float:
        """Mean power of all GPUs together."""
        return self.energy_j / self.time_s

    @property
    def items_per_s(self) -> float:
        """Throughput, items per second."""
        return self.items / self.time_s

    @property
    def items_per_joule(self) -> float:
        """Items per joule."""
        return self.items / self.energy_j

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        derived = ("power_w", "items_per_s", "items_per_joule")
        return {name: getattr(self, name) for name in (*(one.name for one in fields(self)), *derived)}


@dataclass(frozen=True)
class ParallelRecommendation:
    """On how many GPUs, and how, training costs least.

    Attributes
    ----------
    objective
        `time`, `energy` or `edp`, each per item.
    best
        The choice.
    candidates
        All that fit the memory, best first; those outside the limits come last.
    allowed
        Number of candidates within the limits.
    single
        The answer for one GPU at the first operating point, which others are compared with.
    left_out
        Why others are not among the candidates: sentences.
    warnings
        Limits of the answers.
    """

    objective: str
    best: Placement
    candidates: tuple[Placement, ...]
    allowed: int
    single: Answer
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        """Return a line: the choice."""
        one, best = self.single, self.best
        place = _place(best.nodes, best.gpus, best.strategy, best.point)
        return (
            f"<ParallelRecommendation of least {self.objective}, best of {len(self.candidates)}: {one.network_id}, "
            f"{one.pass_}, {one.execution}, {one.gpu}, {place}: speed_up={best.speed_up:.4g}, "
            f"energy_ratio={best.energy_ratio:.4g}>"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each candidate, best first."""
        import pandas as pd

        return pd.DataFrame([pass_columns(self.single) | one.to_dict() for one in self.candidates])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        placements = [one.to_dict() for one in self.candidates]
        return values | {"best": placements[0], "candidates": placements, "single": self.single.to_dict()}


def recommend_parallel(
    predictors: AllGpus, request: Request, network: NetworkConfig, trace: Trace
) -> ParallelRecommendation:
    """Find the number of GPUs, the strategy and the operating point at which training costs least per item.

    Parameters
    ----------
    predictors, request, network, trace
        As of `ask_parallel`; the request's `counts`, `node_counts` and `strategies` are considered, and one GPU.
        Its power cap is for all GPUs together.

    Raises
    ------
    ClockwattError
        As `ask_parallel`; if nothing fits the memory or keeps to the limits.
    """
    limits = Limits.of(request)
    steps = Steps(predictors, request.model_copy(update={"points": request.points[:1]}), network, trace)
    points, left_out = _points(steps, request)
    single = steps.single(points[0])
    numbers = itertools.product(sorted({1, *request.node_counts}), sorted({*request.counts}))
    ways = itertools.product(numbers, dict.fromkeys(request.strategies or STRATEGIES))
    found, warnings = list[Placement](), dict.fromkeys(single.warnings)
    for point, ((nodes, count), strategy) in itertools.product(points, [((1, 1), None), *ways]):
        if nodes > 1 and strategy == PIPELINE:
            continue
        where = _place(nodes, nodes * count, strategy, point)
        try:
            if strategy is None:
                candidate, lacking = _placement(steps.single(point), single, point), lacks_memory(steps.single(point))
            else:
                between = {"nodes": nodes, "node_links": request.node_links if nodes > 1 else None}
                asked = {"gpus_per_node": count, "strategy": strategy, "points": (point,), **between}
                answer = steps.answer(request.model_copy(update=asked))
                candidate, lacking = _placement(answer, single, point), lacks_memory_of_rank(answer)
                warnings |= dict.fromkeys(answer.warnings)
        except ClockwattError as error:
            left_out.append(f"{where}: {error}")
            continue
        if lacking is None:
            found.append(candidate)
        else:
            left_out.append(f"{where}: {lacking}")
    if not found:
        raise NotPredictableError(f"{network.name}: nothing to choose from. {' '.join(left_out)}")
    fastest_s = min(one.time_s / one.items for one in found)
    keeps = [limits.keeps(one.time_s / one.items, one.power_w, fastest_s) for one in found]
    if not any(keeps):
        rows = [
            (one.time_s / one.items, one.power_w, _place(one.nodes, one.gpus, one.strategy, one.point)) for one in found
        ]
        raise NotPredictableError(limits.refusal(rows, fastest_s))
    order = sorted(range(len(found)), key=lambda place: (not keeps[place], _cost(found[place], request.objective)))
    candidates = tuple(found[place] for place in order)
    # what does not fit is among the reasons
    kept = [one for one in warnings if not is_of(one, WarningKind.DOES_NOT_FIT)]
    return ParallelRecommendation(
        request.objective, candidates[0], candidates, sum(keeps), single, tuple(left_out), tuple(kept)
    )


def _points(steps: Steps, request: Request) -> tuple[list[str], list[str]]:
    """Return the operating points to consider, the default or a named one first, and why others are not."""
    measured = [*steps.model.description.points]
    named = [str(OperatingPoint.parse(point)) for point in request.points]
    points = sorted(dict.fromkeys([*named, *measured]), key=lambda point: point != "default")
    reasons = {point: why_not(steps.model, point) for point in points}
    possible = [point for point, reason in reasons.items() if reason is None]
    if not possible:
        raise NotPredictableError(" ".join(filter(None, reasons.values())))
    return possible, [reason for reason in reasons.values() if reason is not None]


def _placement(answer: Answer | ParallelAnswer, single: Answer, point: str) -> Placement:
    """Return a candidate with its ratios to one GPU; NotPredictableError if the energy is not known."""
    if answer.energy_j is None or single.energy_j is None or not answer.items or not single.items:
        raise NotPredictableError("its energy is not predicted.")
    ratios: dict[str, Any] = {
        "speed_up": answer.items / answer.time_s * single.time_s / single.items,
        "energy_ratio": answer.energy_j / answer.items / (single.energy_j / single.items),
    }
    if isinstance(answer, Answer):
        memory = None if answer.memory is None else answer.memory.allocated_bytes
        return Placement(1, None, point, answer.time_s, answer.energy_j, answer.items, memory, **ratios)
    memory = None if answer.memory_bytes is None else max(answer.memory_bytes)
    return Placement(
        answer.gpus, answer.strategy, point, answer.time_s, answer.energy_j, answer.items, memory,
        nodes=answer.nodes, **ratios,
    )  # fmt: skip


def _place(nodes: int, gpus: int, strategy: str | None, point: str) -> str:
    """Return `one GPU at default` or `8 GPUs of 2 nodes with ddp at default`."""
    return f"one GPU at {point}" if strategy is None else f"{gpus_in_words(gpus, nodes)} with {strategy} at {point}"


def _cost(one: Placement, objective: str) -> float:
    return float(objective_of(objective, one.time_s / one.items, one.energy_j / one.items))
