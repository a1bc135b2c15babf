"""Predicted costs: from a predictor at its training points, from the clock model at others, or host time alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import GpuSpec
from clockwatt.predict.composition.overheads import Overheads
from clockwatt.predict.costs.interface import Costs, CostSource, Floats
from clockwatt.predict.evaluation.errors import ANY_CLASS, scale_of
from clockwatt.predict.features import OPERATION_CLASS, Setting, features_at, sm_clock_mhz
from clockwatt.predict.models.clock_law import POWER_CLOCKS, CostLaw, neighbours
from clockwatt.predict.models.extrapolation import Ignorance
from clockwatt.predict.models.predictors import TARGETS, CostPredictor
from clockwatt.predict.training_rows import Samples
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    ENERGY_DYNAMIC_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_HOST_CORRECTED,
)
from clockwatt.schema.execution import ExecutionSettings

_LAW_MISSES = 0.05
"""Half of the relative 90 % interval of costs that the clock model extrapolates."""
_LEAST_FACTOR = 1e-3
_HOST_RATIO = 3.0
"""Possible ratio of actual to predicted host time of a call of a class without measurements."""
_LEAST_S = 1e-6
_DEVICE, _HOST = TARGETS.index(TIME_DEVICE_CORRECTED), TARGETS.index(TIME_HOST_CORRECTED)
_GROWING = (_DEVICE, TARGETS.index(BACK_TO_BACK), TARGETS.index(ENERGY_DYNAMIC_CORRECTED))


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
        Factors to the ends of their intervals for a scale of 1, from `interface.interval_factors`.
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
