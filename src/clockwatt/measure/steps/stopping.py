"""When a load is steady, and when enough of it has been measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clockwatt.measure.statistics import Estimate, halves_agree, mean_estimate

PRECISION = "precision"
MAX_DURATION = "max_duration"
LIMITER_PERIOD = "limiter_period"

LIMITER_PERIOD_S = 1.0
"""The driver holds the mean power over about 1 s at the limit; within it power swings by 20 % (seen on an H200)."""

STEADY_WITHIN = 0.01
"""Relative change from one half of a stretch to the next up to which it counts as steady."""


FEWEST_READINGS = 4
"""Fewest readings of power for the test."""


@dataclass(frozen=True)
class PrecisionRule:
    """Stop once time and power are both precise enough, between a minimum and a maximum duration.

    Blocks, not single calls, are the samples of the time, so that autocorrelation between calls does not flatter the
    error.

    Parameters
    ----------
    precision
        Relative 95 % half-width at which to stop.
    min_s, max_s
        Durations in seconds before which measuring never stops and after which it always does.
    """

    precision: float
    min_s: float
    max_s: float

    def time_is_precise(self, elapsed_s: float, block_times_s: Sequence[float]) -> bool:
        """Return whether the time alone is a reason to stop: only then is it worth asking for the power."""
        return elapsed_s >= self.min_s and self._precise(mean_estimate(block_times_s))

    def reason(
        self, elapsed_s: float, block_times_s: Sequence[float], power: Estimate | None, *, power_limited: bool = False
    ) -> str | None:
        """Return the reason to stop (`precision`, `limiter_period` or `max_duration`), or None to continue.

        Parameters
        ----------
        elapsed_s
            Since the window began.
        block_times_s
            Seconds per call of each block; shape (blocks,).
        power
            Over the window, as far as it is known.
        power_limited
            Whether the power limit sets the clock, which then swings: only whole periods say what it is on average.
        """
        if power_limited:
            if elapsed_s < max(self.min_s, min(LIMITER_PERIOD_S, self.max_s)):
                return None
            return LIMITER_PERIOD if elapsed_s >= LIMITER_PERIOD_S else MAX_DURATION
        if elapsed_s >= self.max_s:
            return MAX_DURATION
        return PRECISION if self.time_is_precise(elapsed_s, block_times_s) and self._precise(power) else None

    def _precise(self, estimate: Estimate | None) -> bool:
        return estimate is not None and estimate.relative_half_width <= self.precision


@dataclass(frozen=True)
class SteadyRule:
    """The warm-up ends once time, power and SM clock no longer change, between a minimum and a maximum duration.

    A start-up transient (clocks that ramp up, a power limit that takes hold, a sensor that still averages over the
    idle time before) then lies in front of what is measured.

    Parameters
    ----------
    min_s, max_s
        Durations in seconds before which a load never counts as steady and after which waiting ends.
    """

    min_s: float
    max_s: float

    def steady(self, block_times_s: Sequence[float], powers_w: Sequence[float], sm_clocks_mhz: Sequence[float]) -> bool:
        """Whether what was seen over the latest stretch has no trend; each of shape (n,), in the order of time."""
        if len(powers_w) < FEWEST_READINGS:
            return False
        series = [np.asarray(values, dtype=float) for values in (block_times_s, powers_w, sm_clocks_mhz)]
        return all(halves_agree(values, STEADY_WITHIN) for values in series)
