"""Model of how errors of operations add up in a pass of a network.

Errors of different operations are correlated. Let `a` be the root of the sum of squares of each operation's share times
its error, and `b` the sum of these products. The variance of the pass is (1 − r)·a² + r·b² with one correlation `r`,
estimated from held-out networks. Where these err less than their operations imply, a factor makes the errors of
operations smaller. Added to them are the errors of composition, of gaps between short kernels, and of card and host
effects. Held-out networks also give the interval of a pass for a scale of 1. All errors here are standard deviations of
logarithms.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.io.resources import resource
from clockwatt.predict.composition.networks import Catalogue
from clockwatt.predict.evaluation.errors import (
    COVERAGE,
    NORMAL_90,
    Floats,
    Interval,
    grouped_interval,
    interval_score,
    left_out_coverage,
)
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    BY_CORRECTED,
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_HOST_CORRECTED,
)
from clockwatt.schema.records import INFERENCE, TRAINING

DEVICE, HOST, DYNAMIC = TIME_DEVICE_CORRECTED, TIME_HOST_CORRECTED, ENERGY_DYNAMIC_CORRECTED
ADDED = (DEVICE, HOST, DYNAMIC)
"""Costs that add up over the operations of a pass."""
ERROR_OF = {DEVICE: "error_time_device", HOST: "error_time_host", DYNAMIC: "error_energy_dynamic"}
"""Columns of the expected relative error of each, one standard deviation, where it is predicted."""

LOOKED_UP_ERROR = 0.02
"""Error of a measured operation on another card at another time."""
CARD_ENERGY = 0.04
"""Card effect on power, among cards of one model."""
CARD_TIME = 0.02
"""Card effect on device time, among cards of one model."""
GAP_S = {INFERENCE: 1e-7, TRAINING: 5e-7}
"""Error of the gap before a call in a pass, in s per call: only gaps between repetitions of one call were measured. In
training a call is several kernels. See `docs/results/measure-missing.md`."""

_LEAST_FACTOR = 0.1  # of an interval whose lower end is zero or nearly
ASSUMED_CORRELATION = 0.25
ASSUMED_COMPOSITION = 0.03
_LEAST_CORRELATION = 0.02
_LEAST_SCALE, _SCALE_STEP = 0.2, 0.005
_NOMINAL_NETWORKS = 30
"""Networks that err as their operations imply, counted beside those held out: a few alike networks prove little."""
_SUM_MISSES = 0.1
"""Error of a pass as a sum of back-to-back times: too low if host-bound, too high at the power limit."""
NORMAL = Interval(float(np.exp(-NORMAL_90)), float(np.exp(NORMAL_90)), "operations")


@dataclass(frozen=True)
class Added:
    """Sum of the errors of a pass's operations, for one cost.

    Attributes
    ----------
    independent, together
        Error of the sum if the errors of operations are independent, and if they are fully correlated; `a` and `b`
        above.
    gaps
        Error of the sum from the gaps between operations.
    """

    independent: float
    together: float
    gaps: float = 0.0

    @classmethod
    def of(cls, costs: Floats, errors: Floats) -> Added:
        """Make it from each operation's cost in all of its calls, and its error; shape (operations,)."""
        total = float(costs.sum())
        if not total > 0:
            return cls(0.0, 0.0)
        parts = costs * errors / total
        return cls(float(np.sqrt(np.sum(parts**2))), float(parts.sum()))

    def error(self, correlation: float) -> float:
        """Error of the sum."""
        squares = (1 - correlation) * self.independent**2 + correlation * self.together**2
        return float(np.sqrt(squares + self.gaps**2))


def added_errors(
    mean: Floats, factors: Floats, calls: Floats, *, gap_s: float = 0.0, energy: bool = True
) -> dict[str, Added]:
    """Add up the errors of operations in a pass, for each of `ADDED` whose errors are known.

    Parameters
    ----------
    mean, factors
        Costs of the operations and the factors to the ends of their 90 % intervals, as `costs.Costs` has
        them; shape (operations, targets) and (operations, targets, 2).
    calls
        How often each is called; shape (operations,).
    gap_s
        Of `GAP_S`, where the operations are a network's pass.
    energy
        Whether every operation has an energy.
    """
    found = {}
    for target in ADDED:
        column = TARGETS.index(target)
        cost = mean[:, column] * calls
        lower, upper = np.log(np.maximum(factors[:, column], _LEAST_FACTOR)).T
        error = (upper - lower) / (2 * NORMAL_90)
        matters = cost > 0
        if np.isfinite(error[matters]).all() and (target != DYNAMIC or energy):
            found[target] = Added.of(cost[matters], error[matters])
            if target == DEVICE and matters.any():
                found[target] = replace(found[target], gaps=gap_s * float(calls[matters].sum() / cost[matters].sum()))
    return found


@dataclass(frozen=True)
class PassErrors:
    """Model of how errors of operations add up in passes on a GPU.

    Attributes
    ----------
    correlation
        Between the errors of two operations of a network.
    composition_device, composition_host, composition_energy
        Error of device time, host time and energy of networks composed from measured operations.
    scale_device, scale_energy
        Factor on the errors of device time and energy that a pass has from its operations, see `_scale`.
    device, host, energy
        Intervals for a pass whose error is 1, from held-out networks, and no narrower than errors of operations.
    """

    correlation: float = ASSUMED_CORRELATION
    composition_device: float = ASSUMED_COMPOSITION
    composition_host: float = ASSUMED_COMPOSITION
    composition_energy: float = ASSUMED_COMPOSITION
    scale_device: float = 1.0
    scale_energy: float = 1.0
    device: Interval = NORMAL
    host: Interval = NORMAL
    energy: Interval = NORMAL

    def ends(self, expected: Any, added: Mapping[str, Added]) -> dict[str, tuple[float, float]]:
        """Return lower and upper ends of `time_s`, `device_s`, `host_s`, `energy_j` and `power_w` on a known host.

        Parameters
        ----------
        expected
            `pipeline.Composition`.
        added
            Of each of `ADDED`.
        """
        found = {
            "device_s": self.device.around(expected.device_s, self.device_error(added)),
            "host_s": self.host.around(expected.host_s, self.host_error(added)),
        }
        longer = expected.time_s / max(expected.device_s, expected.host_s, 1e-12)  # at the power limit
        low, high = (
            longer * max(device_end, host_end)
            for device_end, host_end in zip(found["device_s"], found["host_s"], strict=True)
        )
        found = {"time_s": (low, high)} | found
        if expected.energy_j is not None and expected.energy_j > 0 and DYNAMIC in added:
            energy = self.energy_error(expected, added)
            found["energy_j"] = self.energy.around(expected.energy_j, energy)
            found["power_w"] = self.energy.around(expected.power_w, energy)
        return found

    def device_half_width(self, added: Mapping[str, Added]) -> float:
        """Return half the 90 % interval of the device time of a pass, relative to it."""
        lower, upper = self.device.factors(self.device_error(added))
        return float(upper - lower) / 2

    def dynamic_half_width(self, added: Mapping[str, Added]) -> float:
        """Return half the 90 % interval of the dynamic energy of a pass on a known card, relative to it."""
        of_operations = self.scale_energy * added[DYNAMIC].error(self.correlation)
        lower, upper = self.energy.factors(float(np.hypot(of_operations, self.composition_energy)))
        return float(upper - lower) / 2

    def device_error(self, added: Mapping[str, Added]) -> float:
        """Return the error of the device time of a pass."""
        of_operations, rest = self.device_parts(added)
        return float(np.hypot(self.scale_device * of_operations, rest))

    def device_parts(self, added: Mapping[str, Added]) -> tuple[float, float]:
        """Return the errors of device time from operations, unscaled, and from all else."""
        return added[DEVICE].error(self.correlation), float(np.hypot(self.composition_device, CARD_TIME))

    def host_error(self, added: Mapping[str, Added]) -> float:
        """Return the error of the host time of a pass."""
        return float(np.hypot(added[HOST].error(self.correlation), self.composition_host))

    def energy_error(self, expected: Any, added: Mapping[str, Added]) -> float:
        """Return the error of the energy of a pass."""
        of_operations, rest = self.energy_parts(expected, added)
        return float(np.hypot(self.scale_energy * of_operations, rest))

    def energy_parts(self, expected: Any, added: Mapping[str, Added]) -> tuple[float, float]:
        """Return the errors of energy from operations, unscaled, and from all else."""
        idle = 1 - min(max(expected.energy_dynamic_j / expected.energy_j, 0.0), 1.0)
        of_time = self.host_error if expected.host_s > expected.device_s else self.device_error
        rest = (idle * of_time(added), self.composition_energy, CARD_ENERGY)
        return (1 - idle) * added[DYNAMIC].error(self.correlation), float(np.sqrt(np.sum(np.square(rest))))


MODES_FILE = "modes/errors.json"


@functools.cache
def mode_errors() -> dict[str, dict[str, float]]:
    """Return what passes err by in modes other than eager, by mode and quantity; see `in_mode`."""
    content: dict[str, dict[str, float]] = json.loads(resource(MODES_FILE).read_text(encoding="utf-8"))
    return content


def in_mode(ends: Mapping[str, tuple[float, float]], expected: Any, mode: str) -> dict[str, tuple[float, float]]:
    """Add the error of a mode to the 90 % intervals of a pass, as independent errors add up.

    `benchmarks/compiled/intervals.py` fits it to measured passes: half the width of a 90 % interval of the logarithm.

    Parameters
    ----------
    ends
        Quantities to the ends of their intervals, from the errors of operations.
    expected
        `pipeline.Composition`.
    mode
        As networks run, see `schema.execution.MODES`.
    """
    found = dict(ends)
    for name, error in mode_errors().get(mode, {}).items():
        if name in found and (value := getattr(expected, name)):
            lower, upper = np.hypot(np.log(np.array(found[name]) / value), error) * (-1, 1)
            found[name] = float(value * np.exp(lower)), float(value * np.exp(upper))
    return found


def ends_of_sum(
    expected: Any, mean: Floats, factors: Floats, calls: Floats, *, is_network: bool
) -> dict[str, tuple[float, float]]:
    """Return ends of intervals of `time_s`, `energy_j` and `power_w` of a sum of back-to-back times and energies.

    Parameters
    ----------
    expected
        `pipeline.Composition`.
    mean, factors, calls
        As in `added_errors`.
    is_network
        Whether it is a network's pass, for which such a sum has a further error, or a list of operations.
    """
    lower, upper = np.moveaxis(np.log(np.maximum(factors, _LEAST_FACTOR)), 2, 0)
    errors = (upper - lower) / (2 * NORMAL_90)
    time, power = (TARGETS.index(name) for name in (BACK_TO_BACK, POWER_CORRECTED))
    seconds = mean[:, time] * calls
    joules = seconds * mean[:, power]

    def added(costs: Floats, target: int) -> float:
        matters = costs > 0
        return Added.of(costs[matters], errors[matters, target]).error(ASSUMED_CORRELATION)

    of_time = float(np.hypot(added(seconds, time), _SUM_MISSES if is_network else 0.0))
    of_power = float(np.hypot(added(joules, power), CARD_ENERGY))
    found = {}
    for name, error in (("time_s", of_time), ("energy_j", np.hypot(of_time, of_power)), ("power_w", of_power)):
        value = getattr(expected, name)
        if value is not None and np.isfinite(error):
            found[name] = NORMAL.around(value, float(error))
    return found


def estimate_pass_errors(
    composed: pd.DataFrame, measured: pd.DataFrame, left_out: pd.DataFrame, catalogue: Catalogue
) -> tuple[PassErrors, dict[str, Any]]:
    """Fit to held-out networks: the correlation between operations, and intervals for passes of an error of 1.

    Parameters
    ----------
    composed, measured
        Complete compositions of one pass with the network held out, and from measured operations; from
        `networks.compositions`.
    left_out
        Operations of the held-out networks, `LEFT_OUT_SCHEMA`, with the columns of `ERROR_OF`.
    catalogue
        What networks call.

    Returns
    -------
    errors
        The fitted model.
    report
        Intervals for an error of 1; their half-widths, and coverage and interval score on networks held out in turn.
    """
    of_network = dict(iter(left_out.groupby(["network", "point"])))
    measured_under = set(left_out["execution"])
    pass_ = str(left_out["pass"].iloc[0])
    found: list[tuple[Any, dict[str, Added]]] = []
    seen = []
    for row in composed.itertuples(index=False):
        calls = catalogue.calls[str(row.network_id), pass_]["operation_id"].value_counts()
        rows = of_network.get((row.network, row.point), left_out.iloc[:0])
        rows = rows[rows["operation_id"].isin(calls.index)]
        settings = catalogue.settings(pass_, str(row.execution), measured_under)
        rows = rows[rows["execution"].to_numpy(object) == rows["operation_id"].map(settings).to_numpy(object)]
        found.append((row, _added(rows, calls, GAP_S[pass_])))
        seen.append(_missed(rows[rows["unseen"] & rows["learnt"]], calls))
    from_measured = _compared(measured)
    errors = PassErrors(
        correlation=_correlation([one for one in seen if one is not None]),
        composition_device=_composition(*from_measured["device_s"]),
        composition_host=_composition(*from_measured["host_s"]),
        composition_energy=_composition(*from_measured["energy_j"]),
    )
    networks, compared = np.array([row.network for row, _ in found], dtype=object), _compared(composed)
    parts = [errors.device_parts(added) for _, added in found]
    errors = replace(errors, scale_device=_scale(*compared["device_s"], parts, networks))
    # energies of host-bound passes err for their host, too
    device_bound = [number for number, (row, _) in enumerate(found) if row.host_s <= row.device_s]
    parts = [errors.energy_parts(*found[number]) for number in device_bound]
    whole, stated = (values[device_bound] for values in compared["energy_j"])
    errors = replace(errors, scale_energy=_scale(whole, stated, parts, networks[device_bound]))
    scales = {
        "device_s": [errors.device_error(added) for _, added in found],
        "host_s": [errors.host_error(added) for _, added in found],
        "energy_j": [errors.energy_error(row, added) for row, added in found],
    }
    report: dict[str, Any] = {"correlation": errors.correlation, "scales": (errors.scale_device, errors.scale_energy)}
    intervals = dict.fromkeys(scales, NORMAL)
    for name, (whole, stated) in compared.items():
        known = (whole > 0) & (stated > 0)
        if known.any():
            residuals, scale = np.log(whole[known] / stated[known]), np.array(scales[name])[known]
            intervals[name], report[name] = _judged(residuals, scale, networks[known])
    device, host, energy = intervals.values()
    return replace(errors, device=device, host=host, energy=energy), report


def _compared(rows: pd.DataFrame) -> dict[str, tuple[Floats, Floats]]:
    """Return measured and composed values of passes; nan where not known.

    The host time of a pass is its time if it is host-bound, else not known. A device at the power limit takes longer,
    by the factor that the composed time has.
    """
    host_bound = rows["host_s"] > rows["device_s"]
    longer = rows["time_s"] / rows[["device_s", "host_s"]].max(axis=1)
    pairs = {
        "device_s": (rows["measured_device_s"], longer * rows["device_s"]),
        "host_s": (rows["measured_time_s"].where(host_bound), rows["time_s"]),
        "energy_j": (rows["measured_energy_j"], rows["energy_j"]),
    }
    return {name: (whole.to_numpy(float), stated.to_numpy(float)) for name, (whole, stated) in pairs.items()}


def _added(rows: pd.DataFrame, calls: pd.Series, gap_s: float) -> dict[str, Added]:
    counts = rows["operation_id"].map(calls).to_numpy(float)
    found = {}
    for target in ADDED:
        costs = rows[BY_CORRECTED[target].predicted].to_numpy(float) * counts
        known = np.isfinite(costs)
        found[target] = Added.of(costs[known], rows[ERROR_OF[target]].to_numpy(float)[known])
    device_s = float((rows[BY_CORRECTED[DEVICE].predicted].to_numpy(float) * counts).sum())
    if device_s > 0:
        found[DEVICE] = replace(found[DEVICE], gaps=gap_s * float(counts.sum()) / device_s)
    return found


def _missed(rows: pd.DataFrame, calls: pd.Series) -> tuple[float, Added] | None:
    """Return log(measured / predicted) device time of operations that only the network has, and the expected error."""
    counts = rows["operation_id"].map(calls).to_numpy(float)
    measured, predicted = (
        rows[name].to_numpy(float) * counts for name in (DEVICE, BY_CORRECTED[DEVICE].predicted)
    )  # fmt: skip
    known = np.isfinite(measured) & np.isfinite(predicted)
    if known.sum() < 2:
        return None
    missed = float(np.log(measured[known].sum() / predicted[known].sum()))
    return missed, Added.of(predicted[known], rows[ERROR_OF[DEVICE]].to_numpy(float)[known])


def _correlation(seen: list[tuple[float, Added]]) -> float:
    """Estimate it by the method of moments; each network has the same weight, however large its errors are."""
    if not seen:
        return ASSUMED_CORRELATION
    missed = np.array([one[0] for one in seen])
    independent, together = (np.array([getattr(one[1], name) for one in seen]) for name in ("independent", "together"))
    varies = together**2 - independent**2
    weight = varies / np.maximum(together, 1e-9) ** 4
    estimated = float(np.sum(weight * (missed**2 - independent**2)) / max(np.sum(weight * varies), 1e-9))
    return min(max(estimated, _LEAST_CORRELATION), 1.0)


def _composition(whole: Floats, stated: Floats) -> float:
    """Return the error of networks composed from measured operations: root mean square, without extremes."""
    known = (whole > 0) & (stated > 0)
    if known.sum() < 3:
        return ASSUMED_COMPOSITION
    return float(np.quantile(np.abs(np.log(whole[known] / stated[known])), COVERAGE) / NORMAL_90)


def _scale(whole: Floats, stated: Floats, parts: list[tuple[float, float]], networks: NDArray[np.object_]) -> float:
    """Return the factor on errors of operations with which nine in ten held-out networks lie in their interval.

    At most 1. `_NOMINAL_NETWORKS` pull it towards 1.

    Parameters
    ----------
    whole, stated, networks
        Measured and composed values of passes, and whose they are; shape (passes,).
    parts
        Error of each pass from its operations, and from all else.
    """
    known = (whole > 0) & (stated > 0)
    if not known.any():
        return 1.0
    residuals, groups = np.log(whole[known] / stated[known]), networks[known]
    of_operations, rest = np.array(parts)[known].T

    def held(scale: float) -> bool:
        interval = grouped_interval(residuals / np.hypot(scale * of_operations, rest), groups)
        return interval.upper <= NORMAL.upper

    if not held(1.0):
        return 1.0
    low, high = _LEAST_SCALE, 1.0
    while high - low > _SCALE_STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if held(middle) else (middle, high)
    count = len(set(groups))
    return 1 - (1 - high) * count / (count + _NOMINAL_NETWORKS)


def _interval(standard: Floats, groups: NDArray[np.object_]) -> Interval:
    """Return the interval for an error of 1, no narrower than for normal errors: `_scale` makes the errors smaller."""
    interval = grouped_interval(standard, groups)
    return replace(interval, lower=min(interval.lower, NORMAL.lower), upper=max(interval.upper, NORMAL.upper))


def _judged(residuals: Floats, scales: Floats, groups: NDArray[np.object_]) -> tuple[Interval, dict[str, Any]]:
    """Return the interval, and its quality on networks held out in turn."""
    interval = _interval(residuals / scales, groups)
    half = np.log(interval.upper) * scales
    return interval, {
        **asdict(interval),
        "left_out_coverage": left_out_coverage(residuals / scales, groups, _interval),
        "median_half_width": float(np.median(np.expm1(half))),
        "interval_score": interval_score(residuals, -half, half),
    }
