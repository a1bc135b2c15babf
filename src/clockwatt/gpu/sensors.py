"""How often a GPU's power sensors get a new value, and over which time each value is a mean: found by polling them.

The windows are found as in Yang, Adamek and Armour, Accurate and Convenient Energy Measurements for GPUs (SC 2024): a
load is switched on and off at known times, and the mean over a window of which length follows the readings best?
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from clockwatt.gpu.interface import FOREIGN_CLOCK_US, SAME_SAMPLE_US, Gpu, NotSupportedError, PowerSample
from clockwatt.gpu.windows import Steps, averaging_window_s

AVERAGE, INSTANT, COUNTER, RING = "power_average", "power_instant", "energy_counter", "power_samples"

FEWEST_CHANGES = 4
_SHORTEST_PULSE_S, _LONGEST_PULSE_S = 0.03, 0.3
_DRAIN_S = 1.0  # the ring holds 119 samples of 20 ms

Load = Callable[[], AbstractContextManager[Callable[[float], None]]]
"""Gives a context in which a load runs; what it yields lets so many seconds pass while the load runs on."""


@dataclass(frozen=True)
class SensorTraits:
    """What a power sensor's readings mean; None for what could not be told.

    Attributes
    ----------
    period_s
        Time between new values, in s.
    window_s
        Length of the window over which a value is the mean, in s; for the energy counter, of the power between ticks.
    """

    period_s: float | None
    window_s: float | None


@dataclass
class _Trace:
    """New values of one sensor and when they were first seen, in s."""

    times_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


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
        What is polled. A reading can take milliseconds, so periods are known to about the time of a round of readings.
    now_ns
        Monotonic clock in ns: `time.monotonic_ns`, or that of a virtual GPU.
    now_us
        µs since the epoch, the clock of the ring's time stamps.
    rest
        Lets so many seconds pass without load.
    load
        See `Load`; the heavier, the better the windows are known.
    duration_s
        How long to switch and poll.
    poll_s
        Pause between two rounds of readings.
    seed
        Of the lengths of the pulses: they must not keep step with a sensor.

    Returns
    -------
    dict
        Sensor (`AVERAGE`, `INSTANT`, `COUNTER`, `RING`) to traits. Missing sensors are left out.
    """
    poll = _Poll(gpu, now_ns, now_us)
    lengths = np.random.default_rng(seed)
    load_edges = _Trace([poll.now_s()], [0.0])
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
    """Update period of each power sensor in s, without a load of one's own.

    Parameters
    ----------
    gpu, now_ns, duration_s, poll_s
        As for `sensor_traits`.
    wait
        Lets so many seconds pass: `time.sleep`, or a virtual GPU's `advance`.

    Returns
    -------
    dict
        Sensor to period; None for a sensor whose value changed too seldom to tell. Missing sensors are left out.
    """
    poll = _Poll(gpu, now_ns, now_us=lambda: now_ns() // 1000)
    poll.until(poll.now_s() + duration_s, wait, poll_s)
    return {name: _period_s(trace) for name, trace in poll.finished().items()}


class _Poll:
    """Polls every power sensor there is, and notes each new value."""

    def __init__(self, gpu: Gpu, now_ns: Callable[[], int], now_us: Callable[[], int]) -> None:
        self._gpu, self._now_ns, self._now_us = gpu, now_ns, now_us
        readings = {AVERAGE: gpu.power_average_w, INSTANT: gpu.power_instant_w, COUNTER: gpu.energy_counter_j}
        self._sensors = {name: read for name, read in readings.items() if _is_there(read)}
        self._last = {name: read() for name, read in self._sensors.items()}
        self._traces = {name: _Trace() for name in self._sensors}
        self._has_ring = _is_there(lambda: gpu.power_samples(0))
        self._samples: list[PowerSample] = []
        self._drain_s = self.now_s()

    def now_s(self) -> float:
        return self._now_ns() * 1e-9

    def until(self, end_s: float, wait: Callable[[float], None], poll_s: float) -> None:
        while self.now_s() < end_s:
            wait(poll_s)
            for name, read in self._sensors.items():
                value = read()
                if value != self._last[name]:
                    self._last[name] = value
                    self._traces[name].times_s.append(self.now_s())
                    self._traces[name].values.append(value)
            if self.now_s() >= self._drain_s + _DRAIN_S:
                self._drain()

    def finished(self) -> dict[str, _Trace]:
        """Sensor to its new values; the counter's are in J."""
        self._drain()
        traces = dict(self._traces)
        if self._has_ring:
            newest_us = self._samples[-1].time_us if self._samples else 0
            now_us = self._now_us()
            if abs(now_us - newest_us) > FOREIGN_CLOCK_US:
                now_us = newest_us
            now_s = self.now_s()
            traces[RING] = _Trace(
                [now_s + (sample.time_us - now_us) * 1e-6 for sample in self._samples],
                [sample.power_w for sample in self._samples],
            )
        return traces

    def _drain(self) -> None:
        self._drain_s = self.now_s()
        if self._has_ring:
            newest_us = self._samples[-1].time_us + SAME_SAMPLE_US if self._samples else 0
            self._samples += self._gpu.power_samples(newest_us)


def _traits(traces: dict[str, _Trace], load: _Trace) -> dict[str, SensorTraits]:
    periods = {name: _period_s(trace) for name, trace in traces.items()}
    ring, ring_period_s = traces.get(RING), periods.get(RING)
    traits = {}
    for name, trace in traces.items():
        period_s = periods[name]
        powers = [Steps(load.times_s, load.values)]
        if ring is not None and ring_period_s is not None and period_s is not None and 2 * ring_period_s <= period_s:
            powers.append(Steps(ring.times_s, ring.values, finest_s=ring_period_s))
        seen = _power_between_ticks(trace) if name == COUNTER else trace
        traits[name] = SensorTraits(period_s, averaging_window_s(seen.times_s, seen.values, powers))
    return traits


def _power_between_ticks(counter: _Trace) -> _Trace:
    pairs = list(itertools.pairwise(zip(counter.times_s, counter.values, strict=True)))
    powers = [(end_j - start_j) / (end_s - start_s) for (start_s, start_j), (end_s, end_j) in pairs]
    return _Trace(counter.times_s[1:], powers)


def _is_there(read: Callable[[], object]) -> bool:
    try:
        read()
    except NotSupportedError:
        return False
    return True


def _period_s(trace: _Trace) -> float | None:
    return _median_distance_s(trace.times_s) if len(trace.times_s) >= FEWEST_CHANGES else None


def _median_distance_s(times_s: Sequence[float]) -> float:
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times_s))
