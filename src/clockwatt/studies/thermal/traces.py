"""Read temperature, power and all other sensors of each GPU from records onto an even time grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt import signals
from clockwatt.errors import DataFileError
from clockwatt.telemetry.recording.gpu_summary import power_readings, readings
from clockwatt.telemetry.recording.host_readings import of_sockets, power_of_counter
from clockwatt.telemetry.recording.layout import HOST, Record, RecordedGpu, Run, read_record
from clockwatt.telemetry.recording.summary import telemetry_of

Array = NDArray[np.float64]

STEP_S = 1.0
"""Distance of the grid: NVML's temperature is read once a second, in whole degrees."""

SENSORS = (
    "sm_clock_mhz", "memory_clock_mhz", "gpu_utilization_percent", "memory_utilization_percent", "memory_used_bytes",
    "memory_temperature_c", "fan_speed_percent", "power_limit_w", "performance_state", "pcie_tx_kib_s", "pcie_rx_kib_s",
)  # fmt: skip
HOST_SENSORS = {
    "host_cpu_utilization_percent": "utilization_percent",
    "host_cpu_temperature_c": "temperature_c",
    "host_cpu_energy_j": "power_w",  # of a counter, per step
}
THERMAL_SLOWDOWN = 0x20 | 0x40
"""Bits of the throttle reasons: slowed by heat, by software or by hardware."""

_LONGEST_GAP_S = 5.0
_LEAST_STEPS = 3


@dataclass(frozen=True)
class Trace:
    """One GPU in one run, or in an uninterrupted stretch of it, on an even grid of `steps` times.

    Attributes
    ----------
    run, workload, host
        Which run of which record, the record's name, where it was.
    gpu, gpu_name, virtual
        UUID and model.
    step_s
        Distance of the grid.
    start_s
        Time of its first point since the program's start; before 0 the GPU idled.
    temperature_c
        As read, in whole degrees; shape (steps,).
    power_w
        Mean over the step that ends at each time; shape (steps,).
    neighbours, neighbours_w, neighbours_c
        UUIDs of the other GPUs of the record, their power and temperature; shape (steps, neighbours).
    sensors
        All others by name, NaN where there was no reading for 5 s; shape (steps,) each. Those of the host are
        `cpu0_power_w` and the like, numbered by socket.
    idle_w
        Mean power before the program's start; NaN if that was not recorded.
    slowed_from_c
        Lowest temperature at which the driver said that heat slowed the GPU down; NaN if it never did.
    part
        Which of the uninterrupted stretches of the run, from 0.
    """

    run: str
    workload: str
    host: str
    gpu: str
    gpu_name: str
    virtual: bool
    step_s: float
    start_s: float
    temperature_c: Array
    power_w: Array
    neighbours: tuple[str, ...] = ()
    neighbours_w: Array = field(default_factory=lambda: np.zeros((0, 0)))
    neighbours_c: Array = field(default_factory=lambda: np.zeros((0, 0)))
    sensors: dict[str, Array] = field(default_factory=dict)
    idle_w: float = float("nan")
    slowed_from_c: float = float("nan")
    part: int = 0

    def __len__(self) -> int:
        return len(self.temperature_c)

    @property
    def time_s(self) -> Array:
        """Times since the program's start; shape (steps,)."""
        return np.asarray(self.start_s + self.step_s * np.arange(len(self)), float)

    def alone(self) -> Trace:
        """Return the same without its neighbours."""
        nobody = np.zeros((len(self), 0))
        return replace(self, neighbours=(), neighbours_w=nobody, neighbours_c=nobody)


@dataclass(frozen=True)
class Traces:
    """All that records say, and what they lack."""

    traces: list[Trace]
    notes: list[str]


def read_traces(
    folders: Iterable[Path], *, step_s: float = STEP_S, workload_of: Callable[[Path], str] | None = None
) -> Traces:
    """Read records, each a folder that `clockwatt record` wrote; `workload_of` names a folder's workload.

    Raises
    ------
    DataFileError
        If a folder holds no record or a damaged one, comes twice, or none of them has a GPU whose temperature and power
        were read for a few seconds.
    """
    traces: list[Trace] = []
    notes: list[str] = []
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise DataFileError(f"{folder}: given twice. Name each record once.")
        seen.add(folder.resolve())
        record = read_record(folder)
        if workload_of is not None:
            record.name = workload_of(folder)
        found = [trace for run in record.runs for trace in _of_run(folder, record, run, step_s)]
        if not found:
            notes.append(f"{folder}: no GPU with readings of temperature and power for {_LEAST_STEPS} s; left out.")
        traces += found
    if not traces:
        names = ", ".join(str(folder) for folder in sorted(seen)) or "no record"
        raise DataFileError(
            f"{names}: no GPU's temperature and power were read for {_LEAST_STEPS} s or more. "
            "Record a program on a GPU with `clockwatt record --output DIR -- COMMAND`."
        )
    return Traces(traces, notes + _missing(traces))


def _missing(traces: Sequence[Trace]) -> list[str]:
    """Say which sensors no trace has."""
    there = {name for trace in traces for name, values in trace.sensors.items() if np.isfinite(values).any()}
    lacking = [name for name in SENSORS if name not in there]
    lacking += [
        f"processor {kind}" for kind in HOST_SENSORS.values() if not any(name.endswith(f"_{kind}") and name[:3] == "cpu"
        for name in there)
    ]  # fmt: skip
    return [f"Sensors that no GPU or host here has: {', '.join(lacking)}."] if lacking else []


def _of_run(folder: Path, record: Record, run: Run, step_s: float) -> list[Trace]:
    frames = {gpu.uuid: telemetry_of(folder, run, gpu.uuid) for gpu in record.gpus}
    warm = {uuid: readings(frame, "temperature_c") for uuid, frame in frames.items()}
    power = {uuid: power_readings(frame, float(frame["time_s"].max())) for uuid, frame in frames.items() if len(frame)}
    usable = [
        gpu for gpu in record.gpus if len(warm[gpu.uuid]) >= _LEAST_STEPS and len(power[gpu.uuid]) >= _LEAST_STEPS
    ]
    if not usable:
        return []
    host = telemetry_of(folder, run, HOST)
    stretches = _stretches([warm[gpu.uuid] for gpu in usable] + [power[gpu.uuid] for gpu in usable], step_s)
    name = f"{folder}/run-{run.number}"
    traces = []
    for number, grid in enumerate(stretches):
        watts = {gpu.uuid: _mean_power(power[gpu.uuid], grid) for gpu in usable}
        degrees = {gpu.uuid: _nearest(warm[gpu.uuid], grid) for gpu in usable}
        of_host = _host_sensors(host, grid)
        for gpu in usable:
            others = [other.uuid for other in usable if other.uuid != gpu.uuid]
            frame = frames[gpu.uuid]
            traces.append(
                Trace(
                    run=name, part=number, workload=record.name, host=record.host, gpu=gpu.uuid, gpu_name=gpu.name,
                    virtual=gpu.virtual, step_s=step_s, start_s=float(grid[0]), temperature_c=degrees[gpu.uuid],
                    power_w=watts[gpu.uuid], neighbours=tuple(others),
                    neighbours_w=_columns([watts[other] for other in others], len(grid)),
                    neighbours_c=_columns([degrees[other] for other in others], len(grid)),
                    sensors={column: _held(readings(frame, column), grid) for column in SENSORS} | of_host,
                    idle_w=_idle_w(power[gpu.uuid]), slowed_from_c=_slowed_from_c(gpu, frame, warm[gpu.uuid]),
                )
            )  # fmt: skip
    return traces


def _stretches(sensors: Sequence[pd.Series[float]], step_s: float) -> list[Array]:
    """Return even grids without gaps in any sensor; each begins at a reading of the first sensor."""
    start = max(float(each.index[0]) for each in sensors)
    end = min(float(each.index[-1]) for each in sensors)
    gaps = []
    for each in sensors:
        times = each.index.to_numpy(float)
        wide = np.flatnonzero(np.diff(times) > max(_LONGEST_GAP_S, 2 * step_s))
        gaps += [(float(times[place]), float(times[place + 1])) for place in wide]
    edges = [start]
    for left, right in sorted(gaps):
        if len(edges) > 1 and left <= edges[-1]:  # gaps of two sensors that overlap are one
            edges[-1] = max(edges[-1], right)
        else:
            edges += [left, right]
    edges.append(end)
    first = sensors[0].index.to_numpy(float)
    grids = []
    for left, right in zip(edges[::2], edges[1::2], strict=True):
        inside = first[(first >= left) & (first <= right)]
        if len(inside):
            grid = inside[0] + step_s * np.arange(int((right - inside[0]) / step_s + 1e-6) + 1)
            grids += [grid] if len(grid) >= _LEAST_STEPS else []
    return grids


def _mean_power(power: pd.Series[float], grid: Array) -> Array:
    """Return the mean over the step that ends at each point; before the first there is none, so the second's holds."""
    step_s = grid[1] - grid[0]
    means = signals.integrated_energy_j(power.index, power, grid[:-1], grid[1:]) / step_s
    known = np.isfinite(means)
    filled = np.interp(grid[1:], grid[1:][known], means[known]) if known.any() else np.full(len(means), np.nan)
    return np.concatenate([filled[:1], filled])


def _nearest(sensor: pd.Series[float], grid: Array) -> Array:
    times = sensor.index.to_numpy(float)
    after = np.clip(np.searchsorted(times, grid), 1, len(times) - 1)
    nearer = after - (grid - times[after - 1] <= times[after] - grid)
    return np.asarray(sensor.to_numpy(float)[nearer])


def _held(sensor: pd.Series[float], grid: Array) -> Array:
    """Return the last reading at or before each point; NaN if it is older than 5 s."""
    if sensor.empty:
        return np.full(len(grid), np.nan)
    times = sensor.index.to_numpy(float)
    last = np.searchsorted(times, grid + 1e-6, side="right") - 1
    fresh = (last >= 0) & (grid - times[np.maximum(last, 0)] <= _LONGEST_GAP_S)
    return np.where(fresh, sensor.to_numpy(float)[np.maximum(last, 0)], np.nan)


def _host_sensors(frame: pd.DataFrame, grid: Array) -> dict[str, Array]:
    found = {}
    for column, kind in HOST_SENSORS.items():
        for socket, values in enumerate(of_sockets(frame, column)):
            known = power_of_counter(values) if kind == "power_w" else values.dropna()
            found[f"cpu{socket}_{kind}"] = _held(known, grid)
    return found


def _columns(values: Sequence[Array], steps: int) -> Array:
    return np.stack(values, axis=1) if values else np.zeros((steps, 0))


def _idle_w(power: pd.Series[float]) -> float:
    before = power[power.index < 0]
    return float(before.mean()) if len(before) else float("nan")


def _slowed_from_c(gpu: RecordedGpu, frame: pd.DataFrame, warm: pd.Series[float]) -> float:
    reasons = frame.loc[frame["throttle_reasons"].notna(), ["time_s", "throttle_reasons"]]
    slowed = reasons[(reasons["throttle_reasons"].astype("int64") & THERMAL_SLOWDOWN) != 0]
    if gpu.virtual or slowed.empty:  # a virtual GPU is never slowed by heat
        return float("nan")
    return float(_nearest(warm, slowed["time_s"].to_numpy(float)).min())
