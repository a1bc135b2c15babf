"""When enough has been measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clockwatt.measure.statistics import mean_estimate

PRECISION = "precision"
MAX_DURATION = "max_duration"


@dataclass(frozen=True)
class PrecisionRule:
    """Stop once the mean of block times is precise enough, between a minimum and a maximum duration.

    Blocks, not single calls, are the samples, so that autocorrelation between calls does not flatter the error.

    Parameters
    ----------
    precision
        Relative 95 % half-width of the mean at which to stop.
    min_s, max_s
        Durations in seconds before which measuring never stops and after which it always does.
    """

    precision: float
    min_s: float
    max_s: float

    def reason(self, elapsed_s: float, block_times_s: Sequence[float]) -> str | None:
        """Why to stop now (`precision` or `max_duration`), or None to go on."""
        if elapsed_s >= self.max_s:
            return MAX_DURATION
        if elapsed_s < self.min_s:
            return None
        estimate = mean_estimate(block_times_s)
        return PRECISION if estimate is not None and estimate.relative_half_width <= self.precision else None
