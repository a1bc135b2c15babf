"""Determine the update period and averaging window of a GPU's power sensors by polling.

The windows are found as in Yang, Adamek and Armour, Accurate and Convenient Energy Measurements for GPUs (SC 2024): a
load is switched on and off at known times, and the mean over a window of which length follows the readings best?
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

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
from clockwatt.gpu.sensing.ticks import tick_period_s, tick_times_s
from clockwatt.gpu.sensing.windows import Steps, averaging_window_s

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


__all__ = [
    "AVERAGE", "COUNTER", "FEWEST_CHANGES", "INSTANT", "RING", "Load", "SensorTraits", "sensor_traits",
    "update_periods_s",
]  # fmt: skip

FEWEST_CHANGES = 4
_SHORTEST_PULSE_S, _LONGEST_PULSE_S = 0.03, 0.3

Load = Callable[[], AbstractContextManager[Callable[[float], None]]]
"""Gives a context in which a load runs; what it yields lets so many seconds pass while the load runs on."""


@dataclass(frozen=True)
class SensorTraits:
    """Traits of a power sensor; None where one could not be determined.

    Attributes
    ----------
    period_s
        Time between new values, in s.
    window_s
        Length of the window over which a value is the mean, in s; for the energy counter, of the power between ticks.
    """

    period_s: float | None
    window_s: float | None


def sensor_traits(
    gpu: Gpu,
    *,
    now_ns: Callable[[], int],
    now_us: Callable[[], int],
    rest: Callable[[float], None],
    load: Load,
    duration_s: float = 7.0,
    poll_s: float = 0.002,
    seed: int = 0,
) -> dict[str, SensorTraits]:
    """Update period and averaging window of each power sensor, from its answer to a load switched on and off.

    The load stands for the power, or the ring of samples where the GPU has one at least twice as fast as the sensor,
    whichever explains the readings better: unlocked clocks follow a load late, which the ring sees. A window shorter
    than the ring's period is then given as that period.

    Parameters
    ----------
    gpu
        What is polled.
    now_ns
        Monotonic clock in ns: `time.monotonic_ns`, or that of a virtual GPU.
    now_us
        µs since the epoch, the clock of the ring's time stamps.
    rest
        Lets so many seconds pass without load.
    load
        See `Load`. It should draw much power but not meet the power limit, whose limiter would make it swing, and go on
        while a sensor is read, which can take 20 ms.
    duration_s
        How long to switch and poll.
    poll_s
        Pause between two rounds of readings.
    seed
        The seed of the lengths of the pulses: they must not keep step with a sensor.

    Returns
    -------
    dict
        Sensor (`AVERAGE`, `INSTANT`, `COUNTER`, `RING`) to traits. Missing sensors are left out.

    Raises
    ------
    GpuError
        As in `Poll`: if a sensor keeps failing.
    """
    poll = Poll(gpu, now_ns, now_us)
    lengths = np.random.default_rng(seed)
    load_edges = Trace([poll.now_s()], [0.0])
    end_s = poll.now_s() + duration_s
    while poll.now_s() < end_s:
        poll.until(poll.now_s() + lengths.uniform(_SHORTEST_PULSE_S, _LONGEST_PULSE_S), rest, poll_s)
        load_edges.times_s.append(poll.now_s())
        load_edges.values.append(0.0)
        with load() as wait:
            poll.until(poll.now_s() + lengths.uniform(_SHORTEST_PULSE_S, _LONGEST_PULSE_S), wait, poll_s)
        load_edges.times_s.append(poll.now_s())
        load_edges.values.append(1.0)
    return _traits(poll.finished(), load_edges)


def update_periods_s(
    gpu: Gpu,
    *,
    now_ns: Callable[[], int],
    wait: Callable[[float], None],
    duration_s: float = 2.0,
    poll_s: float = 0.002,
) -> dict[str, float | None]:
    """Return the update period of each power sensor in s, without running a load.

    Parameters
    ----------
    gpu, now_ns, duration_s, poll_s
        As for `sensor_traits`.
    wait
        Function that waits so many seconds: `time.sleep`, or a virtual GPU's `advance`.

    Returns
    -------
    dict
        Sensor to period; None for a sensor whose value changed too seldom. Missing sensors are left out.
    """
    poll = Poll(gpu, now_ns, now_us=lambda: now_ns() // 1000)
    poll.until(poll.now_s() + duration_s, wait, poll_s)
    return {name: _period_s(trace) for name, trace in poll.finished().items()}


def _traits(traces: dict[str, Trace], load: Trace) -> dict[str, SensorTraits]:
    periods = {name: _period_s(trace) for name, trace in traces.items()}
    ring, ring_period_s = traces.get(RING), periods.get(RING)
    traits = {}
    for name, trace in traces.items():
        period_s = periods[name]
        powers = [Steps(load.times_s, load.values)]
        if ring is not None and ring_period_s is not None and period_s is not None and 2 * ring_period_s <= period_s:
            powers.append(Steps(tick_times_s(ring.times_s), ring.values, finest_s=ring_period_s))
        traits[name] = SensorTraits(period_s, _window_s(name, trace, powers))
    return traits


def _window_s(name: str, trace: Trace, powers: list[Steps]) -> float | None:
    """Return the averaging window; of a sensor that does not tick evenly, readings belong to when they were seen."""
    ticks_s = tick_times_s(trace.times_s)
    if name == COUNTER:
        return averaging_window_s([ticks_s[1:]], np.diff(trace.values) / np.diff(ticks_s), powers)
    return averaging_window_s([trace.times_s, ticks_s], trace.values, powers)


def _period_s(trace: Trace) -> float | None:
    return tick_period_s(trace.times_s) if len(trace.times_s) >= FEWEST_CHANGES else None
