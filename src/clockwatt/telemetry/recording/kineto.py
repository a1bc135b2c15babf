"""Put the sensors of a record below the time line of torch.profiler, and give its phases energy.

A trace of `export_chrome_trace` has times in µs since `baseTimeNanoseconds`, on the UNIX clock. Telemetry has readings
of both the UNIX and the monotonic clock, so that the two meet even where the UNIX clock was set during the run.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt import signals
from clockwatt.errors import DataFileError
from clockwatt.io.files import written_aside
from clockwatt.io.profiler_trace import BASE_NS, LAUNCHES, ON_DEVICE, Event, complete, correlated, read_trace
from clockwatt.telemetry.recording import gpu_summary
from clockwatt.telemetry.recording.layout import Record, Run, read_record
from clockwatt.telemetry.recording.summary import Summary, by_name, telemetry_of

PROFILER_STEP = "ProfilerStep"
_COUNTERS = {
    "SM clock (MHz)": "sm_clock_mhz",
    "temperature (°C)": "temperature_c",
    "utilisation (%)": "gpu_utilization_percent",
}
_SENSORS_PID, _BELOW_GPUS = 9_000_000, 6_000_000
"""Process ids of the counters, above those of a system, and their place: PyTorch puts GPUs from 5,000,000 on."""
_AROUND_S = 1.0
"""Readings so long before and after the trace are shown, too."""


@dataclass(frozen=True)
class Timeline:
    """A trace beside its record.

    Attributes
    ----------
    trace
        The trace with the counters of each GPU.
    summary
        `gpus`, and `runs` with the run of the trace: its `phases`, each top-level range of `record_function`.
    short
        Number of ranges too short for an energy of their own.
    ranges
        Their number.
    """

    trace: dict[str, Any]
    summary: Summary
    short: int
    ranges: int


def timeline(folder: Path, path: Path) -> Timeline:
    """Put the sensors of a record below the trace of a profiler that ran in it.

    Parameters
    ----------
    folder
        Of the record.
    path
        The trace.

    Raises
    ------
    DataFileError
        If one of them cannot be read, or no run of the record covers the trace.
    """
    record, trace = read_record(folder), read_trace(path)
    events = complete(trace)
    base_s = 1e-9 * trace[BASE_NS]
    first_s = base_s + 1e-6 * min(event["ts"] for event in events)
    last_s = base_s + 1e-6 * max(event["ts"] + event["dur"] for event in events)
    run, frames = _run_of(folder, record, first_s, last_s, path)
    started_s = next(_start_s(frame, run, first_s, last_s) for frame in frames.values())
    ranges = _ranges(events)
    since_start_s = base_s - started_s
    phases = ranges.assign(
        start_s=1e-6 * ranges["start_us"] + since_start_s, end_s=1e-6 * ranges["end_us"] + since_start_s,
        index=np.nan, rank=np.nan, host=record.host, complete=True,
    ).drop(columns=["start_us", "end_us"])  # fmt: skip
    window_s = first_s - started_s - _AROUND_S, last_s - started_s + _AROUND_S
    counters, measured = list[Event](), []
    for number, gpu in enumerate(record.gpus):
        frame = frames[gpu.uuid]
        power = gpu_summary.power_readings(frame, float(frame["time_s"].max()))
        name = f"sensors of {gpu.name} {gpu.uuid}"
        counters += _counters(_SENSORS_PID + number, name, frame, power, window_s, since_start_s)
        counter = frame.dropna(subset=["energy_counter_j"])
        energies = signals.energy_of_phases(
            phases, power.index, power, counter["time_s"], counter["energy_counter_j"],
            longest_gap_s=gpu_summary.LONGEST_GAP_S,
        )  # fmt: skip
        measured.append(energies.assign(gpu_uuid=gpu.uuid))
    table = pd.concat(measured)
    summary = {
        "gpus": [gpu.model_dump() for gpu in record.gpus], "virtual": any(gpu.virtual for gpu in record.gpus),
        "runs": [{"number": run.number, "phases": by_name(table)}],
    }  # fmt: skip
    short = int((~table["told"]).groupby(level=0).any().sum())
    return Timeline(trace | {"traceEvents": [*trace["traceEvents"], *counters]}, summary, short, len(phases))


def write_trace(trace: dict[str, Any], path: Path) -> None:
    """Write a trace, compressed if the file's name ends in `.gz`.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    content = json.dumps(trace).encode()
    with written_aside(path) as aside:
        aside.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _run_of(
    folder: Path, record: Record, first_s: float, last_s: float, path: Path
) -> tuple[Run, dict[str, pd.DataFrame]]:
    """Return the run of a record that covers a time, in s since the epoch, and the telemetry of its GPUs."""
    if not record.gpus:
        raise DataFileError(f"{folder}: recorded no GPU, so there is no sensor to show. Record the program on a GPU.")
    for run in record.runs:
        frames = {gpu.uuid: telemetry_of(folder, run, gpu.uuid) for gpu in record.gpus}
        if all(len(frame) and _covers(frame, run, first_s, last_s) for frame in frames.values()):
            return run, frames
    when = pd.Timestamp(first_s, unit="s").strftime("%Y-%m-%d %H:%M:%S UTC")
    raise DataFileError(
        f"{path}: was profiled on {when}, outside the runs of {folder}. Give the record of the same run, on the same "
        "machine."
    )


def _covers(frame: pd.DataFrame, run: Run, first_s: float, last_s: float) -> bool:
    start_s = _start_s(frame, run, first_s, last_s)
    times_s = frame["time_s"] + start_s
    return bool(times_s.min() <= first_s and last_s <= times_s.max() + gpu_summary.LONGEST_GAP_S)


def _start_s(frame: pd.DataFrame, run: Run, first_s: float, last_s: float) -> float:
    """Return the UNIX time at which the run's time is 0, by readings nearest to the trace."""
    both = frame[frame["lane"] == "fast"]  # a ring's time stamps are the driver's
    if both.empty:
        return 1e-6 * (run.start_us or 0)
    offsets = 1e-6 * both["time_us"] - both["time_s"]
    near = offsets[(1e-6 * both["time_us"]).between(first_s - _AROUND_S, last_s + _AROUND_S)]
    return float((near if len(near) else offsets).median())


def _ranges(events: list[Event]) -> pd.DataFrame:
    """Return top-level ranges of `record_function`, from the first to the last kernel that each launches.

    A range without a kernel lasts as long as on the host. Steps of the profiler hold all others, so that they and what
    stands right below them both count.
    """
    found = [event for event in events if event.get("cat") == "user_annotation"]
    found.sort(key=lambda event: (event["ts"], -event["dur"]))
    ends: dict[tuple[Any, Any], float] = {}
    rows = []
    device = _Device(events)
    for event in found:
        thread, step = (event.get("pid"), event.get("tid")), event["name"].startswith(f"{PROFILER_STEP}#")
        if not step and event["ts"] < ends.get(thread, -np.inf):
            continue
        end_us = event["ts"] + event["dur"]
        if not step:
            ends[thread] = end_us
        start_us, end_us = device.span(event["ts"], end_us)
        name = PROFILER_STEP if step else event["name"]
        rows.append((name, event.get("pid"), event.get("tid"), start_us, end_us))
    table = pd.DataFrame(rows, columns=["name", "pid", "thread", "start_us", "end_us"])
    whole = {name: pd.to_numeric(table[name], errors="coerce").astype("Int64") for name in ("pid", "thread")}
    return table.assign(**whole)


class _Device:
    """Work on devices by when the host launched it; the thread does not matter, as a backward pass has its own."""

    def __init__(self, events: list[Event]) -> None:
        launched = {number: event["ts"] for number, event in correlated(events, LAUNCHES)}
        work = sorted(
            (launched[number], event["ts"], event["ts"] + event["dur"])
            for number, event in correlated(events, ON_DEVICE)
            if number in launched
        )
        self._launched, self._starts, self._ends = np.array(work, float).reshape(-1, 3).T

    def span(self, start_us: float, end_us: float) -> tuple[float, float]:
        """Return when work launched within a time of the host ran; that time itself if there is none."""
        first, last = np.searchsorted(self._launched, [start_us, end_us])
        if first == last:
            return start_us, end_us
        return float(self._starts[first:last].min()), float(self._ends[first:last].max())


def _counters(
    pid: int,
    name: str,
    frame: pd.DataFrame,
    power: pd.Series[float],
    window_s: tuple[float, float],
    since_start_s: float,
) -> list[Event]:
    """Return the readings of a GPU as counters of a process of its own, on the trace's clock."""
    about = ("process_name", {"name": name}), ("process_sort_index", {"sort_index": _BELOW_GPUS + pid - _SENSORS_PID})
    events: list[Event] = [{"ph": "M", "name": key, "pid": pid, "tid": 0, "ts": 0, "args": args} for key, args in about]
    sensors = {"power (W)": power} | {label: gpu_summary.readings(frame, name) for label, name in _COUNTERS.items()}
    for label, readings in sensors.items():
        shown = readings[(readings.index >= window_s[0]) & (readings.index <= window_s[1])]
        unit = label.rpartition("(")[2].rstrip(")")
        events += [
            {
                "ph": "C",
                "name": label,
                "pid": pid,
                "tid": 0,
                "ts": 1e6 * (time_s - since_start_s),
                "args": {unit: value},
            }
            for time_s, value in zip(shown.index.to_numpy(float), shown.to_numpy(float), strict=True)
        ]
    return events
