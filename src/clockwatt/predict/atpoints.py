"""Costs of operations at several operating points at once, learnt or not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import GpuSpec
from clockwatt.predict.clocklaw import POWER_CLOCKS
from clockwatt.predict.features import Setting, features_at
from clockwatt.predict.interpolate import CostLaw, neighbours
from clockwatt.predict.measured import MeasuredCosts
from clockwatt.predict.predictors import TARGETS, CostPredictor

Floats = NDArray[np.float64]


class CostsAt:
    """Costs of the same operations at any operating point: by the forest where it learnt, else by the clock law.

    Parameters
    ----------
    forest
        Of the GPU, in one pass.
    spec
        The GPU.
    operations
        Their features, indexed by operation id.
    learnt_points
        What the forest learnt from.
    tf32
        Whether TF32 may be used.
    measured
        What was measured, which the law prefers to what the forest says; None to have all predicted.
    """

    def __init__(
        self,
        forest: CostPredictor,
        spec: GpuSpec,
        operations: pd.DataFrame,
        learnt_points: list[str],
        *,
        tf32: bool,
        measured: MeasuredCosts | None,
    ) -> None:
        self._forest, self._spec, self._operations = forest, spec, operations
        self._learnt_points, self._tf32, self._measured = learnt_points, tf32, measured

    def points(self, points: Sequence[str]) -> dict[str, Floats]:
        """Operating point to costs; shape (operations, targets). The forest is asked once, for all of them."""
        around = {point: self._lawful(point) for point in points}
        asked = dict.fromkeys(name for point in points for name in around[point] or (point,))
        known = self._by_forest([*asked])
        laws = {
            names: CostLaw({self._setting(name).sm_clock_mhz: known[name] for name in names})
            for names in dict.fromkeys(around.values())
            if names
        }
        found = {}
        for point in points:
            names = around[point]
            costs = laws[names].at(self._setting(point).sm_clock_mhz) if names else known[point]
            found[point] = costs[list(TARGETS)].to_numpy(float)
        return found

    def _lawful(self, point: str) -> tuple[str, ...]:
        """Learnt points that the clock law leads from to this one; empty where the forest is to answer itself."""
        wanted = OperatingPoint.parse(point)
        around = tuple(neighbours(wanted, self._learnt_points))
        if point in self._learnt_points or len(around) < POWER_CLOCKS or wanted.sm_clock_mhz is None:
            return ()
        return around

    def _by_forest(self, points: Sequence[str]) -> dict[str, pd.DataFrame]:
        costs = self._forest.predict(features_at(self._operations, *(self._setting(point) for point in points)))
        each = len(self._operations)
        found = {}
        for number, point in enumerate(points):
            found[point] = costs.iloc[number * each : (number + 1) * each].copy()
            if self._measured is not None:
                known = self._measured.look_up(self._operations.index, point, tf32=self._tf32)
                lawful = (known.costs > 0).all(axis=1)  # the law is one of ratios
                found[point].iloc[np.flatnonzero(known.known)[lawful]] = known.costs[lawful]
        return found

    def _setting(self, point: str) -> Setting:
        return Setting(self._spec, OperatingPoint.parse(point), self._tf32)
