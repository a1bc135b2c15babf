"""How one subject is measured: build, warm up, the three times, power. The same on every bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clockwatt.config import MeasurementConfig
from clockwatt.gpu.interface import throttle_reason_names
from clockwatt.measure import energy
from clockwatt.measure.bench import Bench, OutOfMemoryError, QueuedBlock, Subject, SubjectFailedError, Workload
from clockwatt.measure.statistics import Estimate, mean_estimate, median_estimate
from clockwatt.measure.stopping import PrecisionRule
from clockwatt.records import FAILED, OUT_OF_MEMORY, MeasurementRow, TelemetryRow

_QUEUED_MAX_CALLS = 64
"""Most calls in a queued block; halved until all fit into the launch queue before the first one runs."""
_QUEUED_BLOCK_S = 0.01
_QUEUED_BUDGET_S = 0.2
_FORWARD_BUDGET_S = 0.08
_QUEUED_MIN_BLOCKS, _QUEUED_MAX_BLOCKS = 5, 40
_EAGER_BLOCK_S = 0.02
_HOST_BLOCK_CALLS = 100
_HOST_BLOCKS = 20
_ERROR_LENGTH = 500
_BUILD_S, _HOST_ONLY_S = 0.15, 0.1
"""Typical, for planning only."""

CLOCK_TOLERANCE = 0.02
"""Relative deviation of the median SM clock under load from the one asked for that is flagged."""


@dataclass(frozen=True)
class IdlePower:
    """Power of the GPU with the context alive and the clock locked, before the load."""

    power: Estimate | None


def measure_idle(bench: Bench, seconds: float) -> IdlePower:
    """Let the GPU idle and read its power in the second half, once the load before has left the sensor's window."""
    bench.idle(seconds / 2)
    bench.take_telemetry()
    start_ns = bench.now_ns()
    bench.idle(seconds / 2)
    chosen = energy.choose(energy.estimate_all(energy.power_readings(bench.take_telemetry()), start_ns, bench.now_ns()))
    return IdlePower(chosen[1] if chosen else None)


def measure(bench: Bench, subject: Subject, row: MeasurementRow, config: MeasurementConfig, idle: IdlePower) -> None:
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
                _measure_device_work(bench, workload, row, config, idle)
            else:
                _measure_host_only(bench, workload, row)
            row.memory_peak_bytes = bench.memory_peak_bytes()
    except OutOfMemoryError as error:
        row.status, row.error = OUT_OF_MEMORY, str(error)[:_ERROR_LENGTH]
    except SubjectFailedError as error:
        row.status, row.error = FAILED, str(error)[:_ERROR_LENGTH]
    row.ended_us = bench.now_us()
    row.duration_s = (bench.now_ns() - start_ns) / 1e9


def _measure_host_only(bench: Bench, workload: Workload, row: MeasurementRow) -> None:
    blocks = [bench.host_block(workload, _HOST_BLOCK_CALLS) for _ in range(_HOST_BLOCKS)]
    _put_time(row, "host", median_estimate(blocks))
    row.time_device_s = row.time_device_standard_error_s = 0.0
    row.time_eager_s, row.time_eager_standard_error_s = row.time_host_s, row.time_host_standard_error_s
    row.energy_dynamic_j = row.energy_dynamic_standard_error_j = 0.0
    row.iterations, row.blocks = _HOST_BLOCK_CALLS * _HOST_BLOCKS, _HOST_BLOCKS


def _measure_device_work(
    bench: Bench, workload: Workload, row: MeasurementRow, config: MeasurementConfig, idle: IdlePower
) -> None:
    queued = _queued_blocks(bench, workload)
    if queued:
        _put_time(row, "host", median_estimate([block.host_s for block in queued]))
        _put_time(row, "device", mean_estimate([block.device_s for block in queued]))
    else:
        row.flags.append("not_queueable")
    if queued and workload.has_forward:
        parts = _queued_blocks(bench, workload, forward=True)
        host, device = (median_estimate([getattr(part, name) for part in parts]) for name in ("host_s", "device_s"))
        row.time_host_forward_s = host.value if host else None
        row.time_device_forward_s = device.value if device else None
    bench.take_telemetry()
    start_ns, end_ns = _run_eagerly(bench, workload, row, config)
    telemetry = bench.take_telemetry()
    row.window_s = (end_ns - start_ns) / 1e9
    _put_power(row, energy.power_readings(telemetry), start_ns, end_ns, idle)
    _put_conditions(row, telemetry, start_ns, end_ns)


def _queued_blocks(bench: Bench, workload: Workload, *, forward: bool = False) -> list[QueuedBlock]:
    """Queued blocks until their budget is spent; none if even a single call cannot be queued."""
    trial = bench.queued_block(workload, 1, forward=forward)
    if trial is None:
        return []
    # a long call needs no long block, and a short block has a short wait before it
    calls = max(1, min(_QUEUED_MAX_CALLS, round(_QUEUED_BLOCK_S / max(trial.host_s, trial.device_s))))
    budget_s = _FORWARD_BUDGET_S if forward else _QUEUED_BUDGET_S
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


def _run_eagerly(bench: Bench, workload: Workload, row: MeasurementRow, config: MeasurementConfig) -> tuple[int, int]:
    """Back-to-back calls: warm up, then time blocks until the rule says stop. Gives the window's ends in ns."""
    calls = _calls_per_block(bench, workload)
    rule = PrecisionRule(config.precision, config.window_min_s, config.window_max_s)
    begun_ns = bench.now_ns()
    blocks = bench.eager_blocks(workload, calls)
    for _ in blocks:
        if (bench.now_ns() - begun_ns) / 1e9 >= config.warm_up_s:
            break
    start_ns = bench.now_ns()
    row.warm_up_s = (start_ns - begun_ns) / 1e9
    times: list[float] = []
    for duration_s in blocks:
        times.append(duration_s / calls)
        end_ns = bench.now_ns()
        row.stopped_by = rule.reason((end_ns - start_ns) / 1e9, times)
        if row.stopped_by and len(times) >= 2:
            break
    blocks.close()
    _put_time(row, "eager", mean_estimate(times))
    row.blocks, row.iterations = len(times), len(times) * calls
    return start_ns, end_ns


def _calls_per_block(bench: Bench, workload: Workload) -> int:
    """As many calls as take about 20 ms, from a trial that grows until it can be timed."""
    calls = 1
    while True:
        blocks = bench.eager_blocks(workload, calls)
        duration_s = min(next(blocks), next(blocks))
        blocks.close()
        if duration_s >= _EAGER_BLOCK_S / 4:
            return max(1, round(calls * _EAGER_BLOCK_S / duration_s))
        calls *= 8


def _put_time(row: MeasurementRow, which: str, estimate: Estimate | None) -> None:
    setattr(row, f"time_{which}_s", estimate.value if estimate else None)
    setattr(row, f"time_{which}_standard_error_s", estimate.standard_error if estimate else None)


def _put_power(
    row: MeasurementRow, readings: energy.PowerReadings, start_ns: int, end_ns: int, idle: IdlePower
) -> None:
    estimates = energy.estimate_all(readings, start_ns, end_ns)
    for name, estimate in estimates.items():
        setattr(row, f"power_{name}_w", estimate.value)
        setattr(row, f"power_{name}_standard_error_w", estimate.standard_error)
    thesis = energy.thesis_power(readings, start_ns, end_ns)
    row.power_thesis_w = thesis.value if thesis else None
    if energy.disagree(estimates):
        row.flags.append("sensors_disagree")
    if idle.power is not None:
        row.power_idle_w, row.power_idle_standard_error_w = idle.power.value, idle.power.standard_error
    chosen = energy.choose(estimates)
    if chosen is None:
        row.flags.append("no_power")
        return
    row.power_estimator, power = chosen
    row.power_w, row.power_standard_error_w = power.value, power.standard_error
    time_s, time_error_s = row.time_eager_s, row.time_eager_standard_error_s
    if time_s is None or time_error_s is None:
        return
    row.energy_j = power.value * time_s
    row.energy_standard_error_j = float(np.hypot(power.standard_error * time_s, power.value * time_error_s))
    if idle.power is not None:
        dynamic_w = power.value - idle.power.value
        dynamic_error_w = float(np.hypot(power.standard_error, idle.power.standard_error))
        row.energy_dynamic_j = dynamic_w * time_s
        row.energy_dynamic_standard_error_j = float(np.hypot(dynamic_error_w * time_s, dynamic_w * time_error_s))


def _put_conditions(row: MeasurementRow, telemetry: Sequence[TelemetryRow], start_ns: int, end_ns: int) -> None:
    """What the GPU really did during the window; flags where it differs from what was asked."""
    inside = [reading for reading in telemetry if start_ns <= reading.monotonic_ns <= end_ns]
    clocks = [reading.sm_clock_mhz for reading in inside if reading.sm_clock_mhz is not None]
    if clocks:
        row.sm_clock_median_mhz = float(np.median(clocks))
        row.sm_clock_min_mhz, row.sm_clock_max_mhz = float(min(clocks)), float(max(clocks))
    memory_clocks = [reading.memory_clock_mhz for reading in inside if reading.memory_clock_mhz is not None]
    row.memory_clock_median_mhz = float(np.median(memory_clocks)) if memory_clocks else None
    if _off(row.sm_clock_median_mhz, row.requested_sm_clock_mhz):
        row.flags.append("clock_off_target")
    if _off(row.memory_clock_median_mhz, row.requested_memory_clock_mhz):
        row.flags.append("memory_clock_off_target")
    row.throttle_reasons = throttle_reason_names(
        int(np.bitwise_or.reduce([reading.throttle_reasons or 0 for reading in inside], initial=0))
    )
    temperatures = [reading.temperature_c for reading in telemetry if reading.temperature_c is not None]
    if temperatures:
        row.temperature_start_c, row.temperature_end_c = temperatures[0], temperatures[-1]
    limits = [reading.power_limit_w for reading in telemetry if reading.power_limit_w is not None]
    row.power_limit_w = limits[-1] if limits else None


def _off(seen_mhz: float | None, asked_mhz: int | None) -> bool:
    return seen_mhz is not None and asked_mhz is not None and abs(seen_mhz - asked_mhz) > CLOCK_TOLERANCE * asked_mhz


def expected_duration_s(config: MeasurementConfig, *, device_work: bool) -> float:
    """About how long one measurement takes, all in, for planning."""
    if not device_work:
        return _HOST_ONLY_S
    return _BUILD_S + _QUEUED_BUDGET_S + config.warm_up_s + (config.window_min_s + config.window_max_s) / 2
