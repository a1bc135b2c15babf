"""Intervals of forecasts from what was missed in runs left out (split conformal), wider where the load changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.studies.thermal.traces import Array

LEVEL = 0.9
KINDS = ("steady", "changing")
"""Kinds of load over the last minute: see `inputs.is_changing`."""

_LEAST_ROWS = 30
_LEAST_RUNS = 2


@dataclass(frozen=True)
class Misses:
    """Errors of a model in held-out runs.

    Attributes
    ----------
    errors_c
        Forecast minus truth; shape (rows, horizons), NaN where there was none.
    changing
        Whether the load had changed; shape (rows,).
    run
        Number of the run that each row is of; shape (rows,).
    """

    errors_c: Array
    changing: NDArray[np.bool_]
    run: NDArray[np.intp]

    @classmethod
    def joined(cls, parts: Sequence[Misses]) -> Misses:
        """Join several into one."""
        return cls(
            np.concatenate([part.errors_c for part in parts]), np.concatenate([part.changing for part in parts]),
            np.concatenate([part.run for part in parts]),
        )  # fmt: skip


@dataclass(frozen=True)
class Intervals:
    """Half-widths in K that contain the share `level` of the errors.

    Attributes
    ----------
    level
        Share of truths that are to lie within.
    half_widths_k
        Of each kind of load; shape (2, horizons), NaN where too few runs were held out to estimate them.
    """

    level: float
    half_widths_k: Array

    @classmethod
    def of(cls, misses: Misses, level: float = LEVEL) -> Intervals:
        """Compute intervals from errors; runs have equal weights, since runs are independent and seconds are not."""
        horizons = misses.errors_c.shape[1]
        widths = np.full((len(KINDS), horizons), np.nan)
        for column in range(horizons):
            missed = np.abs(misses.errors_c[:, column])
            together = _quantile(missed, misses.run, level)
            for kind in range(len(KINDS)):
                of_kind = misses.changing == bool(kind)
                own = _quantile(missed[of_kind], misses.run[of_kind], level)
                widths[kind, column] = own if np.isfinite(own) else together
        return cls(level, widths)

    def around(self, changing: NDArray[np.bool_]) -> Array:
        """Return the half-widths of each row; shape (rows, horizons)."""
        return np.asarray(self.half_widths_k[changing.astype(int)])

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary for JSON; unknown values are null."""
        widths = [[float(width) if np.isfinite(width) else None for width in kind] for kind in self.half_widths_k]
        return {"level": self.level, "half_widths_k": dict(zip(KINDS, widths, strict=True))}

    @classmethod
    def from_json(cls, described: dict[str, Any], horizons: int) -> Intervals:
        """Read the output of `to_json`.

        Raises
        ------
        ValueError, KeyError, TypeError
            If it is something else.
        """
        widths = [[np.nan if w is None else float(w) for w in described["half_widths_k"][kind]] for kind in KINDS]
        if any(len(kind) != horizons for kind in widths):
            raise ValueError("intervals and horizons differ in number")
        return cls(float(described["level"]), np.array(widths, float).reshape(len(KINDS), horizons))


def coverage(misses: Misses, intervals: Intervals) -> Array:
    """Return the share of truths within the intervals at each horizon; NaN where there are none; shape (horizons,)."""
    widths = intervals.around(misses.changing)
    known = np.isfinite(misses.errors_c) & np.isfinite(widths)
    inside = known & (np.abs(np.where(known, misses.errors_c, np.inf)) <= np.where(known, widths, -1.0))
    count = known.sum(axis=0)
    return np.asarray(np.divide(inside.sum(axis=0), count, out=np.full(len(count), np.nan), where=count > 0))


def _quantile(missed: Array, run: NDArray[np.intp], level: float) -> float:
    """Quantile at which each run weighs the same; the fewer there are, the further beyond the level that is wanted."""
    known = np.isfinite(missed)
    missed, run = missed[known], run[known]
    runs, where, counts = np.unique(run, return_inverse=True, return_counts=True)
    if len(missed) < _LEAST_ROWS or len(runs) < _LEAST_RUNS:
        return float("nan")
    order = np.argsort(missed)
    weight = np.cumsum((1 / counts[where])[order]) / len(runs)
    place = int(np.searchsorted(weight, level + (1 - level) / (len(runs) + 1) - 1e-12))
    return float(missed[order][min(place, len(missed) - 1)])
