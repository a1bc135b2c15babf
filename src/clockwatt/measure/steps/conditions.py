"""Write power, energy and conditions of a run under load into its row."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clockwatt.gpu.interface import throttle_reason_names
from clockwatt.measure.calibrate.calibration import DEVICE, HOST, POWER_LIMIT, Calibration
from clockwatt.measure.statistics import Estimate
from clockwatt.measure.steps import energy
from clockwatt.measure.steps.load import LoadRun, has_trend
from clockwatt.schema.costs import POWER_BY_ESTIMATOR
from clockwatt.schema.flags import Flag
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import MeasurementRow, TelemetryRow

CLOCK_TOLERANCE = 0.02
"""Relative deviation of the median SM clock under load from the one asked for that is flagged."""
TREND_ABOVE = 0.02
"""Relative change of time or power from the first to the second half of a window that is flagged."""
TEMPERATURE_DRIFT_ABOVE_K = 5.0
"""Change of temperature from the beginning of the load to its end that is flagged."""
_LIMITED = "sw_power_cap"
_NEAR_LIMIT = 0.95
"""Share of the power limit above which a load that has not met it yet may meet it if it lasts."""
INTERRUPTED_ABOVE_S = 0.5
"""Time of a block over twice the median, in s, above which the process or card counts as interrupted."""


@dataclass(frozen=True)
class Surroundings:
    """Conditions known before a measurement."""

    idle: Estimate | None = None
    """Power in W of the GPU with the context alive and the clock locked, without load."""
    calibration: Calibration = field(default_factory=Calibration)


def put_power(row: MeasurementRow, run: LoadRun, around: Surroundings) -> None:
    """Power by every estimator, and the chosen one; `put_conditions` comes first.

    The error of the chosen estimate holds what the readings scatter, what the estimators differ by beyond that, and
    what a short measurement differs by from a sustained one.
    """
    readings = energy.power_readings(run.telemetry)
    estimates = energy.estimate_all(readings, run.window, around.calibration.sensors)
    for name, estimate in estimates.items():
        POWER_BY_ESTIMATOR[name].put(row, estimate.value, estimate.standard_error)
    thesis = energy.thesis_power(readings, run.window)
    if thesis is not None:
        row.power_thesis_w, row.power_thesis_deviation_w = thesis.value, thesis.standard_error
    if energy.disagree(estimates):
        row.flags.append(Flag.SENSORS_DISAGREE)
    if energy.counter_wrapped(readings, run.window):
        row.flags.append(Flag.COUNTER_WRAPPED)
    if around.idle is not None:
        row.power_idle_w, row.power_idle_standard_error_w = around.idle.value, around.idle.standard_error
    chosen = energy.choose(estimates)
    if chosen is None:
        row.flags.append(Flag.NO_POWER)
        return
    row.power_estimator, power = chosen
    row.power_w = power.value
    power = power.with_error(energy.between_estimators(estimates)).with_error(_between_measurements_w(row, around))
    row.power_standard_error_w = power.standard_error


def _between_measurements_w(row: MeasurementRow, around: Surroundings) -> float:
    """Return the deviation of the power of a short measurement from a sustained one.

    The energy of a call above idle does not depend on host speed, so power changes with host speed.
    """
    pace, power_w = pace_of(row), abs(row.power_w or 0.0)
    error_w = around.calibration.error_between(CalibrationQuantity.POWER_REPEATABILITY, pace) * power_w
    if pace != HOST:
        return error_w
    dynamic_w = max(0.0, power_w - (row.power_idle_w or 0.0))
    return float(
        np.hypot(error_w, around.calibration.error_between(CalibrationQuantity.TIME_REPEATABILITY, pace) * dynamic_w)
    )


def pace_of(row: MeasurementRow) -> str:
    """Return the bottleneck of back-to-back calls: `host`, `device`, or the device at its `power_limit` or close to it.

    `put_conditions` and `put_power` come first.
    """
    if _LIMITED in row.throttle_reasons or (row.power_w or 0.0) > _NEAR_LIMIT * (row.power_limit_w or np.inf):
        return POWER_LIMIT
    queued = row.time_host_s is not None and row.time_device_s is not None
    return HOST if queued and (row.time_host_s or 0.0) > (row.time_device_s or 0.0) else DEVICE


def put_energy(row: MeasurementRow, around: Surroundings) -> None:
    """Energy per call, from the row's power and eager time."""
    time_s, time_error_s = row.time_eager_s, row.time_eager_standard_error_s
    if time_s is None or time_error_s is None or row.power_w is None or row.power_standard_error_w is None:
        return
    power, idle = Estimate(row.power_w, row.power_standard_error_w, 1), around.idle
    row.energy_j = power.value * time_s
    row.energy_standard_error_j = float(np.hypot(power.standard_error * time_s, power.value * time_error_s))
    if idle is not None:
        dynamic_w = power.value - idle.value
        dynamic_error_w = float(np.hypot(power.standard_error, idle.standard_error))
        row.energy_dynamic_j = dynamic_w * time_s
        row.energy_dynamic_standard_error_j = float(np.hypot(dynamic_error_w * time_s, dynamic_w * time_error_s))


def put_conditions(row: MeasurementRow, run: LoadRun, around: Surroundings) -> None:
    """Write the GPU's actual conditions during the window, with flags where they differ from those requested."""
    inside = [reading for reading in run.telemetry if run.window.start_ns <= reading.monotonic_ns <= run.window.end_ns]
    clocks = [reading.sm_clock_mhz for reading in inside if reading.sm_clock_mhz is not None]
    if clocks:
        row.sm_clock_median_mhz = float(np.median(clocks))
        row.sm_clock_min_mhz, row.sm_clock_max_mhz = float(min(clocks)), float(max(clocks))
    memory_clocks = [reading.memory_clock_mhz for reading in inside if reading.memory_clock_mhz is not None]
    row.memory_clock_median_mhz = float(np.median(memory_clocks)) if memory_clocks else None
    row.throttle_reasons = throttle_reason_names(
        int(np.bitwise_or.reduce([reading.throttle_reasons or 0 for reading in inside], initial=0))
    )
    limits = [reading.power_limit_w for reading in run.telemetry if reading.power_limit_w is not None]
    row.power_limit_w = limits[-1] if limits else None
    applies = {
        Flag.CLOCK_OFF_TARGET: _off(row.sm_clock_median_mhz, row.requested_sm_clock_mhz),
        Flag.MEMORY_CLOCK_OFF_TARGET: _off(row.memory_clock_median_mhz, row.requested_memory_clock_mhz),
        Flag.NOT_STATIONARY: _LIMITED not in row.throttle_reasons
        and (not run.steady or has_trend(run, around.calibration.sensors, TREND_ABOVE)),
        Flag.INTERRUPTED: _interrupted(run),
        Flag.TEMPERATURE_DRIFT: _put_temperature(row, run.telemetry),
    }
    row.flags += [flag for flag, flagged in applies.items() if flagged]


def _put_temperature(row: MeasurementRow, telemetry: list[TelemetryRow]) -> bool:
    temperatures = [reading.temperature_c for reading in telemetry if reading.temperature_c is not None]
    if not temperatures:
        return False
    row.temperature_start_c, row.temperature_end_c = temperatures[0], temperatures[-1]
    return abs(temperatures[-1] - temperatures[0]) > TEMPERATURE_DRIFT_ABOVE_K


def _interrupted(run: LoadRun) -> bool:
    block_s = np.array(run.block_times_s) * run.calls
    return bool(block_s.max() > 2 * np.median(block_s) + INTERRUPTED_ABOVE_S)


def _off(seen_mhz: float | None, asked_mhz: int | None) -> bool:
    return seen_mhz is not None and asked_mhz is not None and abs(seen_mhz - asked_mhz) > CLOCK_TOLERANCE * asked_mhz
