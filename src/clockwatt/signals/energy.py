"""Energy, from readings of power and from counters."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from clockwatt.signals.grid import Array, checked


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
    times, powers = checked(time_s, power_w)
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
    times, powers = checked(time_s, power_w)
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
    times, powers = checked(time_s, power_w)
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
    times, counts = checked(time_s, counter_j)
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
