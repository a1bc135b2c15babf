"""Where a network's pass costs least: the GPU and the operating point, with what such a choice may cost."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clockwatt.config import OperatingPoint
from clockwatt.errors import DataFileError
from clockwatt.predict.answer import NetworkPrediction, TracedNetwork, predict_points
from clockwatt.predict.evaluation.regret import VALIDATION_FILE, objective_of
from clockwatt.predict.gpu_predictor import GpuPredictor, NotPredictableError
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.predict.models.clock_law import POWER_CLOCKS, ClockLaw, neighbours, power_terms, time_terms


@dataclass(frozen=True)
class Limits:
    """What a choice must keep to.

    Attributes
    ----------
    max_slowdown
        How much slower than the fastest candidate; 0.1 is 10 %.
    power_cap_w
        Highest mean power over a pass.
    """

    max_slowdown: float = math.inf
    power_cap_w: float = math.inf

    def keeps(self, candidate: NetworkPrediction, fastest_s: float) -> bool:
        """Whether a candidate keeps to them; one whose power is unknown keeps to no cap."""
        power_w = math.inf if candidate.expected.power_w is None else candidate.expected.power_w
        in_time = candidate.expected.time_s <= fastest_s * (1 + self.max_slowdown)
        return in_time and (math.isinf(self.power_cap_w) or power_w <= self.power_cap_w)


@dataclass(frozen=True)
class Recommendation:
    """Where a network's pass costs least.

    Attributes
    ----------
    objective
        time, energy or edp.
    best
        The choice.
    candidates
        Every operating point of every GPU, best first; those beyond the limits come last.
    allowed
        How many of them keep to the limits.
    regret
        What such choices have cost on the best GPU, see `regret.regrets`; None without a validation of it.
    """

    objective: str
    best: NetworkPrediction
    candidates: list[NetworkPrediction]
    allowed: int
    regret: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "objective": self.objective,
            "best": self.best.to_dict(),
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "allowed": self.allowed,
            "regret": self.regret,
        }


def recommend(
    models: dict[str, GpuPredictor],
    traced: TracedNetwork,
    *,
    objective: str = "energy",
    limits: Limits = Limits(),
    points: Sequence[str] = (),
    tf32: bool = True,
    host: HostProfile | None = None,
    validation_dir: Path | None = None,
) -> Recommendation:
    """Find the GPU and operating point at which a pass costs least.

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
        Further operating points, never measured. One of them comes before a measured one only where it promises more
        than the clock law's own error on this network, see `law_error`.
    tf32
        Whether TF32 may be used.
    host
        That issues the calls; without one the median of those seen.
    validation_dir
        From `clockwatt validate`: what such choices have cost where it was measured.

    Raises
    ------
    NotPredictableError
        If no GPU predicts this pass, the idle power that energy needs is unknown, nothing keeps to the limits, or
        virtual and measured GPUs mix.
    ConfigError
        If one of `points` is no operating point.
    ValueError
        If there is no such objective.
    """
    if len({model.description.virtual for model in models.values()}) > 1:
        raise NotPredictableError(
            "virtual and measured GPUs cannot be compared: name the GPUs to choose from, all of one kind (--gpu)."
        )
    candidates: list[NetworkPrediction] = []
    promised: list[float] = []
    for model in models.values():
        if traced.network.pass_ in model.description.passes:
            wanted = [*dict.fromkeys([*model.description.points, *points])]
            own = predict_points(model, traced, wanted, tf32=tf32, host=host)
            candidates += own
            promised += _promised(own, objective)
    if not any(math.isfinite(value) for value in promised):
        raise NotPredictableError(
            f"no GPU predicts the {objective} of {traced.network.network_id} in {traced.network.pass_}. "
            "Fit predictors for this pass; energy also needs idle power from `clockwatt calibrate`."
        )
    fastest_s = min(candidate.expected.time_s for candidate in candidates)
    keeps = [limits.keeps(candidate, fastest_s) for candidate in candidates]
    if not any(keeps):
        raise NotPredictableError(f"nothing keeps to the limits: {_closest(candidates)}. Raise --power-cap.")
    order = sorted(range(len(candidates)), key=lambda number: (not keeps[number], promised[number]))
    best = candidates[order[0]]
    return Recommendation(
        objective=objective,
        best=best,
        candidates=[candidates[number] for number in order],
        allowed=sum(keeps),
        regret=None if validation_dir is None else _known_regret(validation_dir, best, objective),
    )


def law_error(candidates: Sequence[NetworkPrediction], objective: str) -> float:
    """How far the clock law misses this network where a measured clock is left out: the most, relative.

    Parameters
    ----------
    candidates
        Predictions of one network on one GPU at measured operating points that differ in the SM clock alone.
    objective
        What is judged.

    Returns
    -------
    float
        Infinite where leaving one out leaves fewer clocks than the law needs.
    """
    ordered = sorted(candidates, key=lambda one: OperatingPoint.parse(one.point).sm_clock_mhz or 0)
    clocks = np.array([float(OperatingPoint.parse(one.point).sm_clock_mhz or 0) for one in ordered])
    if len(clocks) <= POWER_CLOCKS:
        return math.inf
    times = np.array([[one.expected.time_s for one in ordered]])
    powers = np.array([[one.expected.power_w or math.nan for one in ordered]])
    if objective != "time" and not np.isfinite(powers).all():
        return math.inf
    worst = 0.0
    for left_out in range(1, len(clocks) - 1):
        kept = np.arange(len(clocks)) != left_out
        time_s = ClockLaw.fit(time_terms, clocks[kept], times[:, kept]).at(clocks[left_out])[0]
        value, truth = time_s, times[0, left_out]
        if objective != "time":
            power_w = ClockLaw.fit(power_terms, clocks[kept], powers[:, kept]).at(clocks[left_out])[0]
            value = objective_of(objective, time_s, power_w * time_s)
            truth = objective_of(objective, truth, powers[0, left_out] * truth)
        worst = max(worst, abs(value / truth - 1))
    return worst


def _promised(candidates: list[NetworkPrediction], objective: str) -> list[float]:
    """Values of one GPU's candidates; at points never measured as bad as the law may be wrong."""
    measured = {candidate.point: candidate for candidate in candidates if candidate.measured_point}
    values = []
    for candidate in candidates:
        value = _value(candidate, objective)
        if not candidate.measured_point:
            around = neighbours(OperatingPoint.parse(candidate.point), list(measured))
            value *= 1 + law_error([measured[name] for name in around], objective)
        values.append(value)
    return values


def _value(candidate: NetworkPrediction, objective: str) -> float:
    energy_j = candidate.expected.energy_j
    if energy_j is None and objective != "time":
        return math.inf
    return float(objective_of(objective, candidate.expected.time_s, energy_j))


def _closest(candidates: list[NetworkPrediction]) -> str:
    known = [candidate for candidate in candidates if candidate.expected.power_w is not None]
    if not known:
        return "no mean power is known, since no idle power was calibrated"
    least = min(known, key=lambda candidate: candidate.expected.power_w or math.inf)
    return f"the least mean power is {least.expected.power_w:.0f} W, on {least.gpu} at {least.point}"


def _known_regret(validation_dir: Path, best: NetworkPrediction, objective: str) -> dict[str, Any] | None:
    path = validation_dir / VALIDATION_FILE
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        entries = report["gpus"].get(best.gpu, {}).get("regret", [])
        wanted = {"pass": best.pass_, "tf32": best.tf32, "objective": objective}
        return next((entry for entry in entries if {key: entry[key] for key in wanted} == wanted), None)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFileError(f"{path}: not a validation ({error}). Run `clockwatt validate` again.") from error
