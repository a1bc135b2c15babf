"""Polling a GPU's power sensors: when each one showed a new value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from clockwatt.gpu.interface import (
    FOREIGN_CLOCK_US,
    SAME_SAMPLE_US,
    Gpu,
    GpuError,
    GpuLostError,
    NoPermissionError,
    NotSupportedError,
    PowerSample,
)

AVERAGE, INSTANT, COUNTER, RING = "power_average", "power_instant", "energy_counter", "power_samples"

MOST_FAILURES = 5
"""Number of failed readings of a sensor, as of a busy driver, before polling gives up."""
_SHARE = 0.5
"""Largest share of time spent on one slow sensor, since no other is read meanwhile."""
_DRAIN_S = 1.0  # the ring holds 119 samples of 20 ms

T = TypeVar("T")


@dataclass
class Trace:
    """New values of one sensor and when they were first seen, in s."""

    times_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class Poll:
    """Polls every power sensor there is, and notes each new value.

    Parameters
    ----------
    gpu
        What is polled.
    now_ns
        Monotonic clock in ns: `time.monotonic_ns`, or that of a virtual GPU.
    now_us
        µs since the epoch, the clock of the ring's time stamps.

    Raises
    ------
    GpuError
        Here and in every method, if a sensor fails more than `MOST_FAILURES` times; if the GPU is lost, at once.
    """

    def __init__(self, gpu: Gpu, now_ns: Callable[[], int], now_us: Callable[[], int]) -> None:
        self._now_ns, self._now_us = now_ns, now_us
        readings = {AVERAGE: gpu.power_average_w, INSTANT: gpu.power_instant_w, COUNTER: gpu.energy_counter_j}
        self._sensors = {name: _Sensor(name, read, self.now_s) for name, read in readings.items() if _is_there(read)}
        self._samples: list[PowerSample] = []
        self._ring = _Reading(RING, lambda: gpu.power_samples(self._newest_us()))
        self._has_ring = _is_there(lambda: gpu.power_samples(0))
        self._drain_s = self.now_s()

    def now_s(self) -> float:
        """Return the monotonic clock in s."""
        return self._now_ns() * 1e-9

    def until(self, end_s: float, wait: Callable[[float], None], poll_s: float) -> None:
        """Poll until `end_s`, letting `poll_s` pass by `wait` between rounds."""
        while self.now_s() < end_s:
            wait(poll_s)
            for sensor in self._sensors.values():
                sensor.look()
            if self.now_s() >= self._drain_s + _DRAIN_S:
                self._drain()

    def finished(self) -> dict[str, Trace]:
        """Return new values by sensor; those of the counter are in J."""
        traces = {name: sensor.trace for name, sensor in self._sensors.items()}
        if self._has_ring:
            while not self._drain():
                pass  # what fails is counted
            newest_us = self._samples[-1].time_us if self._samples else 0
            now_us = self._now_us()
            if abs(now_us - newest_us) > FOREIGN_CLOCK_US:
                now_us = newest_us
            now_s = self.now_s()
            traces[RING] = Trace(
                [now_s + (sample.time_us - now_us) * 1e-6 for sample in self._samples],
                [sample.power_w for sample in self._samples],
            )
        return traces

    def _newest_us(self) -> int:
        return self._samples[-1].time_us + SAME_SAMPLE_US if self._samples else 0

    def _drain(self) -> bool:
        """Return whether the ring answered."""
        self._drain_s = self.now_s()
        fresh = self._ring.answer() if self._has_ring else ()
        self._samples += fresh or ()
        return fresh is not None


class _Reading(Generic[T]):
    """A reading that may fail a few times."""

    def __init__(self, name: str, read: Callable[[], T]) -> None:
        self._name, self._read = name, read
        self._failures = 0

    def answer(self) -> T | None:
        """Return the answer, or None if the reading failed."""
        try:
            return self._read()
        except (GpuLostError, NoPermissionError, NotSupportedError):
            raise
        except GpuError as error:
            self._failures += 1
            if self._failures > MOST_FAILURES:
                raise GpuError(
                    f"{self._name} failed {self._failures} times while it was polled. Last: {error}"
                ) from error
            return None


class _Sensor:
    """One sensor and what it showed."""

    def __init__(self, name: str, read: Callable[[], float], now_s: Callable[[], float]) -> None:
        self.trace = Trace()
        self._reading, self._now_s = _Reading(name, read), now_s
        self._last = self._reading.answer()
        self._due_s = now_s()

    def look(self) -> None:
        """Read it, unless it was read a short while ago for how long that takes."""
        begun_s = self._now_s()
        if begun_s < self._due_s:
            return
        value = self._reading.answer()
        seen_s = self._now_s()
        self._due_s = seen_s + (seen_s - begun_s) * (1 / _SHARE - 1)
        if value is None or value == self._last:
            return
        if self._last is not None:
            self.trace.times_s.append(seen_s)
            self.trace.values.append(value)
        self._last = value


def _is_there(read: Callable[[], object]) -> bool:
    try:
        read()
    except NotSupportedError:
        return False
    except (GpuLostError, NoPermissionError):
        raise
    except GpuError:
        return True  # it will be read again, and failures counted
    return True
