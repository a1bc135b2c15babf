"""How one subject is measured: build, warm up, the three times, power. The same on every bench."""

from __future__ import annotations

from clockwatt.config import MeasurementConfig
from clockwatt.measure.bench.interface import (
    Bench,
    OutOfMemoryError,
    QueuedBlock,
    Subject,
    SubjectFailedError,
    Workload,
)
from clockwatt.measure.calibrate.calibration import DEVICE, HOST, POWER_LIMIT, TIME_REPEATABILITY, Calibration
from clockwatt.measure.statistics import Estimate, mean_estimate, median_estimate
from clockwatt.measure.steps import energy
from clockwatt.measure.steps.conditions import Surroundings, pace_of, put_conditions, put_energy, put_power
from clockwatt.measure.steps.load import run_under_load
from clockwatt.measure.steps.unthrottled import energy_with_pauses
from clockwatt.schema.records import FAILED, OPERATION, OUT_OF_MEMORY, MeasurementRow

_QUEUED_MAX_CALLS = 64
"""Most calls in a queued block; halved until all fit into the launch queue before the first one runs."""
_QUEUED_BLOCK_S = 0.01
_QUEUED_BUDGET_S = 0.2
_FORWARD_BUDGET_S = 0.08
_QUEUED_MIN_BLOCKS, _QUEUED_MAX_BLOCKS = 5, 40
_PASS_CALLS = 8
"""Calls that share a backward pass; fewer where they take long or do not fit into memory."""
_PASS_S = 0.01
_PASS_BUDGET_S = 0.08
_PASS_MIN_BLOCKS, _PASS_MAX_BLOCKS = 3, 12
_HOST_BLOCK_CALLS = 100
_HOST_BLOCKS = 20
_ERROR_LENGTH = 500
_BUILD_S, _HOST_ONLY_S, _JUDGING_S, _PAUSES_S = 0.15, 0.1, 0.2, 0.1
"""Typical, for planning only."""


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
    start_ns = bench.now_ns()
    try:
        with bench.open(subject) as workload:
            row.instances = workload.instances
            row.working_set = workload.working_set
            row.working_set_bytes = workload.working_set_bytes
            if subject.device_work:
                _measure_device_work(bench, workload, row, config, around)
            else:
                _measure_host_only(bench, workload, row, around)
            row.memory_peak_bytes = bench.memory_peak_bytes()
            if workload.has_forward:
                _put_time(row, "host_in_pass", host_time_in_pass(bench, workload, row.time_eager_s), around, HOST)
    except OutOfMemoryError as error:
        row.status, row.error = OUT_OF_MEMORY, str(error)[:_ERROR_LENGTH]
    except SubjectFailedError as error:
        row.status, row.error = FAILED, str(error)[:_ERROR_LENGTH]
    row.ended_us = bench.now_us()
    row.duration_s = (bench.now_ns() - start_ns) / 1e9


def _measure_host_only(bench: Bench, workload: Workload, row: MeasurementRow, around: Surroundings) -> None:
    blocks = [bench.host_block(workload, _HOST_BLOCK_CALLS) for _ in range(_HOST_BLOCKS)]
    _put_time(row, "host", median_estimate(blocks), around, HOST)
    row.time_device_s = row.time_device_standard_error_s = 0.0
    row.time_eager_s, row.time_eager_standard_error_s = row.time_host_s, row.time_host_standard_error_s
    row.energy_dynamic_j = row.energy_dynamic_standard_error_j = 0.0
    row.iterations, row.blocks = _HOST_BLOCK_CALLS * _HOST_BLOCKS, _HOST_BLOCKS


def _measure_device_work(
    bench: Bench, workload: Workload, row: MeasurementRow, config: MeasurementConfig, around: Surroundings
) -> None:
    queued = queued_blocks(bench, workload)
    if queued:
        _put_time(row, "host", median_estimate([block.host_s for block in queued]), around, HOST)
        _put_time(row, "device", mean_estimate([block.device_s for block in queued]), around, DEVICE)
    else:
        row.flags.append("not_queueable")
    if queued and workload.has_forward:
        parts = queued_blocks(bench, workload, forward=True, budget_s=_FORWARD_BUDGET_S)
        host, device = (median_estimate([getattr(part, name) for part in parts]) for name in ("host_s", "device_s"))
        row.time_host_forward_s = host.value if host else None
        row.time_device_forward_s = device.value if device else None
    call_s = max(row.time_host_s, row.time_device_s) if row.time_host_s and row.time_device_s else None
    run = run_under_load(bench, workload, config, around.calibration.sensors, call_s)
    row.warm_up_s = (run.window.start_ns - run.begun_ns) / 1e9
    row.window_s, row.stopped_by = run.window.seconds, run.stopped_by
    row.blocks, row.iterations = len(run.block_times_s), len(run.block_times_s) * run.calls
    put_conditions(row, run, around)
    put_power(row, run, around)
    _put_time(row, "eager", mean_estimate(run.block_times_s), around, pace_of(row))
    put_energy(row, around)
    if call_s is not None and row.kind == OPERATION and pace_of(row) == POWER_LIMIT:
        paced = energy_with_pauses(bench, workload, call_s, around)
        row.energy_dynamic_paced_j = paced.value if paced else None
        row.energy_dynamic_paced_standard_error_j = paced.standard_error if paced else None


def queued_blocks(
    bench: Bench, workload: Workload, *, forward: bool = False, budget_s: float = _QUEUED_BUDGET_S
) -> list[QueuedBlock]:
    """Queued blocks until their budget in s is spent, at least a few; none if even a single call cannot be queued."""
    trial = bench.queued_block(workload, 1, forward=forward)
    if trial is None:
        return []
    # a long call needs no long block, and a short block has a short wait before it
    calls = max(1, min(_QUEUED_MAX_CALLS, round(_QUEUED_BLOCK_S / max(trial.host_s, trial.device_s))))
    blocks: list[QueuedBlock] = []
    begun_ns = bench.now_ns()
    while len(blocks) < _QUEUED_MIN_BLOCKS or (
        len(blocks) < _QUEUED_MAX_BLOCKS and (bench.now_ns() - begun_ns) / 1e9 < budget_s
    ):
        block = bench.queued_block(workload, calls, forward=forward)
        if block is not None:
            blocks.append(block)
        elif calls > 1:
            calls //= 2
        else:
            return []
    return blocks


def host_time_in_pass(
    bench: Bench, workload: Workload, call_s: float | None, budget_s: float = _PASS_BUDGET_S
) -> Estimate | None:
    """Host time in s of a training call among others of a pass: what more of them take, over how many more.

    A call measured alone starts a backward pass of its own, which in a network it does not.

    Parameters
    ----------
    call_s
        About how long a call takes back to back.
    budget_s
        Time in s after which the least number of blocks is enough.
    """
    calls = max(2, min(_PASS_CALLS, round(_PASS_S / call_s))) if call_s else _PASS_CALLS
    while calls > 1 and bench.pass_block(workload, calls) is None:
        calls //= 2
    if calls < 2:
        return None
    slopes: list[float] = []
    begun_ns = bench.now_ns()
    while len(slopes) < _PASS_MIN_BLOCKS or (
        len(slopes) < _PASS_MAX_BLOCKS and (bench.now_ns() - begun_ns) / 1e9 < budget_s
    ):
        several, one = bench.pass_block(workload, calls), bench.pass_block(workload, 1)
        if several is None or one is None:
            return None
        slopes.append((several - one) / (calls - 1))
    return median_estimate(slopes)


def _put_time(row: MeasurementRow, which: str, estimate: Estimate | None, around: Surroundings, pace: str) -> None:
    """Put a time that `pace` sets into the row; its error holds what short measurements differ from sustained ones."""
    if estimate is None:
        return
    between = around.calibration.error_between(TIME_REPEATABILITY, pace)
    setattr(row, f"time_{which}_s", estimate.value)
    setattr(row, f"time_{which}_standard_error_s", estimate.with_error(between * estimate.value).standard_error)


def expected_duration_s(config: MeasurementConfig, *, device_work: bool) -> float:
    """About how long one measurement takes, all in, for planning."""
    if not device_work:
        return _HOST_ONLY_S
    return _BUILD_S + _QUEUED_BUDGET_S + config.warm_up_min_s + _JUDGING_S + config.window_min_s + _PAUSES_S
