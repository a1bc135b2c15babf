"""Signals of recorded programs: even grids, averages over runs, energy, phases.

Pure functions on arrays and data frames: nothing is read or written, and nothing depends on which GPU it was. Times are
in s, powers in W, energies in J.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_GAP = 10.0
"""Readings further apart than so many median distances leave a gap: what was between them is not known."""

Kind = Literal["cubic", "monotone"]


def _checked(time_s: ArrayLike, value: ArrayLike) -> tuple[Array, Array]:
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
    the curve is a parabola, with two a line. Across a gap, where readings are more than `_GAP` median distances apart,
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
    times, values = _checked(time_s, value)
    if len(times) < 2:
        return pd.Series(np.zeros(0), index=pd.Index(np.zeros(0), name="time_s"))
    rate = 2 * measured_rate_hz(times) if rate_hz is None else rate_hz
    if not 0 < rate < np.inf:
        raise ValueError(f"a rate of {rate} Hz: it must be above 0 and finite")
    # the last point may miss the last reading by rounding alone
    grid = np.minimum(times[0] + np.arange(int((times[-1] - times[0]) * rate + 1e-9) + 1) / rate, times[-1])
    curve = np.full(len(grid), np.nan)
    steps = np.diff(times)
    edges = [0, *(np.flatnonzero(steps > _GAP * np.median(steps)) + 1), len(times)]
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


def average_runs(
    runs: Sequence[pd.Series[float]], *, rate_hz: float | None = None, kind: Kind = "cubic", hold: bool = False
) -> pd.DataFrame:
    """Return the mean and deviation over runs at each time since their start.

    Each run is brought onto one even grid that begins at its first reading. Where a run has ended or has
    a gap it is masked: it counts for nothing, and the others are averaged.

    Parameters
    ----------
    runs
        One series of readings per run, with times in s as its index.
    rate_hz
        Rate of the grid in Hz; twice the highest median rate of the runs if None.
    kind
        The kind of interpolation, as in `resample`.
    hold
        Whether a run that has ended keeps its last value, as an energy does.

    Returns
    -------
    Columns `mean` (NaN where every run has a gap) and `deviation` in the unit of the readings (of a sample; NaN where
    there is one run only) and `runs`, their number, by `time_s`; empty without a run of two readings.

    Raises
    ------
    ValueError
        If the rate is not above 0.
    """
    usable = [run for run in (_readings(run) for run in runs) if len(run) > 1]
    if not usable:
        empty = pd.Index([], name="time_s", dtype=float)
        return pd.DataFrame({"mean": [], "deviation": [], "runs": []}, index=empty).astype({"runs": int})
    rate = 2 * max(measured_rate_hz(run.index) for run in usable) if rate_hz is None else rate_hz
    gridded = [
        resample(run.index.to_numpy(float), run.to_numpy(float), rate_hz=rate, kind=kind).to_numpy() for run in usable
    ]
    stacked = np.empty((len(gridded), max(map(len, gridded))))
    for row, values in enumerate(gridded):
        stacked[row, : len(values)] = values
        stacked[row, len(values) :] = values[-1] if hold else np.nan
    ran = ~np.isnan(stacked)  # the masks
    count = ran.sum(axis=0)
    mean = np.where(ran, stacked, 0).sum(axis=0) / np.where(count > 0, count, np.nan)
    squares = (np.where(ran, stacked - mean, 0) ** 2).sum(axis=0)
    deviation = np.sqrt(squares / np.where(count > 1, count - 1, np.nan))
    return pd.DataFrame(
        {"mean": mean, "deviation": deviation, "runs": count},
        index=pd.Index(np.arange(stacked.shape[1]) / rate, name="time_s"),
    )


def _readings(run: pd.Series[float]) -> pd.Series[float]:
    times, values = _checked(run.index.to_numpy(float), run.to_numpy(float, na_value=np.nan))
    return pd.Series(values, index=times)


def summed_energy_j(time_s: ArrayLike, power_w: ArrayLike) -> float:
    """Return Σ Δt·P in J: each reading of power applies to the time since the previous reading.

    Parameters
    ----------
    time_s, power_w
        Times in s and powers in W, of shape (n,); missing readings are NaN and left out.

    Returns
    -------
    NaN for fewer than two readings.
    """
    times, powers = _checked(time_s, power_w)
    return float(np.sum(np.diff(times) * powers[1:])) if len(times) > 1 else float("nan")


def cumulative_energy_j(time_s: ArrayLike, power_w: ArrayLike) -> Array:
    """Return the energy since the first reading at each reading, in J, by the trapezoidal rule.

    Parameters
    ----------
    time_s, power_w
        Times in s, ascending and each once, and powers in W, without gaps, of shape (n,).

    Returns
    -------
    Array of shape (n,), which begins with 0.

    Raises
    ------
    ValueError
        If a reading is missing, or times do not ascend.
    """
    times, powers = _checked(time_s, power_w)
    if len(times) != np.size(time_s) or not np.array_equal(times, np.asarray(time_s, float)):
        raise ValueError("times must ascend, each once, and no reading be missing")
    if len(times) == 0:
        return np.zeros(0)
    return np.concatenate([[0.0], np.cumsum(np.diff(times) * (powers[1:] + powers[:-1]) / 2)])


def integrated_energy_j(
    time_s: ArrayLike,
    power_w: ArrayLike,
    start_s: ArrayLike | None = None,
    end_s: ArrayLike | None = None,
    *,
    longest_gap_s: float = np.inf,
) -> Array:
    """Return the energy between pairs of times in J, by the trapezoidal rule; power is linear between its readings.

    A time may lie one median distance of the readings beyond the first or the last of them, whose power then holds; for
    what lies further, energy is not known and NaN.

    Parameters
    ----------
    time_s, power_w
        Times in s and powers in W, of shape (n,); missing readings are NaN and left out.
    start_s, end_s
        From when to when, of one shape; from the first to the last reading if None.
    longest_gap_s
        Power between readings further apart than this is not known, and no energy of a time that has a part in it.

    Returns
    -------
    Array of the shape of `start_s` (a number if that is one); NaN with fewer than two readings.
    """
    times, powers = _checked(time_s, power_w)
    if len(times) < 2:
        return np.full(np.broadcast(np.asarray(start_s), np.asarray(end_s)).shape, np.nan)
    starts = np.asarray(times[0] if start_s is None else start_s, float)
    ends = np.asarray(times[-1] if end_s is None else end_s, float)
    margin = float(np.median(np.diff(times)))
    times = np.concatenate([[times[0] - margin], times, [times[-1] + margin]])
    powers = np.concatenate([powers[:1], powers, powers[-1:]])
    steps = np.diff(times)
    energies = np.concatenate([[0.0], np.cumsum(steps * (powers[1:] + powers[:-1]) / 2)])

    def energy_until(moments: Array) -> Array:
        before = np.clip(np.searchsorted(times, moments, side="right") - 1, 0, len(steps) - 1)
        since = moments - times[before]
        slope = (powers[before + 1] - powers[before]) / steps[before]
        energy = energies[before] + since * powers[before] + slope * since**2 / 2
        return np.where((moments >= times[0]) & (moments <= times[-1]), energy, np.nan)

    gaps = steps > longest_gap_s
    began = np.searchsorted(times[:-1][gaps], np.maximum(starts, ends), side="left")
    over = np.searchsorted(times[1:][gaps], np.minimum(starts, ends), side="right")
    energy_j = np.where(began > over, np.nan, energy_until(ends) - energy_until(starts))
    return np.asarray(energy_j, float)[()]


def counted_energy_j(
    time_s: ArrayLike, counter_j: ArrayLike, start_s: ArrayLike | None = None, end_s: ArrayLike | None = None
) -> Array:
    """Return the energy between pairs of times in J by a counter, interpolated between the readings at which it ticked.

    Parameters
    ----------
    time_s, counter_j
        Times in s and a counter in J that never falls, of shape (n,); missing readings are NaN and left out.
    start_s, end_s
        From when to when, of one shape; from the first to the last tick that was seen if None.

    Returns
    -------
    Array of the shape of `start_s`. NaN for times more than one tick beyond those seen, where the counter ticked less
    than twice, and where it fell (a driver that was reloaded).
    """
    times, counts = _checked(time_s, counter_j)
    # the first reading at which a value is seen is the nearest to its tick; how old the very first is nobody knows
    ticked = np.flatnonzero(np.diff(counts) != 0) + 1
    times, counts = times[ticked], counts[ticked]
    shape = np.broadcast(np.asarray(start_s), np.asarray(end_s)).shape
    if len(times) < 2 or np.any(np.diff(counts) < 0):
        return np.full(shape, np.nan)
    powers = np.diff(counts) / np.diff(times)
    margin = float(np.median(np.diff(times))) * 1.5
    # until a tick more, power is what it was
    times = np.concatenate([[times[0] - margin], times, [times[-1] + margin]])
    counts = np.concatenate([[counts[0] - margin * powers[0]], counts, [counts[-1] + margin * powers[-1]]])
    starts = np.asarray(times[1] if start_s is None else start_s, float)
    ends = np.asarray(times[-2] if end_s is None else end_s, float)

    def count_at(moments: Array) -> Array:
        return np.asarray(np.interp(moments, times, counts, left=np.nan, right=np.nan))

    return count_at(ends) - count_at(starts)


def energy_delay_product_j_s(energy_j: ArrayLike, time_s: ArrayLike) -> Array:
    """Return the energy-delay product E·t in J·s of runs, from their energy in J and time in s."""
    return np.asarray(np.asarray(energy_j, float) * np.asarray(time_s, float), float)


LEAST_READINGS = 2
"""Fewest readings of power in a phase from which its energy is computed."""


def energy_of_phases(
    phases: pd.DataFrame,
    time_s: ArrayLike,
    power_w: ArrayLike,
    counter_time_s: ArrayLike,
    counter_j: ArrayLike,
    *,
    longest_gap_s: float = np.inf,
) -> pd.DataFrame:
    """Return phases with the energy of each.

    Parameters
    ----------
    phases
        With columns `start_s` and `end_s`, on the clock of the readings; one row a phase, others are kept.
    time_s, power_w
        Readings of power: times in s and W, of shape (n,).
    counter_time_s, counter_j
        Readings of an energy counter: times in s and J, of shape (m,).
    longest_gap_s
        As in `integrated_energy_j`.

    Returns
    -------
    The phases with `time_s`, `energy_j` (by integration), `energy_counter_j`, `power_w` (mean) and `told`: whether the
    phase is long enough for its own energy to be known. The energies of short ones are shares of what was read around
    them: good enough to be summed, not to be compared.
    """
    starts, ends = phases["start_s"].to_numpy(float), phases["end_s"].to_numpy(float)
    duration = ends - starts
    energy = integrated_energy_j(time_s, power_w, starts, ends, longest_gap_s=longest_gap_s)
    readings, _ = _checked(time_s, power_w)
    shortest_s = LEAST_READINGS / measured_rate_hz(readings)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(duration > 0, energy / duration, np.nan)
    return phases.assign(
        time_s=duration,
        energy_j=energy,
        energy_counter_j=counted_energy_j(counter_time_s, counter_j, starts, ends),
        power_w=power,
        told=duration >= shortest_s,
    )


def energy_of_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean, deviation and range of time, energy and energy-delay product over runs of one program.

    Parameters
    ----------
    runs
        One row a run, with columns `time_s` and `energy_j`.

    Returns
    -------
    Rows `time_s`, `energy_j`, `energy_delay_product_j_s`; columns `mean`, `deviation` (of a sample; NaN for one run),
    `least`, `most` and `runs`.
    """
    product = energy_delay_product_j_s(runs["energy_j"], runs["time_s"])
    table = runs[["time_s", "energy_j"]].assign(energy_delay_product_j_s=product)
    told = table.agg(["mean", "std", "min", "max", "count"]).T
    told.columns = pd.Index(["mean", "deviation", "least", "most", "runs"])
    return told.astype({"runs": int})


LEAST_R2 = 0.5
"""Coefficient of determination below which no optimum of a fitted curve is reported."""
LEAST_RANGE = 0.01
"""Range of a curve, over its highest value, below which no optimum is reported: every setting does as well."""


def has_optimum(r2: float, curve: NDArray[np.float64]) -> bool:
    """Return whether a curve describes what was measured, and differs enough along the setting to have a best point."""
    return r2 >= LEAST_R2 and float(np.ptp(curve)) >= LEAST_RANGE * float(np.max(curve))


def r_squared(measured: NDArray[np.float64], fitted: NDArray[np.float64]) -> float:
    """Return the coefficient of determination, NaN where what was measured is constant; shapes (points,)."""
    spread = float(np.sum((measured - measured.mean()) ** 2))
    return 1 - float(np.sum((measured - fitted) ** 2)) / spread if spread > 0 else float("nan")
