"""Times since the start, and readings on an even grid."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

GAP = 10.0
"""Readings further apart than so many median distances leave a gap: what was between them is not known."""

Kind = Literal["cubic", "monotone"]


def checked(time_s: ArrayLike, value: ArrayLike) -> tuple[Array, Array]:
    """Return the times and values of the readings that are there, as arrays, ascending.

    Of readings at the same time the last one is taken, and what is missing (NaN) is left out.

    Raises
    ------
    ValueError
        If the two are not of one length, or not one-dimensional.
    """
    times, values = np.asarray(time_s, float), np.asarray(value, float)
    if times.ndim != 1 or times.shape != values.shape:
        raise ValueError(f"times of shape {times.shape} and values of shape {values.shape} do not belong together")
    there = np.isfinite(times) & np.isfinite(values)
    times, values = times[there], values[there]
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    last = np.append(np.diff(times) > 0, True) if len(times) else np.zeros(0, bool)
    return times[last], values[last]


def relative_time_s(time: ArrayLike, start: float | None = None, *, unit_s: float = 1.0) -> Array:
    """Return the time since the start, in s.

    Parameters
    ----------
    time
        Times in any unit, such as µs since the epoch.
    start
        What counts as 0, in the same unit; the earliest time that is known if None.
    unit_s
        That unit in s, such as 1e-6.

    Returns
    -------
    Array of the shape of `time`; empty if `time` is.
    """
    # whole numbers are subtracted as such: µs since the epoch as a float would lose a quarter of one
    times: NDArray[Any] = np.asarray(time)
    if times.size == 0:
        return np.zeros(times.shape)
    if times.dtype.kind == "u":
        times = times.astype(np.int64)  # what is before the start is negative, and wraps nowhere
    if start is None:
        known = times[~np.isnan(times)]
        start = known.min() if known.size else 0
    return np.asarray((times - start) * unit_s, float)


def measured_rate_hz(time_s: ArrayLike) -> float:
    """How often a sensor was read, in Hz: one over the median distance of its readings; NaN for fewer than two."""
    times = np.asarray(time_s, float)
    times = np.unique(times[np.isfinite(times)])
    return float(1 / np.median(np.diff(times))) if len(times) > 1 else float("nan")


def joined(starts: ArrayLike, ends: ArrayLike, *, gap: float = 0.0) -> tuple[Array, Array]:
    """Return where spans begin and end, those as one that overlap or have at most `gap` between them.

    Parameters
    ----------
    starts, ends
        Of each span, in any order and unit; shape (spans,) each.

    Returns
    -------
    tuple of arrays
        Starts and ends of what is joined, in order.
    """
    order = np.argsort(np.asarray(starts, np.float64), kind="stable")
    begun = np.asarray(starts, np.float64)[order]
    until = np.maximum.accumulate(np.asarray(ends, np.float64)[order])
    apart = begun[1:] > until[:-1] + gap
    return begun[np.concatenate([[True], apart])[: len(begun)]], until[np.concatenate([apart, [True]])[: len(until)]]


def resample(
    time_s: ArrayLike, value: ArrayLike, *, rate_hz: float | None = None, kind: Kind = "cubic"
) -> pd.Series[float]:
    """Return the readings on an even grid, by cubic interpolation between them.

    The grid begins at the first reading and ends at or before the last: nothing is extrapolated. With three readings
    the curve is a parabola, with two a line. Across a gap, where readings are more than `GAP` median distances apart,
    nothing is interpolated.

    Parameters
    ----------
    time_s
        Times of the readings in s, in any order, of shape (n,).
    value
        The readings, of shape (n,); missing ones are NaN.
    rate_hz
        Rate of the grid in Hz; twice that of the readings if None.
    kind
        `cubic`: a spline, which swings beyond the readings where they jump; `monotone`: cubic pieces that stay between
        neighbouring readings, as a share, a clock or an energy must.

    Returns
    -------
    Values with an index `time_s`, NaN in gaps; empty for fewer than two readings.

    Raises
    ------
    ValueError
        If the arrays do not belong together, or the rate is not above 0 and finite.
    """
    times, values = checked(time_s, value)
    if len(times) < 2:
        return pd.Series(np.zeros(0), index=pd.Index(np.zeros(0), name="time_s"))
    rate = 2 * measured_rate_hz(times) if rate_hz is None else rate_hz
    if not 0 < rate < np.inf:
        raise ValueError(f"a rate of {rate} Hz: it must be above 0 and finite")
    # the last point may miss the last reading by rounding alone
    grid = np.minimum(times[0] + np.arange(int((times[-1] - times[0]) * rate + 1e-9) + 1) / rate, times[-1])
    curve = np.full(len(grid), np.nan)
    steps = np.diff(times)
    edges = [0, *(np.flatnonzero(steps > GAP * np.median(steps)) + 1), len(times)]
    for first, end in itertools.pairwise(edges):
        inside = (grid >= times[first]) & (grid <= times[end - 1])
        if inside.any():
            curve[inside] = _interpolated(times[first:end], values[first:end], grid[inside], kind)
    return pd.Series(curve, index=pd.Index(grid, name="time_s"))


def _interpolated(times: Array, values: Array, grid: Array, kind: Kind) -> Array:
    """Interpolate a stretch without gaps; a single reading is constant."""
    from scipy.interpolate import CubicSpline, PchipInterpolator  # half a second that other functions here do not need

    if len(times) == 1:
        return np.full(len(grid), values[0])
    curve = CubicSpline(times, values) if kind == "cubic" else PchipInterpolator(times, values)
    return np.asarray(curve(grid), float)
