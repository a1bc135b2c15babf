"""Recommend the GPU, operating point and execution settings at which a pass costs least, with the expected regret."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from clockwatt.errors import ClockwattError, DataFileError, RequestError
from clockwatt.predict.answer import RATIOS, Answer, relative, to_frame
from clockwatt.predict.answerer import (
    NO_OTHER_HOST,
    SMALLER,
    check_fits,
    lacks_memory,
    predict_points,
    with_memory,
    with_tf32,
)
from clockwatt.predict.description import NotPredictableError
from clockwatt.predict.evaluation.errors import objective_of
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts import HostAnswer, HostProfile, different_hosts
from clockwatt.predict.models.training_data import ENERGY
from clockwatt.predict.request import Request, slowdown
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema import layout
from clockwatt.schema.execution import TF32, ExecutionSettings

if TYPE_CHECKING:
    import pandas as pd

REPEATED = 0.01
"""Relative difference up to which two measured points of one GPU are equally good."""
BY_CLOCK_MODEL = 0.03
"""Likewise, if the clock model extrapolates one of them."""


@dataclass(frozen=True)
class Limits:
    """Limits that a choice must meet.

    Attributes
    ----------
    max_slowdown
        How much slower than the fastest candidate: 0.1 or `10%`.
    power_cap_w
        Highest mean power over a pass.

    Raises
    ------
    RequestError
        If one is no number of 0 or more; if `max_slowdown` is above 1, and no text with a percent sign.
    """

    max_slowdown: float | str = math.inf
    power_cap_w: float = math.inf

    def __post_init__(self) -> None:
        slowdown(self.max_slowdown)
        cap_w = self.power_cap_w
        if isinstance(cap_w, bool) or not isinstance(cap_w, Real) or not cap_w >= 0:
            raise RequestError(f"{{power_cap_w}} {cap_w!r}: give a number of 0 or more.")

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the limits of a request."""
        given: dict[str, Any] = {"max_slowdown": request.max_slowdown, "power_cap_w": request.power_cap_w}
        return cls(**{name: value for name, value in given.items() if value is not None})

    def keeps(self, time_s: float, power_w: float | None, fastest_s: float) -> bool:
        """Return whether a candidate is within the limits; unknown power exceeds any cap."""
        in_power = math.isinf(self.power_cap_w) or (power_w is not None and power_w <= self.power_cap_w)
        return time_s <= fastest_s * (1 + slowdown(self.max_slowdown)) and in_power

    def refusal(self, candidates: Sequence[tuple[float, float | None, str]], fastest_s: float) -> str:
        """Return why no candidate meets the limits, and which to raise; each is a time, a mean power and a place."""
        in_time = [one for one in candidates if replace(self, power_cap_w=math.inf).keeps(one[0], None, fastest_s)]
        known = [(power_w, place) for _, power_w, place in in_time if power_w is not None]
        if not known:
            return "no candidate meets the limits: no mean power is known, since no idle power was calibrated."
        kept, more = (
            ("among fast enough candidates, ", " or {max_slowdown}") if len(in_time) < len(candidates) else ("", "")
        )
        power_w, place = min(known)
        where = f"{power_w:.0f} W, on {place}"
        return f"no candidate meets the limits: {kept}the least mean power is {where}. Raise {{power_cap_w}}{more}."


@dataclass(frozen=True)
class Recommendation:
    """Where a network's pass costs least.

    Attributes
    ----------
    objective
        time, energy or edp.
    best
        The choice, with the warnings of `predict`.
    candidates
        Every operating point of every GPU under all execution settings, best first; those outside the limits come last.
    allowed
        Number of candidates within the limits.
    regret
        Regret of such choices on the best GPU, see `evaluation.regret`; None if it was not validated.
    as_good
        Number of the first candidates within error of the best, which is included.
    left_out
        Why operating points or GPUs, such as those without enough memory, are not among the candidates: sentences.
    """

    objective: str
    best: Answer
    candidates: list[Answer]
    allowed: int
    regret: dict[str, Any] | None
    as_good: int = 1
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return a line: the choice."""
        return f"<Recommendation of least {self.objective}, best of {len(self.candidates)}: {self.best!r}>"

    @property
    def platforms(self) -> list[Answer]:
        """The best candidate within the limits of each GPU, best GPU first; empty where the objective is unknown."""
        first: dict[str, Answer] = {}
        for candidate in self.candidates[: self.allowed]:
            if math.isfinite(_value(candidate, self.objective)):
                first.setdefault(candidate.gpu, candidate)
        return list(first.values())

    def times_the_best(self, candidate: Answer) -> float:
        """Return the objective of a candidate relative to that of the best."""
        return _value(candidate, self.objective) / _value(self.best, self.objective)

    @property
    def execution(self) -> list[ExecutionSettings]:
        """Execution settings of the candidates, best first."""
        return list(dict.fromkeys(candidate.execution for candidate in self.candidates))

    def compared_with(self, standards: Mapping[str, Answer]) -> Recommendation:
        """Return the recommendation with candidates compared with a standard pass, by the GPU of the candidate."""
        best, *others = (
            one.compared_with(standards[one.gpu]) if one.gpu in standards else one for one in self.candidates
        )
        return replace(self, best=best, candidates=[best, *others])

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each candidate, best first; see `answer.to_frame`."""
        return to_frame(self.candidates)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "objective": self.objective,
            "best": self.best.to_dict(),
            "platforms": [
                {"gpu": one.gpu, "gpu_name": one.gpu_name, "point": one.point, "execution": str(one.execution)}
                for one in self.platforms
            ],
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "allowed": self.allowed,
            "regret": self.regret,
            "as_good": self.as_good,
            "left_out": list(self.left_out),
        }


def recommend(
    models: dict[str, GpuPredictor],
    traced: TracedNetwork,
    *,
    objective: str = "energy",
    limits: Limits = Limits(),
    points: Sequence[str] = (),
    execution: ExecutionSettings = TF32,
    alternatives: Mapping[ExecutionSettings, TracedNetwork] = {},
    host: HostProfile | None = None,
    validation_dir: Path | None = None,
) -> Recommendation:
    """Find the GPU, operating point and execution settings at which a pass costs least.

    Parameters
    ----------
    models
        GPUs to choose from, by label; all their measured operating points count. Virtual and measured ones do not mix.
    traced
        The network.
    objective
        `time`, `energy` or `edp` (their product).
    limits
        What the choice must keep to.
    points
        Further operating points, not measured. Those between measured clocks are candidates like these. Points that a
        card cannot run at, and clocks outside the measured range, are left out.
    execution
        Execution settings of the network.
    alternatives
        Further execution settings, with the network as it runs under each. GPUs without measurements in their dtype
        are left out.
    host
        Host that issues the calls; without one the median of those seen.
    validation_dir
        From `clockwatt validate`, for the regret of such choices.

    Raises
    ------
    NotPredictableError
        If no GPU predicts this pass or has the memory for it, the idle power that energy needs is unknown, nothing
        keeps to the limits, or virtual and measured GPUs mix.
    ConfigError
        If one of `points` is no operating point.
    ValueError
        If there is no such objective.
    """
    if len({model.description.virtual for model in models.values()}) > 1:
        raise NotPredictableError("virtual and measured GPUs cannot be compared. Name GPUs of one kind ({gpu}).")
    candidates, left_out = list[Answer](), list[str]()
    for settings, under in ({execution: traced} | dict(alternatives)).items():
        more, reasons = _candidates(
            models, under, objective, points, execution=settings, host=host, one_of_several=bool(alternatives)
        )
        candidates += more
        left_out += [reason for reason in reasons if reason not in left_out]
    if not candidates and left_out:
        fix = f" {SMALLER}" if any(reason.startswith("Does not fit") for reason in left_out) else ""
        raise NotPredictableError(f"{traced.network.network_id}: no GPU to choose from.{_told(left_out)}{fix}")
    promised = [_value(candidate, objective) for candidate in candidates]
    if not any(math.isfinite(value) for value in promised):
        raise NotPredictableError(
            f"no GPU predicts the {objective} of {traced.network.network_id} in {traced.network.pass_}. "
            "Fit predictors for this pass; energy also needs idle power from `clockwatt calibrate`."
            f"{_told(left_out)}"
        )
    fastest_s = min(candidate.expected.time_s for candidate in candidates)
    keeps = [limits.keeps(one.expected.time_s, one.expected.power_w, fastest_s) for one in candidates]
    if not any(keeps):
        rows = [(one.expected.time_s, one.expected.power_w, f"{one.gpu} at {one.point}") for one in candidates]
        raise NotPredictableError(limits.refusal(rows, fastest_s))
    if not any(math.isfinite(value) for value, kept in zip(promised, keeps, strict=True) if kept):
        raise NotPredictableError(
            f"no candidate that meets the limits has a known {objective}. Loosen the limits, or name "
            f"the GPUs to choose from.{_told(left_out)}"
        )
    order = sorted(range(len(candidates)), key=lambda number: (not keeps[number], promised[number]))
    best = candidates[order[0]]
    allowed = [candidate for candidate, kept in zip(candidates, keeps, strict=True) if kept]
    best = replace(best, warnings=(*best.warnings, *warnings_of_hosts(models, traced, allowed)))
    best = best if alternatives else with_tf32(models[best.gpu], traced, best, host=host)
    ordered = [best, *(candidates[number] for number in order[1:])]
    return Recommendation(
        objective=objective,
        best=best,
        candidates=ordered,
        allowed=sum(keeps),
        as_good=count_as_good(ordered[: sum(keeps)], objective),
        left_out=tuple(left_out),
        regret=None if validation_dir is None else _known_regret(validation_dir, best, objective),
    )


def warnings_of_hosts(
    models: Mapping[str, GpuPredictor], traced: TracedNetwork, compared: Sequence[Answer]
) -> list[str]:
    """Return the message of `hosts.different_hosts` for predictions on several GPUs."""
    answers: dict[str, list[HostAnswer | None]] = {}
    for one in compared:
        answers.setdefault(one.gpu, []).append(one.host)
    seen = {gpu: models[gpu].hosts_seen for gpu in answers}
    return different_hosts(answers, seen, traced.network.pass_, is_network=traced.is_network)


def _candidates(
    models: dict[str, GpuPredictor],
    traced: TracedNetwork,
    objective: str,
    points: Sequence[str],
    *,
    execution: ExecutionSettings,
    host: HostProfile | None,
    one_of_several: bool,
) -> tuple[list[Answer], list[str]]:
    """Predict the pass at all eligible operating points; return the reasons why others, or GPUs, are left out.

    Settings that are `one_of_several` are named in reasons that depend on them.
    """
    candidates: list[Answer] = []
    left_out = []
    under = f"{execution}: " if one_of_several else ""
    try:
        fitting = check_fits(traced, [model.description.gpu_name for model in models.values()])
    except ClockwattError as error:
        if not one_of_several:
            raise
        return [], [f"{under}{error}"]
    for model in models.values():
        if model.description.gpu_name not in fitting:
            left_out.append(
                f"{under}Does not fit: weights and the largest operation exceed the memory of {model.description.gpu}."
            )
            continue
        try:
            described = model.described(traced.network.pass_)
        except NotPredictableError as error:
            left_out.append(str(error))
            continue
        if host is not None and described.summed:
            left_out.append(f"{model.description.gpu}: {NO_OTHER_HOST}")
            continue
        if one_of_several and (dtype := model.lacks_dtype(traced)) is not None:
            left_out.append(f"{model.description.gpu}: nothing was measured in {dtype}.")
            continue
        why = {point: why_not(model, point) for point in dict.fromkeys([*model.description.points, *points])}
        left_out += [reason for reason in why.values() if reason is not None]
        if objective != "time" and ENERGY in described.lacks:
            left_out.append(f"{model.description.gpu}: holds no {ENERGY}: {described.lacks[ENERGY]}")
        possible = [point for point, reason in why.items() if reason is None]
        try:
            answers = predict_points(model, traced, possible, execution=execution, host=host)
        except NotPredictableError as error:
            left_out.append(f"{under}{error}")
            continue
        if not answers:
            continue
        answers = with_memory(traced, *answers)
        lacking = lacks_memory(answers[0])
        if lacking is not None and all(one.measured is None for one in answers):
            left_out.append(f"{under}{lacking}")
        else:
            candidates += answers
    return candidates, left_out


def why_not(model: GpuPredictor, point: str) -> str | None:
    """Return why an operating point is not eligible: the card cannot run there, or there are no data; else None."""
    try:
        model.description.check_runs_at(point)
    except NotPredictableError as error:
        return str(error)
    reason = model.description.point_warning(point)
    return None if reason is None else f"{model.description.gpu}: {reason}"


def within_error(rows: Mapping[str, NDArray[Any]], best: int, objective: str) -> NDArray[np.bool_]:
    """Return which candidates are within error of one of them.

    Errors of one GPU's points are mostly shared: there only what differs between points counts, repeatability or what
    the DVFS (clock) model misses. Another GPU, or other execution settings on the same one, are as good where the
    interval of their ratio to the best reaches down to 1. Errors of two GPUs are taken as independent. Errors of time
    and energy add in their product, because energy is power times time.

    Parameters
    ----------
    rows
        `gpu`, `measured_point`, `time_s`, `energy_j` and the intervals `time_low_s`, `time_high_s`, `energy_low_j` and
        `energy_high_j` of the candidates; what is not known is nan. `ratio_low`, where settings differ: the lower end
        of the ratio to the best; nan for the best's own settings and for other GPUs.
    best
        Number of the one.
    objective
        `time`, `energy` or `edp`.
    """
    values = objective_values(objective, rows["time_s"], rows["energy_j"])
    low = objective_of(objective, rows["time_low_s"], rows["energy_low_j"])
    high = objective_of(objective, rows["time_high_s"], rows["energy_high_j"])
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = values / values[best]
        error = np.hypot(np.log(values / low), np.log(high[best] / values[best]))
        ratio_low = rows.get("ratio_low", np.full(len(values), np.nan))
        reaches = np.where(np.isnan(ratio_low), ratios * np.exp(-error), ratio_low) <= 1.0
    repeated = (rows["measured_point"] != 0) & (rows["measured_point"][best] != 0)
    same_gpu = (rows["gpu"] == rows["gpu"][best]) & np.isnan(ratio_low)
    within = ratios <= 1 + np.where(repeated, REPEATED, BY_CLOCK_MODEL)
    found: NDArray[np.bool_] = np.where(same_gpu, within, reaches)
    return found


def objective_values(objective: str, time_s: NDArray[Any], energy_j: NDArray[Any]) -> NDArray[Any]:
    """Return what is to be minimised; infinite where it is not known."""
    values = np.asarray(objective_of(objective, time_s, energy_j), dtype=float)
    return np.where(np.isnan(values), np.inf, values)


def count_as_good(candidates: Sequence[Answer], objective: str) -> int:
    """Return how many of the first candidates, the best included, are within error of the best."""
    intervals = [
        [bound for name in ("time_s", "energy_j") for bound in one.intervals.get(name, (np.nan, np.nan))]
        for one in candidates
    ]
    names = ("time_low_s", "time_high_s", "energy_low_j", "energy_high_j")
    rows: dict[str, NDArray[Any]] = dict(zip(names, np.array(intervals, dtype=float).T, strict=True))
    rows["time_s"] = np.array([one.expected.time_s for one in candidates])
    rows["energy_j"] = np.array([one.expected.energy_j for one in candidates], dtype=float)
    rows["gpu"] = np.array([one.gpu for one in candidates])
    rows["measured_point"] = np.array([one.measured_point for one in candidates])
    rows["ratio_low"] = np.array([_ratio_low(one, candidates[0], objective) for one in candidates])
    return int(np.argmin([*within_error(rows, 0, objective), False]))


def _ratio_low(candidate: Answer, best: Answer, objective: str) -> float:
    """Return the lower end of a candidate's ratio to the best; nan for the same settings and for another GPU."""
    if candidate.gpu != best.gpu or candidate.execution == best.execution:
        return math.nan
    intervals = relative(candidate, best).intervals
    lower = (intervals.get(RATIOS[name], (math.inf,))[0] for name in ("time_s", "energy_j"))
    return float(objective_of(objective, *lower))


def _value(candidate: Answer, objective: str) -> float:
    energy_j = candidate.expected.energy_j
    if energy_j is None and objective != "time":
        return math.inf
    return float(objective_of(objective, candidate.expected.time_s, energy_j))


def _known_regret(validation_dir: Path, best: Answer, objective: str) -> dict[str, Any] | None:
    path = validation_dir / layout.VALIDATION_FILE
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        entries = report["gpus"].get(best.gpu, {}).get("regret", [])
        wanted = {"pass": best.pass_, "execution": best.execution, "objective": objective}
        return next((entry for entry in entries if {key: entry[key] for key in wanted} == wanted), None)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFileError(f"{path}: not a validation ({error}). Run `clockwatt validate` again.") from error


def _told(reasons: Sequence[str]) -> str:
    """Return the reasons why some were left out, as sentences."""
    return "".join(f" {reason.rstrip('.')}." for reason in reasons)
