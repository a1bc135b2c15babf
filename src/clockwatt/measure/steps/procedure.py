"""Measure one subject on any bench: build, warm up, the three times, power.

What the power limit slows is measured again with pauses between calls. Back to back such calls run at a lowered clock,
where a call needs less energy and more time. In a network, other calls let the card recover meanwhile.
"""

from __future__ import annotations

from clockwatt.config import MeasurementConfig
from clockwatt.gpu.sensing.sensors import AVERAGE, COUNTER, RING
from clockwatt.measure.bench.interface import (
    Bench,
    OutOfMemoryError,
    Subject,
    SubjectFailedError,
    Workload,
)
from clockwatt.measure.calibrate.calibration import DEVICE, HOST, POWER_LIMIT, Calibration
from clockwatt.measure.statistics import Estimate, mean_estimate
from clockwatt.measure.steps import energy
from clockwatt.measure.steps.conditions import Surroundings, pace_of, put_conditions, put_energy, put_power
from clockwatt.measure.steps.load import run_under_load
from clockwatt.measure.steps.times import (
    FULL,
    TIME_ALONE,
    BlocksRule,
    QueuedTimes,
    TimeRules,
    eager_time,
    host_only_time,
    host_time_in_pass,
    queued_times,
)
from clockwatt.schema.costs import TIME_DEVICE, TIME_EAGER, TIME_HOST, TIME_HOST_IN_PASS, Measured
from clockwatt.schema.flags import Flag
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import ENERGY, FAILED, NETWORK, OPERATION, OUT_OF_MEMORY, TIME, MeasurementRow

_ERROR_LENGTH = 500
_TIMES_S, _HOST_ONLY_S, _JUDGING_S, _PAUSES_S, _TIME_ALONE_S = 0.1, 0.05, 0.2, 0.1, 0.04
"""Typical, for planning only."""
_EAGER = BlocksRule(fewest=5, most=100, budget_s=0.5, block_s=0.02)
"""Blocks of a network back to back where time alone is measured."""


def measure_idle(bench: Bench, seconds: float, calibration: Calibration) -> Estimate | None:
    """Let the GPU idle and read its power in W in the second half, once the load before has left the sensors."""
    bench.idle(seconds / 2)
    bench.take_telemetry()
    start_ns = bench.now_ns()
    bench.idle(seconds / 2)
    readings = energy.power_readings(bench.take_telemetry())
    window = energy.Window(start_ns, start_ns, bench.now_ns())
    chosen = energy.choose(energy.estimate_all(readings, window, calibration.sensors))
    return chosen[1] if chosen else None


def measure(
    bench: Bench, subject: Subject, row: MeasurementRow, config: MeasurementConfig, around: Surroundings
) -> None:
    """Measure `subject` and fill in `row`; what does not fit or fails ends as a row that says so.

    Raises
    ------
    BenchLostError
        If the GPU can no longer be used. The row is filled in as failed first.
    """
    row.started_us = bench.now_us()
    row.quantities = [TIME, ENERGY] if subject.energy else [TIME]
    rules = FULL if subject.energy else TIME_ALONE
    start_ns = bench.now_ns()
    try:
        with bench.open(subject) as workload:
            row.instances = workload.instances
            row.working_set = workload.working_set
            row.working_set_bytes = workload.working_set_bytes
            if not subject.device_work:
                _measure_host_only(bench, workload, row, rules, around)
            elif subject.energy:
                _measure_device_work(bench, workload, row, config, around)
            else:
                _measure_time_alone(bench, workload, row, config, around)
            row.memory_peak_bytes = bench.memory_peak_bytes()
            if subject.kind == NETWORK:
                row.memory_reserved_bytes = bench.memory_reserved_bytes()
            if workload.has_backward:
                call_s = row.time_eager_s or _slower_s(row)
                in_pass = host_time_in_pass(bench, workload, call_s, rules.in_pass)
                _put_time(row, TIME_HOST_IN_PASS, in_pass, around, HOST)
    except OutOfMemoryError as error:
        row.status, row.error = OUT_OF_MEMORY, str(error)[:_ERROR_LENGTH]
    except SubjectFailedError as error:
        row.status, row.error = FAILED, str(error)[:_ERROR_LENGTH]
    row.ended_us = bench.now_us()
    row.duration_s = (bench.now_ns() - start_ns) / 1e9


def _measure_host_only(
    bench: Bench, workload: Workload, row: MeasurementRow, rules: TimeRules, around: Surroundings
) -> None:
    host, row.iterations = host_only_time(bench, workload, rules.host_only)
    row.blocks = host.samples if host else None
    _put_time(row, TIME_HOST, host, around, HOST)
    row.time_device_s = row.time_device_standard_error_s = 0.0
    row.time_eager_s, row.time_eager_standard_error_s = row.time_host_s, row.time_host_standard_error_s
    if ENERGY in (row.quantities or ()):
        row.energy_dynamic_j = row.energy_dynamic_standard_error_j = 0.0


def _measure_time_alone(
    bench: Bench, workload: Workload, row: MeasurementRow, config: MeasurementConfig, around: Surroundings
) -> None:
    """Host and device time; of a network back-to-back time too, which of an operation would take as long again."""
    _put_queued(row, queued_times(bench, workload, TIME_ALONE.queued), around)
    if workload.has_modules:
        eager = eager_time(bench, workload, _slower_s(row), config.warm_up_min_s, _EAGER)
        _put_time(row, TIME_EAGER, eager, around, pace_of(row))
        row.blocks = eager.samples if eager else None


def _put_queued(row: MeasurementRow, queued: QueuedTimes | None, around: Surroundings) -> None:
    if queued is None:
        row.flags.append(Flag.NOT_QUEUEABLE)
        return
    _put_time(row, TIME_HOST, queued.host, around, HOST)
    _put_time(row, TIME_DEVICE, queued.device, around, DEVICE)
    row.time_device_method = queued.method


def _slower_s(row: MeasurementRow) -> float | None:
    """Return the unthrottled time of a call back to back; None if host or device time is not known."""
    return max(row.time_host_s, row.time_device_s) if row.time_host_s and row.time_device_s else None


def _measure_device_work(
    bench: Bench, workload: Workload, row: MeasurementRow, config: MeasurementConfig, around: Surroundings
) -> None:
    _put_queued(row, queued_times(bench, workload, FULL.queued), around)
    call_s = _slower_s(row)
    run = run_under_load(bench, workload, config, around.calibration.sensors, call_s)
    row.warm_up_s = (run.window.start_ns - run.begun_ns) / 1e9
    row.window_s, row.stopped_by = run.window.seconds, run.stopped_by
    row.blocks, row.iterations = len(run.block_times_s), len(run.block_times_s) * run.calls
    put_conditions(row, run, around)
    put_power(row, run, around)
    _put_time(row, TIME_EAGER, mean_estimate(run.block_times_s), around, pace_of(row))
    put_energy(row, around)
    if call_s is not None and row.kind == OPERATION and pace_of(row) == POWER_LIMIT:
        unthrottled = energy_with_pauses(bench, workload, call_s, around)
        row.energy_dynamic_unthrottled_j = unthrottled.value if unthrottled else None
        row.energy_dynamic_unthrottled_standard_error_j = unthrottled.standard_error if unthrottled else None


def _put_time(row: MeasurementRow, which: Measured, estimate: Estimate | None, around: Surroundings, pace: str) -> None:
    """Put a time that `pace` sets into the row; its error holds what short measurements differ from sustained ones."""
    if estimate is None:
        return
    between = around.calibration.error_between(CalibrationQuantity.TIME_REPEATABILITY, pace)
    which.put(row, estimate.value, estimate.with_error(between * estimate.value).standard_error)


def expected_duration_s(config: MeasurementConfig, *, device_work: bool, energy: bool = True) -> float:
    """Return the approximate total duration of one measurement, for planning."""
    if not energy:
        return _TIME_ALONE_S
    if not device_work:
        return _HOST_ONLY_S
    return _TIMES_S + config.warm_up_min_s + _JUDGING_S + config.window_min_s + _PAUSES_S


_BURST_S = 0.005
_PAUSES = (0.5, 2.0)
"""Length of a pause over that of a burst: a longer one where the limit still acts, as it does when it is set low.

In still longer ones a card that the bursts have warmed leaks more than they need.
"""
_WINDOW_S = 1.0
_SENSORS = {"counter": COUNTER, "average": AVERAGE, "samples": RING}
"""Estimates that may see all of the time, and their sensors; others see that of the bursts, or of the pauses."""
_TRIALS = 5
_AROUND_AT_MOST_S = 5e-4
"""What begins and ends a burst; what a call alone takes beyond that is the limit's doing."""
_SLOWED_ABOVE = 1.05
"""Time of a call in a burst over that of one alone beyond which the limit acts."""


def energy_with_pauses(bench: Bench, workload: Workload, call_s: float, around: Surroundings) -> Estimate | None:
    """Return the energy of a call in J above idle power where pauses keep the card below its power limit.

    None if idle power is not known, no power can be read, or the limit acts even with the longest pauses.

    Parameters
    ----------
    call_s
        What a call takes where the power limit does not act.
    """
    if around.idle is None:
        return None
    calls = max(1, round(_BURST_S / call_s))
    around_s = _around(bench, workload, call_s)
    for pause in _PAUSES:
        bench.take_telemetry()
        bursts_s: list[float] = []
        start_ns = bench.now_ns()
        while (bench.now_ns() - start_ns) / 1e9 < _WINDOW_S:
            bursts_s.append(bench.timed_run(workload, calls))
            bench.idle(pause * calls * call_s)
        window = energy.Window(start_ns, start_ns, bench.now_ns())
        if sum(bursts_s) <= len(bursts_s) * (around_s + _SLOWED_ABOVE * calls * call_s):
            return _above_idle(bench, window, around, around.idle, len(bursts_s) * calls)
    return None


def _around(bench: Bench, workload: Workload, call_s: float) -> float:
    """Time in s that a burst takes beyond its calls: the device waits for the first one, the host for the last."""
    alone_s = []
    for _ in range(_TRIALS):
        bench.idle(_PAUSES[-1] * call_s)
        alone_s.append(bench.timed_run(workload, 1))
    return min(max(0.0, min(alone_s) - call_s), _AROUND_AT_MOST_S)


def _sees_all(estimate: str, sensors: energy.Sensors) -> bool:
    """Return whether the averaging windows of an estimate's sensor leave no gap, as far as is known."""
    if estimate not in _SENSORS:
        return False
    traits = sensors.get(_SENSORS[estimate])
    if traits is None or traits.window_s is None or traits.period_s is None:
        return True
    return _SENSORS[estimate] == COUNTER or traits.window_s >= traits.period_s


def _above_idle(
    bench: Bench, window: energy.Window, around: Surroundings, idle: Estimate, calls: int
) -> Estimate | None:
    readings = energy.power_readings(bench.take_telemetry())
    estimates = energy.estimate_all(readings, window, around.calibration.sensors)
    estimates = {name: estimate for name, estimate in estimates.items() if _sees_all(name, around.calibration.sensors)}
    chosen = energy.choose(estimates)
    if chosen is None:
        return None
    power = chosen[1].with_error(energy.between_estimators(estimates))
    power = power.with_error(
        around.calibration.error_between(CalibrationQuantity.POWER_REPEATABILITY, DEVICE) * power.value
    )
    per_call_s = window.seconds / calls
    above = Estimate(power.value - idle.value, power.standard_error, power.samples).with_error(idle.standard_error)
    return Estimate(above.value * per_call_s, above.standard_error * per_call_s, above.samples)
