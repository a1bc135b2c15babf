"""Costs that were measured, as a source of costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from clockwatt.predict.costs.interface import Costs, unknown
from clockwatt.predict.measured import MeasuredCosts


class LookedUp:
    """Costs of operations that were measured.

    Parameters
    ----------
    measured
        On the GPU, in one pass.
    ids
        Operations.
    tf32
        Whether TF32 may be used.
    positive
        Know only operations of which no cost is zero or less: laws of the clock are laws of ratios.
    """

    def __init__(self, measured: MeasuredCosts, ids: pd.Index, *, tf32: bool, positive: bool = False) -> None:
        self._measured, self._ids = measured, ids
        self._tf32, self._positive = tf32, positive

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        return {point: self._at(point) for point in points}

    def _at(self, point: str) -> Costs:
        found = self._measured.look_up(self._ids, point, tf32=self._tf32)
        costs = unknown(len(self._ids))
        costs.mean[found.known], costs.factors[found.known] = found.costs, found.factors
        known = found.known
        if self._positive:
            known = known & ~(costs.mean <= 0).any(axis=1)
            costs.mean[~known] = np.nan
        return Costs(costs.mean, costs.factors, known, known)
