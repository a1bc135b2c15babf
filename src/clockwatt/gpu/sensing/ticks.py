"""When a sensor that ticks at even distances ticked, from times at which its values were stamped or first seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_EARLY = 0.1
"""Share of a period by which a stamp may be earlier than its tick."""
_EARLIEST = 0.1
"""Share of the stamps that may be earlier than their ticks: one that was taken for the next tick's."""
_NEAR = 0.01 * np.linspace(-1, 1, 401)
_ROUNDS = 3


def tick_period_s(times_s: Sequence[float]) -> float:
    """Return the period in s of ticks, from the ascending times of some of them, shape (n,), n at least 2.

    It is the median of the distances, refined over ever longer spans. A span contains a whole number of periods, which
    follows from the estimate over spans half as long. Therefore neither missed ticks nor the time between readings
    matter.
    """
    times = np.asarray(times_s, dtype=float)
    period = float(np.median(np.diff(times)))
    lag = 2
    while 2 * lag <= len(times):
        spans = times[lag:] - times[:-lag]
        period = float(np.median(spans / np.maximum(1.0, np.round(spans / period))))
        lag *= 2
    return period


def tick_times_s(times_s: Sequence[float]) -> Floats:
    """Return the even times in s of ticks that were stamped late, by less than a period, ascending, shape (n,).

    The ticks are the even times below nearly all stamps that lie closest to them: the driver of an H200 stamps the
    samples of its ring up to 18 ms late, but half of them within 0.4 ms, and what is found by polling is found late. If
    two stamps belong to the same tick, the sensor does not tick evenly, and the times come back as given.
    """
    times = np.asarray(times_s, dtype=float)
    if len(times) < 3:
        return times
    since = times - times[0]
    period = tick_period_s(since)
    turn = float(np.angle(np.exp(2j * np.pi * since / period).sum()) / (2 * np.pi))
    numbers = np.round(since / period - turn)
    for _ in range(_ROUNDS):
        period, first = _line_below(numbers, since, period)
        numbers = _ascending(np.floor((since - first) / period + _EARLY))
    even = np.all(np.diff(numbers) > 0)
    return np.asarray(times[0] + first + period * numbers) if even else times


def _ascending(numbers: Floats) -> Floats:
    """Assign the first of two stamps on one tick to the tick before, if that is free."""
    before = np.diff(numbers, prepend=-np.inf)
    after = np.diff(numbers, append=np.inf)
    return np.where((after == 0) & (before > 1), numbers - 1, numbers)


def _line_below(numbers: Floats, times: Floats, period: float) -> tuple[float, float]:
    """Return the slope, near `period`, and start of the line below nearly all points that lies closest to them.

    A regression of the quantile `_EARLIEST` (Koenker and Bassett, Regression Quantiles, Econometrica 1978).
    """
    periods = period * (1 + _NEAR)
    late = times - periods[:, None] * numbers
    first = np.quantile(late, _EARLIEST, axis=1)
    off = late - first[:, None]
    best = int(np.argmin(np.where(off > 0, _EARLIEST * off, (_EARLIEST - 1) * off).sum(axis=1)))
    return float(periods[best]), float(first[best])
