"""Power over a window by several estimators, from readings of one sensor that another process took.

All of them are recorded; the one with the smallest standard error by its own account is used. They share a sensor, so
that they agree proves precision, not accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from clockwatt.gpu.sensing.sensors import AVERAGE, COUNTER, INSTANT, RING, SensorTraits
from clockwatt.measure.statistics import NORMAL_95, Estimate, mean_estimate
from clockwatt.schema.records import TelemetryRow

DISAGREEMENT = 0.03
"""Relative difference between two estimates that is flagged, where their errors cannot explain it."""

_LONGEST_WINDOW_S = 1.0
"""Longest window of the driver's moving average, on Ampere and newer; assumed without calibration."""
_COUNTER_PERIOD_ERROR = 0.001
"""Relative standard error of a calibrated update period."""
_OVERLAPPING_ERROR = 0.005
"""Least relative error of the moving average, whose readings overlap and so hide their spread."""

Floats = NDArray[np.float64]
Nanoseconds = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """A stretch of steady load; monotonic ns."""

    steady_ns: int
    """Since when nothing changed: averages may reach back to here."""
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Duration in s."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True)
class Series:
    """Readings of one sensor: times in monotonic ns, ascending, and values; readings that failed are left out."""

    time_ns: Nanoseconds
    value: Floats

    def within(self, start_ns: int, end_ns: int) -> Series:
        """Return the readings taken in a window, ends included."""
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
    """Power readings of a GPU in W; those of the counter are in J."""

    instant: Series
    average: Series
    counter: Series
    samples: Series


def power_readings(rows: Sequence[TelemetryRow]) -> PowerReadings:
    """Collect the power sensors of telemetry rows of one session."""
    return PowerReadings(
        instant=_series([(row.monotonic_ns, row.power_instant_w) for row in rows if row.power_instant_w is not None]),
        average=_series([(row.monotonic_ns, row.power_average_w) for row in rows if row.power_average_w is not None]),
        counter=_series([(row.monotonic_ns, row.energy_counter_j) for row in rows if row.energy_counter_j is not None]),
        samples=_series([(row.monotonic_ns, row.power_sample_w) for row in rows if row.power_sample_w is not None]),
    )


def _series(readings: list[tuple[int, float]]) -> Series:
    """Return the readings in the order of their times (monotonic ns)."""
    readings.sort()
    return Series(
        np.array([time for time, _ in readings], dtype=np.int64),
        np.array([value for _, value in readings], dtype=float),
    )


Sensors = Mapping[str, SensorTraits]
"""Update periods and averaging windows by sensor, from the calibration; what is missing is not known."""


def counter_power(readings: PowerReadings, window: Window, sensors: Sensors) -> Estimate | None:
    """Return the energy counter between its own ticks.

    A reading that shows a new value comes after a tick, by less than the time since the reading before and by less than
    the counter's period. Where that is known, the ticks lie a whole number of periods apart, of which two can be meant:
    the nearest is taken, its error that of having taken the wrong one. Otherwise the errors are those of uniform
    distributions. None if the counter went backwards, or ticked less than twice.
    """
    counter = readings.counter.within(window.start_ns, window.end_ns)
    if counter_wrapped(readings, window):
        return None
    ticks = np.flatnonzero(np.diff(counter.value) > 0) + 1
    if ticks.size < 2:
        return None
    ends = ticks[[0, -1]]
    period_s = _traits(sensors, COUNTER).period_s
    late_s = np.minimum((counter.time_ns[ends] - counter.time_ns[ends - 1]) / 1e9, period_s or np.inf)
    first_s, last_s = counter.time_ns[ends] / 1e9 - late_s / 2
    elapsed_s, error_s = float(last_s - first_s), float(np.hypot(*late_s)) / np.sqrt(12)
    if period_s and elapsed_s > period_s / 2:
        off_s = abs(elapsed_s - round(elapsed_s / period_s) * period_s)
        elapsed_s = round(elapsed_s / period_s) * period_s
        # one tick more or less was possible, the likelier the farther off
        error_s = min(error_s, float(np.hypot(np.sqrt(off_s * period_s), _COUNTER_PERIOD_ERROR * elapsed_s)))
    power_w = float(counter.value[ticks[-1]] - counter.value[ticks[0]]) / elapsed_s
    return Estimate(power_w, power_w * error_s / elapsed_s, int(ticks.size))


def counter_wrapped(readings: PowerReadings, window: Window) -> bool:
    """Return whether the energy counter went backwards: it wrapped, or the driver was loaded anew."""
    return bool((np.diff(readings.counter.within(window.steady_ns, window.end_ns).value) < 0).any())


def instant_power(readings: PowerReadings, window: Window, sensors: Sensors) -> Estimate | None:
    """Return the mean of the instantaneous power's updates."""
    return mean_estimate(_filled(readings.instant, window, _traits(sensors, INSTANT)).updates().value)


def average_power(readings: PowerReadings, window: Window, sensors: Sensors) -> Estimate | None:
    """Return the driver's moving average, once its averaging window lies inside the steady load.

    The readings overlap almost wholly, so the error is that of the newest alone: the spread of the single sensor
    updates is not visible. Half the range of the readings, at least 0.5 %, replaces it.
    """
    average = _filled(readings.average, window, _traits(sensors, AVERAGE)).updates().value
    if average.size == 0:
        return None
    value = float(average[-1])
    return Estimate(value, max(float(np.ptp(average)) / 2, _OVERLAPPING_ERROR * abs(value)), int(average.size))


def trapezoid_power(readings: PowerReadings, window: Window, sensors: Sensors) -> Estimate | None:
    """Apply the trapezoid rule to updates of instantaneous power, divided by the time from first to last."""
    updates = _filled(readings.instant, window, _traits(sensors, INSTANT)).updates()
    spread = mean_estimate(updates.value)
    if spread is None:
        return None
    seconds = (updates.time_ns - updates.time_ns[0]) / 1e9
    return Estimate(float(np.trapezoid(updates.value, seconds) / seconds[-1]), spread.standard_error, spread.samples)


def samples_power(readings: PowerReadings, window: Window, sensors: Sensors) -> Estimate | None:
    """Return the mean of the driver's ring of power samples."""
    return mean_estimate(_filled(readings.samples, window, _traits(sensors, RING)).value)


def thesis_power(readings: PowerReadings, window: Window) -> Estimate | None:
    """Return the driver's power readings by `thesis_mean`; None below two readings."""
    power = readings.average.within(window.start_ns, window.end_ns).value
    return thesis_mean(power) if power.size > 1 else None


def thesis_mean(power_w: Floats) -> Estimate:
    """Return mean and error as in equations 3.1–3.9 of C. Nicolai's thesis; readings in W, two at least.

    The mean is of readings less than three standard deviations (of a sample) from the mean of all. Its error is their
    standard deviation, where other estimators give the standard error of the mean.
    """
    deviation = power_w.std(ddof=1)
    kept = power_w[np.abs(power_w - power_w.mean()) < 3 * deviation] if deviation else power_w
    return Estimate(float(kept.mean()), float(kept.std(ddof=1)), int(kept.size))


def quickest(readings: PowerReadings, sensors: Sensors) -> tuple[Series, SensorTraits]:
    """Return the sensor that shows a change of power first, among those that were read; its updates and traits."""
    candidates = [
        (readings.samples, _traits(sensors, RING)),
        (readings.instant.updates(), _traits(sensors, INSTANT)),
        (readings.average.updates(), _traits(sensors, AVERAGE)),
    ]
    there = [(series, traits) for series, traits in candidates if series.value.size]
    if not there:
        return candidates[0]
    return min(there, key=lambda pair: (pair[1].window_s or 0.0) + (pair[1].period_s or 0.0))


def _traits(sensors: Sensors, name: str) -> SensorTraits:
    """Return a sensor's traits. An unknown window is replaced by the period, that of the average by the longest."""
    known = sensors.get(name, SensorTraits(None, None))
    if known.window_s is not None:
        return known
    return SensorTraits(known.period_s, _LONGEST_WINDOW_S if name == AVERAGE else known.period_s)


def _filled(series: Series, window: Window, traits: SensorTraits) -> Series:
    """Return the readings in the window whose averaging window lies in the steady load."""
    reach_ns = round((traits.window_s or 0.0) * 1e9)
    return series.within(max(window.start_ns, window.steady_ns + reach_ns), window.end_ns)


ESTIMATORS: dict[str, Callable[[PowerReadings, Window, Sensors], Estimate | None]] = {
    "counter": counter_power,
    "instant": instant_power,
    "average": average_power,
    "trapezoid": trapezoid_power,
    "samples": samples_power,
}
"""Estimators that may be chosen, by name; the thesis's is recorded for comparison only."""


def shortest_window_s(sensors: Sensors, read_every_s: float) -> dict[str, float]:
    """Return the shortest window in s, by sensor, that always resolves the power of a steady load.

    The window has to contain values whose averaging begins within it: one of the moving average, else two. The counter
    has to be read once, and again after each of two ticks. Several ticks between two readings count once.

    Parameters
    ----------
    read_every_s
        How often the logger reads the sensors.
    """
    needed_s = {}
    for name in sensors:
        traits = _traits(sensors, name)
        period_s, reach_s = traits.period_s or 0.0, traits.window_s or 0.0
        update_s = period_s + (0.0 if name == RING else read_every_s)
        if name == COUNTER:
            needed_s[name] = 2 * read_every_s + max(2 * period_s, read_every_s)
        else:
            needed_s[name] = reach_s + (1 if name == AVERAGE else 2) * update_s
    return needed_s


def estimate_all(readings: PowerReadings, window: Window, sensors: Sensors) -> dict[str, Estimate]:
    """Return every estimate that the readings in a window allow, by estimator."""
    estimates = {name: estimator(readings, window, sensors) for name, estimator in ESTIMATORS.items()}
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}


def choose(estimates: dict[str, Estimate]) -> tuple[str, Estimate] | None:
    """The estimate with the smallest standard error by its own account, ties going to the first; None without any."""
    return min(estimates.items(), key=lambda item: item[1].standard_error, default=None)


def between_estimators(estimates: dict[str, Estimate]) -> float:
    """Return the standard deviation that the estimators show beyond their own errors, in W; 0 where one alone is known.

    The between-study standard deviation of a random-effects model, by the method of moments (DerSimonian & Laird,
    Controlled Clinical Trials 7, 1986). The trapezoid is left out: it weighs the readings of `instant` anew.
    """
    several = [estimate for name, estimate in estimates.items() if name != "trapezoid" and estimate.standard_error > 0]
    if len(several) < 2:
        return 0.0
    values = np.array([estimate.value for estimate in several])
    weights = np.array([estimate.standard_error for estimate in several]) ** -2.0
    mean = float(weights @ values / weights.sum())
    excess = float(weights @ (values - mean) ** 2) - (len(several) - 1)
    return float(np.sqrt(max(0.0, excess) / (weights.sum() - (weights**2).sum() / weights.sum())))


def disagree(estimates: dict[str, Estimate]) -> bool:
    """Return whether two estimates differ by more than 3 % and by more than their errors explain."""
    for one, other in combinations(estimates.values(), 2):
        difference = abs(one.value - other.value)
        explained = NORMAL_95 * float(np.hypot(one.standard_error, other.standard_error))
        if difference > DISAGREEMENT * abs(one.value) and difference > explained:
            return True
    return False
