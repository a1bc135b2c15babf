"""How well a fitted curve describes what was measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_R2 = 0.5
"""Coefficient of determination below which no optimum of a fitted curve is reported."""


def r_squared(measured: NDArray[np.float64], fitted: NDArray[np.float64]) -> float:
    """Return the coefficient of determination, NaN where what was measured is constant; shapes (points,)."""
    spread = float(np.sum((measured - measured.mean()) ** 2))
    return 1 - float(np.sum((measured - fitted) ** 2)) / spread if spread > 0 else float("nan")
