"""Power sensors of a virtual GPU: closed-form heat and energy, with periods and averaging windows.

Periods and windows follow what Yang et al. found on real cards (Accurate and Convenient Energy Measurements for GPUs,
SC 2024). Nothing that measures may look here: it finds out by calibration.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

from clockwatt.gpu.virtual.model import AMBIENT_C, THERMAL_TIME_CONSTANT_S, CardModel

KEPT_NS = 5_000_000_000
"""History that sensors need, in ns: the ring buffer's length and the longest averaging window."""
RING_SAMPLES = 119
RING_PERIOD_NS = 20_000_000


@dataclass(frozen=True)
class Sensor:
    """A power sensor that gives the mean over `window_ns`, anew every `period_ns`."""

    period_ns: int
    window_ns: int
    noise: float  # relative standard deviation


@dataclass(frozen=True)
class SensorSuite:
    """The power sensors of an architecture; None where there is no such sensor."""

    average: Sensor
    instant: Sensor | None
    counter_period_ns: int


_MS = 1_000_000
_PART_TIME = Sensor(100 * _MS, 25 * _MS, 0.004)
_ONE_SECOND = Sensor(100 * _MS, 1000 * _MS, 0.001)

_SUITES = {
    "volta": SensorSuite(Sensor(20 * _MS, 10 * _MS, 0.004), None, counter_period_ns=_MS),
    "turing": SensorSuite(Sensor(100 * _MS, 100 * _MS, 0.004), None, counter_period_ns=100 * _MS),
    "ga100": SensorSuite(_PART_TIME, _PART_TIME, counter_period_ns=100 * _MS),
    "ampere": SensorSuite(_ONE_SECOND, Sensor(100 * _MS, 100 * _MS, 0.004), counter_period_ns=100 * _MS),
    "ada": SensorSuite(_ONE_SECOND, Sensor(100 * _MS, 20 * _MS, 0.004), counter_period_ns=100 * _MS),
    "hopper": SensorSuite(_ONE_SECOND, _PART_TIME, counter_period_ns=100 * _MS),
}
"""Sensors by architecture, as determined on real cards."""


def sensor_suite(architecture: str) -> SensorSuite:
    """Return the power sensors of an architecture; of one whose sensors nobody has looked at, those of Ampere."""
    return _SUITES.get(architecture, _SUITES["ampere"])


@dataclass(frozen=True)
class _Segment:
    """A stretch of constant load and clocks."""

    start_ns: int
    energy_j: float  # since the beginning, at the start
    rise_k: float  # above ambient, at the start
    base_w: float  # power without leakage
    settled_k: float  # above ambient, where it goes


class PowerHistory:
    """Power, energy and temperature over virtual time, exact between changes of load.

    The temperature rise r above ambient follows τ dr/dt = R (P₀ + k r) - r, whose solution is an exponential, and
    energy is the integral of P₀ + k r.

    Parameters
    ----------
    model
        The card.
    base_w
        Power without leakage, in W, in which the card has rested until 0.
    """

    def __init__(self, model: CardModel, base_w: float) -> None:
        self._leakage = model.leakage_w_per_k
        self._resistance = model.thermal_resistance_k_per_w
        self._damping = 1 - self._resistance * self._leakage
        self._rate = self._damping / THERMAL_TIME_CONSTANT_S
        settled_k = self._settled_rise_k(base_w)
        rested = _Segment(-2 * KEPT_NS, 0.0, settled_k, base_w, settled_k)
        self._segments = [rested]
        self._starts_ns = [rested.start_ns]

    def change(self, now_ns: int, base_w: float) -> None:
        """From `now_ns` on, which lies after all earlier changes, power without leakage is `base_w`."""
        last = self._segments[-1]
        if base_w == last.base_w:
            return
        settled_k = self._settled_rise_k(base_w)
        if now_ns == last.start_ns:
            self._segments[-1] = _Segment(now_ns, last.energy_j, last.rise_k, base_w, settled_k)
            return
        self._segments.append(_Segment(now_ns, self.energy_j(now_ns), self._rise_k(last, now_ns), base_w, settled_k))
        self._starts_ns.append(now_ns)
        forgotten = bisect.bisect(self._starts_ns, now_ns - KEPT_NS) - 1
        if forgotten > 0:
            del self._segments[:forgotten]
            del self._starts_ns[:forgotten]

    def energy_j(self, time_ns: int) -> float:
        """Return the energy in J since the beginning; `time_ns` may lie up to `KEPT_NS` before the last change."""
        segment = self._segment(time_ns)
        elapsed_s = (time_ns - segment.start_ns) * 1e-9
        settled_k = segment.settled_k
        settling = (segment.rise_k - settled_k) * -math.expm1(-self._rate * elapsed_s) / self._rate
        return segment.energy_j + segment.base_w * elapsed_s + self._leakage * (settled_k * elapsed_s + settling)

    def power_w(self, time_ns: int) -> float:
        """Return the momentary power in W."""
        segment = self._segment(time_ns)
        return segment.base_w + self._leakage * self._rise_k(segment, time_ns)

    def mean_power_w(self, end_ns: int, window_ns: int) -> float:
        """Return the mean power over the window that ends at `end_ns`, in W."""
        return (self.energy_j(end_ns) - self.energy_j(end_ns - window_ns)) / (window_ns * 1e-9)

    def temperature_c(self, time_ns: int) -> float:
        """Return the core temperature in °C."""
        return AMBIENT_C + self._rise_k(self._segment(time_ns), time_ns)

    def _segment(self, time_ns: int) -> _Segment:
        if time_ns >= self._starts_ns[-1]:
            return self._segments[-1]
        return self._segments[bisect.bisect(self._starts_ns, time_ns) - 1]

    def _settled_rise_k(self, base_w: float) -> float:
        return self._resistance * base_w / self._damping

    def _rise_k(self, segment: _Segment, time_ns: int) -> float:
        elapsed_s = (time_ns - segment.start_ns) * 1e-9
        return segment.settled_k + (segment.rise_k - segment.settled_k) * math.exp(-self._rate * elapsed_s)


def latest_tick(now_ns: int, period_ns: int, phase_ns: int) -> tuple[int, int]:
    """Return the number and time in ns of the last tick at or before `now_ns`."""
    number = (now_ns - phase_ns) // period_ns
    return number, phase_ns + number * period_ns


def noise(seed: int, tick: int) -> float:
    """A triangular number of mean 0 and standard deviation 1 that only seed and tick decide; cheaper than a digest."""
    bits = (seed + tick * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    bits ^= bits >> 31
    return ((bits >> 32) + (bits & 0xFFFFFFFF) - 0xFFFFFFFF) / 2**32 * math.sqrt(6)
