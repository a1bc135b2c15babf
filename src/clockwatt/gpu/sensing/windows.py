"""The averaging window of a sensor, from its readings and what the power did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_WINDOWS_S = np.geomspace(0.004, 2.0, 80)
_DELAYS_S = np.arange(-0.02, 0.0601, 0.005)
_FEWEST_READINGS = 20
_LEAST_EXPLAINED = 0.9
"""Share of the readings' variance below which no window is said to explain them."""
_FINER = 17
_PARAMETERS = 4  # window, delay, offset, scale
_TOLERANCE_F = 4.0
"""Rise of the sum of squares, in units of the residual variance, up to which a window fits as well (95 %)."""
_RESOLUTION_S = 0.02


@dataclass(frozen=True)
class Steps:
    """Power, or anything proportional to it but for an offset, constant between times.

    Attributes
    ----------
    times_s
        Ends of the steps in s, ascending, shape (n,).
    values
        Value between the end before and this end, shape (n,). After the last end the last value holds on.
    finest_s
        Shortest window in s that can be determined from steps that are means themselves; shorter ones count as this.
    """

    times_s: Sequence[float] | Floats
    values: Sequence[float] | Floats
    finest_s: float = 0.0


@dataclass(frozen=True)
class _Fit:
    residual: float  # share of the readings' variance that is left
    window_s: float
    delay_s: float


def averaging_window_s(
    times_s: Sequence[Sequence[float] | Floats], values: Sequence[float] | Floats, powers: Sequence[Steps]
) -> float | None:
    """Return the length in s of the window over which a sensor's readings are the mean of the power.

    A reading at t is taken for a + b times the mean power over the window that ends at t minus a delay of -20 to 60 ms;
    the window is the one that leaves the smallest residual (Yang, Adamek and Armour, SC 2024).

    Parameters
    ----------
    times_s
        When the sensor got each value, in s: one or more accounts, each of shape (n,).
    values
        The values, shape (n,).
    powers
        What the power did, on the same clock, as seen in different ways. Of these and of the accounts of time those
        count under which the readings are explained best.

    Returns
    -------
    float or None
        None if there are too few readings, if no window explains 90 % of their variance, or if windows of very
        different lengths explain them about equally well.
    """
    seen = np.asarray(values, dtype=float)
    if len(seen) < _FEWEST_READINGS or np.ptp(seen) == 0:
        return None
    determined: list[tuple[_Fit, Floats, _Mean]] = []
    for account in times_s:
        seen_s = np.asarray(account, dtype=float)
        for mean in (_Mean(power) for power in powers if len(power.times_s)):
            fits = [_fit(seen_s, seen, mean, window_s, _DELAYS_S) for window_s in mean.resolved(_WINDOWS_S)]
            if _is_determined(fits, len(seen)):
                determined.append((_best(fits), seen_s, mean))
    if not determined:
        return None
    fit, seen_s, mean = min(determined, key=lambda one: one[0].residual)
    window_factor, delay_step_s = _WINDOWS_S[1] / _WINDOWS_S[0], _DELAYS_S[1] - _DELAYS_S[0]
    windows_s = mean.resolved(fit.window_s * np.geomspace(1 / window_factor, window_factor, _FINER))
    delays_s = fit.delay_s + delay_step_s * np.linspace(-1, 1, _FINER)
    return _best([_fit(seen_s, seen, mean, window_s, delays_s) for window_s in windows_s]).window_s


def _best(fits: Sequence[_Fit]) -> _Fit:
    return min(fits, key=lambda fit: fit.residual)


def _is_determined(fits: Sequence[_Fit], readings: int) -> bool:
    """Return whether the best of fits explains the readings, and windows of other lengths much worse."""
    least = _best(fits).residual
    as_good = least * (1 + _TOLERANCE_F / (readings - _PARAMETERS))
    windows_s = [fit.window_s for fit in fits if fit.residual <= as_good]
    return least < 1 - _LEAST_EXPLAINED and max(windows_s) - min(windows_s) <= max(min(windows_s), _RESOLUTION_S)


def _fit(seen_s: Floats, seen: Floats, mean: _Mean, window_s: float, delays_s: Floats) -> _Fit:
    """Return the best delay for a window, offset and scale by least squares."""
    means = mean(seen_s[None, :] - delays_s[:, None], window_s)
    centred, target = means - means.mean(axis=1, keepdims=True), seen - seen.mean()
    covariance = centred @ target
    variance = np.maximum((centred**2).sum(axis=1), np.finfo(float).tiny)
    # more power cannot give lower readings
    explained = np.where(covariance > 0, covariance**2 / variance, 0.0) / (target @ target)
    best = int(np.argmax(explained))
    return _Fit(max(0.0, 1 - float(explained[best])), window_s, float(delays_s[best]))


class _Mean:
    """Mean of steps over a window."""

    def __init__(self, power: Steps) -> None:
        self._finest_s = power.finest_s
        ends_s, values = np.asarray(power.times_s, dtype=float), np.asarray(power.values, dtype=float)
        far_s = 10.0
        self._times_s = np.concatenate([[ends_s[0] - far_s], ends_s, [ends_s[-1] + far_s]])
        held = np.concatenate([values, values[-1:]])
        self._integral = np.concatenate([[0.0], np.cumsum(np.diff(self._times_s) * held)])

    def __call__(self, ends_s: Floats, window_s: float) -> Floats:
        later, earlier = (np.interp(at_s, self._times_s, self._integral) for at_s in (ends_s, ends_s - window_s))
        return np.asarray((later - earlier) / window_s)

    def resolved(self, windows_s: Floats) -> list[float]:
        """Return the windows, each at least as long as can be determined, ascending and each once."""
        return sorted({max(float(window_s), self._finest_s) for window_s in windows_s})
