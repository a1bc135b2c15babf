"""Location and error of correlated samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

_MAX_CORRELATION = 0.9
NORMAL_95 = 1.959963984540054
"""Half-width of a 95 % interval in standard errors."""


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error, in the same unit; `samples` is how many it rests on.

    A standard error here always means: 1.96 of it are half of a 95 % interval. Where few samples make that interval
    wider, the error is.
    """

    value: float
    standard_error: float
    samples: int

    @property
    def relative_half_width(self) -> float:
        """Half of the 95 % interval, relative to the value."""
        return float("inf") if self.value == 0 else abs(NORMAL_95 * self.standard_error / self.value)

    def with_error(self, standard_error: float) -> Estimate:
        """Return the same value with another, independent error added to its own (same unit)."""
        return replace(self, standard_error=float(np.hypot(self.standard_error, standard_error)))


def mean_estimate(values: ArrayLike) -> Estimate | None:
    """Return the mean of a time series, its standard error widened by lag-1 autocorrelation; None below two values.

    For an AR(1) series with correlation ρ the variance of the mean grows by (1 + ρ) / (1 − ρ)
    (Law & Kelton, Simulation Modeling and Analysis, ch. 4). Negative correlation is taken as none. The error is that of
    Student's t distribution with the degrees of freedom of as many independent samples.
    """
    series = np.asarray(values, dtype=float)
    if series.size < 2:
        return None
    mean = float(series.mean())
    deviation = series - mean
    squares = float(deviation @ deviation)
    variance = squares / (series.size - 1)
    correlation = 0.0
    if variance > 0 and series.size > 3:
        correlation = float(deviation[1:] @ deviation[:-1]) / squares
    correlation = min(max(correlation, 0.0), _MAX_CORRELATION)
    independent = series.size * (1 - correlation) / (1 + correlation)
    from scipy.special import stdtrit  # a third of a second that a finished shard does not need

    student = float(stdtrit(max(independent - 1, 1.0), 0.975)) / NORMAL_95
    return Estimate(mean, student * math.sqrt(variance / independent), series.size)


def median_estimate(values: ArrayLike) -> Estimate | None:
    """Return the median of samples, with its standard error; None below two values.

    For times on the host, where interrupts make a long upper tail that is not the operation's. The error is that of the
    median of normal samples whose spread is read off the quartiles.
    """
    series = np.asarray(values, dtype=float)
    if series.size < 2:
        return None
    lower, median, upper = np.quantile(series, [0.25, 0.5, 0.75])
    spread = (upper - lower) / 1.349
    return Estimate(float(median), float(1.2533 * spread / np.sqrt(series.size)), series.size)


def halves_agree(values: ArrayLike, tolerance: float) -> bool:
    """Whether a series has no trend: its halves' means differ by `tolerance` at most, or by no more than their noise.

    The noise is that of independent samples: correlation, which widens the error of a mean, is what a trend looks like.

    Parameters
    ----------
    values
        In the order in which they came; shape (n,). Below four values there is nothing to compare, and they agree.
    tolerance
        Relative difference of the means that is let pass.
    """
    series = np.asarray(values, dtype=float)
    if series.size < 4:
        return True
    early, late = np.array_split(series, 2)
    difference = abs(float(late.mean() - early.mean()))
    noise = float(np.hypot(early.std(ddof=1) / np.sqrt(early.size), late.std(ddof=1) / np.sqrt(late.size)))
    return difference <= tolerance * abs(float(series.mean())) or difference <= NORMAL_95 * noise
