"""Costs of operations: the values and their intervals, how sources are combined, and the sources that predict.

A predictor knows its training points, the clock model others; of calls without work on the device, host time alone is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import GpuSpec
from clockwatt.predict.composition.pipeline import COST_COLUMNS, Overheads
from clockwatt.predict.evaluation.errors import ANY_CLASS, Interval, scale_of
from clockwatt.predict.features import OPERATION_CLASS, Setting, features_at, sm_clock_mhz
from clockwatt.predict.models.clock_law import POWER_CLOCKS, CostLaw, neighbours
from clockwatt.predict.models.extrapolation import Ignorance
from clockwatt.predict.models.predictors import TARGETS, CostPredictor
from clockwatt.predict.models.training_data import Samples
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    COSTS,
    ENERGY_DYNAMIC_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_HOST_CORRECTED,
)
from clockwatt.schema.execution import ExecutionSettings

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MEASURED = "measured"
"""Column of predictions: whether the cost of an operation is the measured one."""

_AS_GOOD = 1.012
"""Ratio by which times of twins may differ beyond the ratio of their bandwidths."""
_DEVICE, _HOST = TARGETS.index(TIME_DEVICE_CORRECTED), TARGETS.index(TIME_HOST_CORRECTED)
_WITH_DEVICE = [_DEVICE, TARGETS.index(ENERGY_DYNAMIC_CORRECTED)]
_COMPOSED = [TARGETS.index(name) for name in COST_COLUMNS if name in TARGETS]

_LAW_MISSES = 0.05
"""Half of the relative 90 % interval of costs that the clock model extrapolates."""
_LEAST_FACTOR = 1e-3
_HOST_RATIO = 3.0
"""Possible ratio of actual to predicted host time of a call of a class without measurements."""
_LEAST_S = 1e-6
_GROWING = (_DEVICE, TARGETS.index(BACK_TO_BACK), TARGETS.index(ENERGY_DYNAMIC_CORRECTED))


@dataclass(frozen=True)
class Costs:
    """Costs of operations at one operating point; what is not known is nan.

    Attributes
    ----------
    mean
        Each of `TARGETS`; shape (operations, targets).
    factors
        From the mean to the lower and upper end of the 90 % interval, nan where none is known; shape
        (operations, targets, 2).
    known
        Operations that the source knows here, perhaps not all costs of each: some were measured in time alone; shape
        (operations,).
    measured
        Operations whose costs were measured at this operating point; shape (operations,).
    """

    mean: Floats
    factors: Floats
    known: Mask
    measured: Mask

    @property
    def complete(self) -> bool:
        """Whether all costs that a pass is composed from are known."""
        return bool(self.known.all() and np.isfinite(self.mean[:, _COMPOSED]).all())

    def end(self, side: int) -> Floats:
        """Lower (0) or upper (1) ends of the intervals; shape (operations, targets)."""
        values: Floats = self.mean * self.factors[:, :, side]
        return values

    def pipeline(self, side: int | None = None) -> Floats:
        """`pipeline.COST_COLUMNS`, of the means or of one `end`; shape (operations, 5)."""
        return cost_columns(self.mean if side is None else self.end(side))

    def frame(self, ids: pd.Index) -> pd.DataFrame:
        """As a frame: `TARGETS`, `lower_…` and `upper_…` of each, and `MEASURED`."""
        ends = (self.mean[:, :, None] * self.factors).reshape(len(self.mean), -1)
        bounds = [end for cost in COSTS for end in (cost.lower, cost.upper)]
        values = np.hstack([self.mean, ends])
        return pd.DataFrame(values, index=ids, columns=[*TARGETS, *bounds]).assign(**{MEASURED: self.measured})


class CostSource(Protocol):
    """Source of costs of a fixed list of operations."""

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """Return costs at each of these operating points."""


class FirstKnown:
    """Combine sources: each cost comes from the first that knows it. Later sources are called only if needed."""

    def __init__(self, *sources: CostSource) -> None:
        self._sources = sources

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        first, *others = self._sources
        found = first.at(points)
        for source in others:
            lacking = [point for point in points if not found[point].complete]
            if lacking:
                for point, costs in source.at(lacking).items():
                    found[point] = _filled(found[point], costs)
        return found


class BesideTwin:
    """Keep predicted device times within what a GPU with the same chip and another memory bandwidth allows.

    Dynamic energies scale with them. Intervals keep what the source predicts.

    Parameters
    ----------
    source, twin
        Costs on the GPU, and on the other one, which more is known of.
    bandwidths
        Bandwidth of the other GPU over that of this one.
    known_at
        Whether the other GPU is predicted at an operating point.
    """

    def __init__(
        self, source: CostSource, twin: CostSource, bandwidths: float, known_at: Callable[[str], bool]
    ) -> None:
        self._source, self._twin, self._known_at = source, twin, known_at
        self._least, self._most = min(1.0, bandwidths) / _AS_GOOD, max(1.0, bandwidths) * _AS_GOOD

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        found = self._source.at(points)
        both = [point for point in points if self._known_at(point)]
        others = self._twin.at(both) if both else {}
        return found | {point: self._kept(found[point], others[point]) for point in both}

    def _kept(self, costs: Costs, other: Costs) -> Costs:
        device, twin = costs.mean[:, _DEVICE], other.mean[:, _DEVICE]
        compared = ~costs.measured & (device > 0) & (twin > 0)
        ratio = np.divide(device, twin, out=np.ones_like(device), where=compared)
        moved = np.where(compared, np.clip(ratio, self._least, self._most) / ratio, 1.0)[:, None]
        mean, factors = costs.mean.copy(), costs.factors.copy()
        mean[:, _WITH_DEVICE] *= moved
        ends = factors[:, _WITH_DEVICE]
        factors[:, _WITH_DEVICE, 0] = np.minimum(ends[:, :, 0], ends[:, :, 0] / moved)
        factors[:, _WITH_DEVICE, 1] = np.maximum(ends[:, :, 1], ends[:, :, 1] / moved)
        return Costs(mean, factors, costs.known, costs.measured)


class Among:
    """A source of some operations, embedded in a longer list; the costs of the others are unknown."""

    def __init__(self, source: CostSource, rows: Mask) -> None:
        self._source, self._rows = source, rows

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        found = {}
        for point, costs in self._source.at(points).items():
            wide = unknown(len(self._rows))
            for name in ("mean", "factors", "known", "measured"):
                getattr(wide, name)[self._rows] = getattr(costs, name)
            found[point] = wide
        return found


def cost_columns(targets: Floats) -> Floats:
    """`pipeline.COST_COLUMNS` of values of `TARGETS`; shape (operations, targets) to (operations, 5)."""
    values = dict(zip(TARGETS, targets.T, strict=True))
    values["energy_corrected_j"] = values["power_corrected_w"] * values["time_eager_corrected_s"]
    return np.column_stack([values[name] for name in COST_COLUMNS])


def unknown(operations: int) -> Costs:
    """Return costs of `operations` operations, all unknown."""
    targets = len(TARGETS)
    nothing = np.zeros(operations, dtype=bool)
    return Costs(
        np.full((operations, targets), np.nan), np.full((operations, targets, 2), np.nan), nothing, nothing.copy()
    )


def interval_factors(classes: NDArray[np.object_], intervals: Mapping[str, Mapping[str, Interval]]) -> Floats:
    """Return factors from predictions to the ends of their intervals.

    Parameters
    ----------
    classes
        Operation classes; shape (operations,).
    intervals
        Target to operation class, or `ANY_CLASS`, to interval.

    Returns
    -------
    numpy.ndarray
        Lower and upper factor of each of `TARGETS`, nan where there is no interval; shape (operations, targets, 2).
    """
    none = Interval(np.nan, np.nan)
    names, member = np.unique(classes.astype(str), return_inverse=True)
    factors = np.empty((len(names), len(TARGETS), 2))
    for column, target in enumerate(TARGETS):
        of_classes = intervals.get(target, {})
        chosen = [of_classes.get(name, of_classes.get(ANY_CLASS, none)) for name in names.tolist()]
        factors[:, column] = [(interval.lower, interval.upper) for interval in chosen]
    return factors[member]


def _filled(costs: Costs, others: Costs) -> Costs:
    """Return the costs, with unknown ones replaced by those of `others`."""
    kept = costs.known[:, None] & np.isfinite(costs.mean)
    return Costs(
        np.where(kept, costs.mean, others.mean),
        np.where(kept[:, :, None], costs.factors, others.factors),
        costs.known | others.known,
        np.where(costs.known, costs.measured, others.measured),
    )


class Learnt:
    """Costs from a fitted predictor; the width of their intervals scales with the spread of its trees.

    Parameters
    ----------
    predictor
        Of the GPU, in one pass.
    spec
        The GPU.
    features
        Of the operations, from `features.operation_features`.
    factors
        Factors to the ends of their intervals for a scale of 1, from `interval_factors`.
    execution
        Settings that operations are measured under.
    ignorance
        Of the operations; None where all are of measured classes.
    """

    def __init__(
        self,
        predictor: CostPredictor,
        spec: GpuSpec,
        features: pd.DataFrame,
        factors: Floats,
        *,
        execution: ExecutionSettings,
        ignorance: Ignorance | None = None,
    ) -> None:
        self._predictor, self._spec, self._features = predictor, spec, features
        self._factors, self._execution, self._ignorance = factors, execution, ignorance

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`. The predictor is called once, for all of them."""
        settings = [Setting(self._spec, OperatingPoint.parse(point), self._execution) for point in points]
        predicted, spread = (
            np.split(found.reindex(columns=list(TARGETS)).to_numpy(float), len(settings))
            for found in self._predictor.predict_with_spread(features_at(self._features, *settings))
        )
        return {
            point: _all_known(mean, self._widened(mean, self._factors ** scale_of(spread_there)[:, :, None]))
            for point, mean, spread_there in zip(points, predicted, spread, strict=True)
        }

    def _widened(self, mean: Floats, factors: Floats) -> Floats:
        """Return factors no closer to 1 than the ignorance of the operations; the power keeps its own."""
        known = self._ignorance
        if known is None:
            return factors
        upper = known.ratio + known.longest_s / np.fmax(mean[:, _DEVICE], _LEAST_S)
        wide = factors.copy()
        for column in _GROWING:
            wide[:, column, 0] = np.minimum(factors[:, column, 0], 1 / known.ratio)
            wide[:, column, 1] = np.maximum(factors[:, column, 1], upper)
        on_host = np.minimum(known.ratio, _HOST_RATIO)
        wide[:, _HOST, 0] = np.minimum(factors[:, _HOST, 0], 1 / on_host)
        wide[:, _HOST, 1] = np.maximum(factors[:, _HOST, 1], on_host)
        return wide


class ByClock:
    """Costs at any operating point: from another source at training points, else from the DVFS (clock) model.

    Parameters
    ----------
    source
        Source that the clock model is fitted to; it knows all its operations at the training points.
    learnt_points
        Operating points that the predictor was trained on.
    spec
        The GPU.
    """

    def __init__(self, source: CostSource, learnt_points: Sequence[str], spec: GpuSpec) -> None:
        self._source, self._learnt_points = source, learnt_points
        self._spec = spec

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`. The source is called once, for all operating points needed."""
        around = {point: self._lawful(point) for point in points}
        needed = dict.fromkeys(name for point in points for name in around[point] or (point,))
        known = self._source.at([*needed])
        laws = {
            names: CostLaw(
                {
                    sm_clock_mhz(name, self._spec): pd.DataFrame(known[name].mean, columns=list(TARGETS))
                    for name in names
                }
            )
            for names in dict.fromkeys(around.values())
            if names
        }
        found = {}
        for point, names in around.items():
            if names:
                costs = laws[names].at(sm_clock_mhz(point, self._spec))
                factors = _widened([known[name].factors for name in names])
                found[point] = _all_known(costs[list(TARGETS)].to_numpy(float), factors)
            else:
                found[point] = known[point]
        return found

    def _lawful(self, point: str) -> tuple[str, ...]:
        """Return training points to extrapolate from in clock; empty where the source itself knows this point."""
        wanted = OperatingPoint.parse(point)
        around = tuple(neighbours(wanted, self._learnt_points))
        if point in self._learnt_points or len(around) < POWER_CLOCKS or wanted.sm_clock_mhz is None:
            return ()
        return around


class HostOnly:
    """Costs of calls that do nothing on the device: host time alone, the same at all operating points.

    Parameters
    ----------
    classes
        Operation classes; shape (operations,).
    host_s
        Operation class to host time, from `workless_host_s`.
    """

    def __init__(self, classes: NDArray[np.object_], host_s: Mapping[str, float]) -> None:
        of_any = host_s.get(ANY_CLASS, 0.0)
        values = {name: np.zeros(len(classes)) for name in TARGETS}
        values["time_host_corrected_s"] = values["time_eager_corrected_s"] = np.array(
            [host_s.get(name, of_any) for name in classes], dtype=float
        )
        values["power_corrected_w"] = np.full(len(classes), np.nan)
        self.costs = _all_known(
            np.column_stack([values[name] for name in TARGETS]), np.ones((len(classes), len(TARGETS), 2))
        )

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        return dict.fromkeys(points, self.costs)


def _widened(factors: Sequence[Floats]) -> Floats:
    """Return the mean of the intervals at the fitted clocks, widened by the error of the clock model."""
    ends = np.mean([np.log(np.maximum(one, _LEAST_FACTOR)) for one in factors], axis=0)
    widened: Floats = np.exp(np.array([-1.0, 1.0]) * np.hypot(ends, _LAW_MISSES))
    return widened


def _all_known(mean: Floats, factors: Floats) -> Costs:
    return Costs(mean, factors, np.ones(len(mean), dtype=bool), np.zeros(len(mean), dtype=bool))


def workless_host_s(samples: Samples, pass_: str, overheads: Mapping[str, Overheads]) -> dict[str, float]:
    """Return the median host time of calls without device work, by class, and over all under `ANY_CLASS`.

    Where no host time was measured, use their back-to-back time, else the calibrated time of any call. Empty without a
    calibration.
    """
    rows = samples.rows
    rows = rows[(rows["pass"] == pass_) & ~rows["device_work"].astype(bool)]
    column = "time_host_corrected_s" if rows["time_host_corrected_s"].notna().any() else BACK_TO_BACK
    rows = rows[rows[column].notna()]
    if rows.empty:
        of_calls = [costs.of(pass_).host.call_s for costs in overheads.values()]
        calibrated = [cost for cost in of_calls if cost is not None]
        return {ANY_CLASS: float(np.median(calibrated))} if calibrated else {}
    operations = samples.operations[samples.operations["pass"] == pass_].set_index("operation_id")
    classes = rows["operation_id"].map(operations[OPERATION_CLASS])
    medians = rows[column].astype(float).groupby(classes).median()
    return {
        ANY_CLASS: float(rows[column].median()),
        **{str(key): float(value) for key, value in medians.items()},
    }
