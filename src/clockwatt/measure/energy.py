"""Power over a window by several estimators, from readings of one sensor that another process took.

All of them are recorded; the one with the smallest standard error by its own account is used. They share a sensor, so
that they agree proves precision, not accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from clockwatt.measure.statistics import NORMAL_95, Estimate, mean_estimate
from clockwatt.records import TelemetryRow

DISAGREEMENT = 0.03
"""Relative difference between two estimates that is flagged, where their errors cannot explain it."""

_AVERAGING_WINDOW_NS = 1_000_000_000
"""The driver's moving average spans 1 s on Ampere and newer (not GA100), less on older ones."""

Floats = NDArray[np.float64]
Nanoseconds = NDArray[np.int64]


@dataclass(frozen=True)
class Series:
    """Readings of one sensor: times in monotonic ns, ascending, and values; readings that failed are left out."""

    time_ns: Nanoseconds
    value: Floats

    def within(self, start_ns: int, end_ns: int) -> Series:
        """The readings taken in a window, ends included."""
        inside = (self.time_ns >= start_ns) & (self.time_ns <= end_ns)
        return Series(self.time_ns[inside], self.value[inside])

    def updates(self) -> Series:
        """First reading of each new value: a sensor read faster than it updates repeats itself to the last digit."""
        if self.value.size == 0:
            return self
        new = np.concatenate(([True], np.diff(self.value) != 0))
        return Series(self.time_ns[new], self.value[new])


@dataclass(frozen=True)
class PowerReadings:
    """What the logger read of a GPU's power: W, the counter in J."""

    instant: Series
    average: Series
    counter: Series
    samples: Series


def power_readings(rows: Sequence[TelemetryRow]) -> PowerReadings:
    """Collect the power sensors of telemetry rows of one session."""

    def series(sensor: Callable[[TelemetryRow], float | None]) -> Series:
        pairs = sorted((row.monotonic_ns, value) for row in rows if (value := sensor(row)) is not None)
        return Series(
            np.array([time for time, _ in pairs], dtype=np.int64), np.array([value for _, value in pairs], dtype=float)
        )

    return PowerReadings(
        instant=series(lambda row: row.power_instant_w),
        average=series(lambda row: row.power_average_w),
        counter=series(lambda row: row.energy_counter_j),
        samples=series(lambda row: row.power_sample_w),
    )


def counter_power(readings: PowerReadings, start_ns: int, end_ns: int) -> Estimate | None:
    """Energy counter between its own ticks.

    A tick is seen somewhere between two readings; its time is taken in the middle, with the standard deviation of a
    uniform distribution, at both ends.
    """
    counter = readings.counter.within(start_ns, end_ns)
    ticks = np.flatnonzero(np.diff(counter.value) > 0) + 1
    if ticks.size < 2:
        return None
    seen = (counter.time_ns[ticks] + counter.time_ns[ticks - 1]) / 2e9
    uncertain = (counter.time_ns[ticks] - counter.time_ns[ticks - 1]) / 1e9 / np.sqrt(12)
    elapsed_s = float(seen[-1] - seen[0])
    power_w = float(counter.value[ticks[-1]] - counter.value[ticks[0]]) / elapsed_s
    return Estimate(power_w, power_w * float(np.hypot(uncertain[0], uncertain[-1])) / elapsed_s, int(ticks.size))


def instant_power(readings: PowerReadings, start_ns: int, end_ns: int) -> Estimate | None:
    """Mean of the instantaneous power's updates."""
    return mean_estimate(readings.instant.within(start_ns, end_ns).updates().value)


def average_power(readings: PowerReadings, start_ns: int, end_ns: int) -> Estimate | None:
    """The driver's moving average, once its averaging window lies inside the load.

    The readings overlap almost wholly, so the error is that of the newest alone: the spread of the single sensor
    updates behind it is not visible, and half the range of the readings, at least 0.5 %, stands for it.
    """
    average = readings.average.within(start_ns + _AVERAGING_WINDOW_NS, end_ns).updates().value
    if average.size == 0:
        return None
    value = float(average[-1])
    return Estimate(value, max(float(np.ptp(average)) / 2, 0.005 * abs(value)), int(average.size))


def trapezoid_power(readings: PowerReadings, start_ns: int, end_ns: int) -> Estimate | None:
    """Trapezoid rule over the instantaneous power's updates, divided by the time between the first and the last."""
    updates = readings.instant.within(start_ns, end_ns).updates()
    spread = mean_estimate(updates.value)
    if spread is None:
        return None
    seconds = (updates.time_ns - updates.time_ns[0]) / 1e9
    return Estimate(float(np.trapezoid(updates.value, seconds) / seconds[-1]), spread.standard_error, spread.samples)


def samples_power(readings: PowerReadings, start_ns: int, end_ns: int) -> Estimate | None:
    """Mean of the driver's ring of power samples."""
    return mean_estimate(readings.samples.within(start_ns, end_ns).value)


def thesis_power(readings: PowerReadings, start_ns: int, end_ns: int) -> Estimate | None:
    """Mean of the driver's power readings within three standard deviations of their mean (C. Nicolai's procedure)."""
    power = readings.average.within(start_ns, end_ns).value
    if power.size < 2:
        return None
    kept = power[np.abs(power - power.mean()) <= 3 * power.std()]
    return mean_estimate(kept)


ESTIMATORS: dict[str, Callable[[PowerReadings, int, int], Estimate | None]] = {
    "counter": counter_power,
    "instant": instant_power,
    "average": average_power,
    "trapezoid": trapezoid_power,
    "samples": samples_power,
}
"""Estimators that may be chosen, by name; the thesis's is recorded for comparison only."""


def estimate_all(readings: PowerReadings, start_ns: int, end_ns: int) -> dict[str, Estimate]:
    """Every estimate that the readings in a window allow, by estimator."""
    estimates = {name: estimator(readings, start_ns, end_ns) for name, estimator in ESTIMATORS.items()}
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}


def choose(estimates: dict[str, Estimate]) -> tuple[str, Estimate] | None:
    """The estimate with the smallest standard error by its own account, ties going to the first; None without any."""
    return min(estimates.items(), key=lambda item: item[1].standard_error, default=None)


def disagree(estimates: dict[str, Estimate]) -> bool:
    """Whether two estimates differ by more than 3 % and by more than their errors explain."""
    for one, other in combinations(estimates.values(), 2):
        difference = abs(one.value - other.value)
        explained = NORMAL_95 * float(np.hypot(one.standard_error, other.standard_error))
        if difference > DISAGREEMENT * abs(one.value) and difference > explained:
            return True
    return False
