"""A subject under sustained load: warmed up until nothing changes any more, then timed until precise enough.

Nothing waits for the sensors meanwhile: readings are asked for and fetched when they have come, between two blocks that
are already issued, so that the load has no rhythm but its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from clockwatt.config import MeasurementConfig
from clockwatt.gpu.interface import SW_POWER_CAP
from clockwatt.gpu.sensing.sensors import SensorTraits
from clockwatt.measure.bench.interface import Bench, Workload
from clockwatt.measure.statistics import Estimate, halves_agree, mean_estimate
from clockwatt.measure.steps import energy
from clockwatt.schema.records import TelemetryRow

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


_BLOCK_S = 0.02
_ASK_EVERY_S = 0.1
_STRETCH_S = 0.2
"""Shortest window of the steadiness test, in s."""
_FEWEST_BLOCKS = 2
_SETTLE_S = 0.06
"""Time, in s, for blocks queued during the steadiness test to finish."""


@dataclass
class LoadRun:
    """Result of a run under load. Times are on the monotonic clock of the telemetry."""

    calls: int
    """Number of calls in each block."""
    begun_ns: int
    steady: bool = False
    """Whether the warm-up ended because nothing changed any more, not because its time was over."""
    window: energy.Window = field(default_factory=lambda: energy.Window(0, 0, 0))
    """Window in which power is read and blocks are timed."""
    block_times_s: list[float] = field(default_factory=list)
    """Seconds per call of each block in the window."""
    stopped_by: str = MAX_DURATION
    telemetry: list[TelemetryRow] = field(default_factory=list)
    """All rows since the beginning of the load."""


class _Readings:
    """Telemetry of a load under way, fetched without waiting for it."""

    def __init__(self, bench: Bench, into: list[TelemetryRow]) -> None:
        self._bench, self._rows = bench, into
        self._asked = False
        self._not_before_ns = 0

    def came(self, *, wanted: bool) -> bool:
        """Return whether an answer has come; asks for the next one if it is wanted."""
        now_ns = self._bench.now_ns()
        if self._asked:
            answer = self._bench.telemetry_answer()
            if answer is None:
                return False
            self._rows += answer
            self._asked = False
            self._not_before_ns = now_ns + round(_ASK_EVERY_S * 1e9)
            return True
        if wanted and now_ns >= self._not_before_ns:
            self._bench.ask_telemetry()
            self._asked = True
        return False

    def rest(self) -> None:
        """Fetch what is missing, waiting for it."""
        self._rows += self._bench.take_telemetry()


def run_under_load(
    bench: Bench,
    workload: Workload,
    config: MeasurementConfig,
    sensors: Mapping[str, SensorTraits],
    call_s: float | None,
) -> LoadRun:
    """Call `workload` back to back: warm up until steady, then until time and power are precise enough.

    Parameters
    ----------
    sensors
        Periods and averaging windows, from the calibration; may be empty.
    call_s
        About what a call takes, if that is known.
    """
    calls = calls_per_block(bench, workload) if call_s is None else max(1, round(_BLOCK_S / call_s))
    bench.take_telemetry()
    run = LoadRun(calls, bench.now_ns())
    readings = _Readings(bench, run.telemetry)
    with contextlib.closing(bench.eager_blocks(workload, calls)) as blocks:
        _warm_up(bench, blocks, run, readings, config, sensors)
        _measure(bench, blocks, run, readings, config, sensors)
    readings.rest()
    return run


def calls_per_block(bench: Bench, workload: Workload) -> int:
    """Return the number of calls that take about 20 ms, from a trial that grows until it can be timed."""
    calls = 1
    while True:
        with contextlib.closing(bench.eager_blocks(workload, calls)) as blocks:
            duration_s = min(next(blocks), next(blocks))
        if duration_s >= _BLOCK_S / 4:
            return max(1, round(calls * _BLOCK_S / duration_s))
        calls *= 8


def _warm_up(
    bench: Bench,
    blocks: Generator[float],
    run: LoadRun,
    readings: _Readings,
    config: MeasurementConfig,
    sensors: Mapping[str, SensorTraits],
) -> None:
    rule = SteadyRule(config.warm_up_min_s, config.warm_up_max_s)
    ends_ns: list[int] = []
    times_s: list[float] = []
    since_ns = run.begun_ns
    for duration_s in blocks:
        now_ns = bench.now_ns()
        elapsed_s = (now_ns - run.begun_ns) / 1e9
        ends_ns.append(now_ns)
        times_s.append(duration_s)
        # a call can take longer than the warm-up: the answer should be there when the next one ends
        if readings.came(wanted=elapsed_s + duration_s >= rule.min_s) and elapsed_s >= rule.min_s:
            since_ns, powers, clocks = _latest_stretch(run, now_ns, sensors)
            recent = [time_s for time_s, end_ns in zip(times_s, ends_ns, strict=True) if end_ns >= since_ns]
            limited = is_power_limited(run.telemetry)
            run.steady = since_ns > run.begun_ns and (limited or rule.steady(recent, powers, clocks))
            if run.steady:
                break
        if elapsed_s >= rule.max_s:
            break
    judged_ns = bench.now_ns()
    while (bench.now_ns() - judged_ns) / 1e9 < _SETTLE_S:
        next(blocks)
    start_ns = bench.now_ns()
    run.window = energy.Window(since_ns if run.steady else start_ns, start_ns, start_ns)


def _latest_stretch(
    run: LoadRun, now_ns: int, sensors: Mapping[str, SensorTraits]
) -> tuple[int, list[float], list[float]]:
    """Return the start (ns) of the window for the steadiness test, and its power readings and SM clocks.

    The stretch has enough readings of the quickest power sensor, and none whose averaging window reaches back to
    before the load.
    """
    power, traits = energy.quickest(energy.power_readings(run.telemetry), sensors)
    period_s = traits.period_s or 0.0
    stretch_ns = round(max(_STRETCH_S, FEWEST_READINGS * period_s) * 1e9)
    delay_ns = round((traits.window_s or period_s) * 1e9)
    since_ns = max(now_ns - stretch_ns, run.begun_ns + delay_ns)
    if power.time_ns.size:
        # a sensor's answer is as old as its last reading, and its period may not be known
        enough = power.time_ns[-FEWEST_READINGS:]
        since_ns = min(since_ns, int(power.time_ns[-1]) - stretch_ns, int(enough[0]))
    read = [(row.monotonic_ns, float(row.sm_clock_mhz)) for row in run.telemetry if row.sm_clock_mhz is not None]
    # the clock is read less often than the stretch is long: the latest few readings, if they are of this load
    clocks = [mhz for time_ns, mhz in read[-FEWEST_READINGS:] if time_ns > run.begun_ns]
    if since_ns < run.begun_ns + delay_ns:
        return run.begun_ns, [], clocks
    return since_ns, list(power.within(since_ns, now_ns).value), clocks


def _measure(
    bench: Bench,
    blocks: Generator[float],
    run: LoadRun,
    readings: _Readings,
    config: MeasurementConfig,
    sensors: Mapping[str, SensorTraits],
) -> None:
    rule = PrecisionRule(config.precision, config.window_min_s, config.window_max_s)
    window, power = run.window, None
    limited = is_power_limited(run.telemetry)
    for duration_s in blocks:
        run.block_times_s.append(duration_s / run.calls)
        window = energy.Window(run.window.steady_ns, run.window.start_ns, bench.now_ns())
        unknown = not run.steady and power is None and window.seconds >= rule.min_s
        wanted = not limited and (unknown or rule.time_is_precise(window.seconds, run.block_times_s))
        if readings.came(wanted=wanted):
            limited = is_power_limited(run.telemetry)
            power = chosen_power(run.telemetry, window, sensors)
        reason = rule.reason(window.seconds, run.block_times_s, power, power_limited=limited)
        if reason and len(run.block_times_s) >= _FEWEST_BLOCKS:
            run.stopped_by = reason
            break
    run.window = window


def is_power_limited(telemetry: list[TelemetryRow]) -> bool:
    """Return whether the power limit has set the clock at any time since the load began."""
    return any((row.throttle_reasons or 0) & SW_POWER_CAP for row in telemetry)


def chosen_power(
    telemetry: list[TelemetryRow], window: energy.Window, sensors: Mapping[str, SensorTraits]
) -> Estimate | None:
    """Return the best estimate of the power in a window as far as it has been read."""
    chosen = energy.choose(energy.estimate_all(energy.power_readings(telemetry), window, sensors))
    return chosen[1] if chosen else None


def has_trend(run: LoadRun, sensors: Mapping[str, SensorTraits], tolerance: float) -> bool:
    """Return whether time or power still changed within the window."""
    power, _ = energy.quickest(energy.power_readings(run.telemetry), sensors)
    inside = power.within(run.window.start_ns, run.window.end_ns).value
    return not (halves_agree(np.array(run.block_times_s), tolerance) and halves_agree(inside, tolerance))
