"""Summarise a record: energy, time and temperature of each run, GPU and phase; unknown values are null."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from clockwatt import signals
from clockwatt.io.files import write_table, write_text
from clockwatt.io.segments import read_segments
from clockwatt.schema.records import TELEMETRY_SCHEMA
from clockwatt.telemetry.recording import gpu_summary, layout
from clockwatt.telemetry.recording.layout import HOST, Record, Run, read_record
from clockwatt.telemetry.recording.marks import Marks, read_marks

Summary = dict[str, Any]


def summarise(folder: Path) -> Summary:
    """Make `summary.json` and the phases of each run from what a record holds, complete or cut off.

    Raises
    ------
    DataFileError
        If there is no record, or it is damaged.
    OutputError
        If the folder cannot be written.
    """
    record = read_record(folder)
    libraries: dict[str, str] = {}
    runs = []
    for run in record.runs:
        told, marks = _of_run(folder, record, run)
        runs.append(told)
        libraries = marks.libraries | libraries
    summary: Summary = {
        "name": record.name, "command": record.command, "folder": record.folder, "host": record.host,
        "point": record.point, "complete": record.complete, "virtual": any(gpu.virtual for gpu in record.gpus),
        "gpus": [gpu.model_dump() for gpu in record.gpus], "versions": record.versions | libraries,
        "runs": runs, "over_runs": _over_runs(record, runs), "notes": _notes(record),
    }  # fmt: skip
    write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", folder / layout.SUMMARY)
    return summary


def telemetry_of(folder: Path, run: Run, what: str) -> pd.DataFrame:
    """Return the telemetry of a GPU (its UUID) or of the host in a run, with `time_s` since the program's start.

    Raises
    ------
    DataFileError
        If a file is foreign.
    """
    tables = list(read_segments(layout.telemetry_folder(folder, run.number, what), TELEMETRY_SCHEMA))
    frame: pd.DataFrame = pa.concat_tables(tables or [TELEMETRY_SCHEMA.empty_table()]).to_pandas()
    start_ns = run.start_ns if run.start_ns is not None else run.idle_start_ns or 0
    frame["time_s"] = signals.relative_time_s(frame["monotonic_ns"].to_numpy(), start_ns, unit_s=1e-9)
    # a ring holds samples from before it was watched
    first_s = 0.0 if run.idle_start_ns is None else (run.idle_start_ns - start_ns) * 1e-9
    return frame[frame["time_s"] >= first_s].sort_values("time_s", kind="stable", ignore_index=True)


def _of_run(folder: Path, record: Record, run: Run) -> tuple[Summary, Marks]:
    frames = {what: telemetry_of(folder, run, what) for what in [gpu.uuid for gpu in record.gpus] + [HOST]}
    end_s, notes = _end_s(run, frames), list(run.notes)
    marks = read_marks(layout.marks_folder(folder, run.number), run, record.host, end_s)
    if run.end_ns is None:
        notes.append(
            f"cut off: the recorder (process {record.recorder}) ended first, or still runs; seen until the end"
        )
    if run.left_running:
        processes = ", ".join(run.left_running)
        notes.append(f"{processes} outlived the program and were not recorded afterwards")
    told: Summary = {
        "number": run.number, "status": run.status, "ending": run.ending, "start_us": run.start_us, "time_s": end_s,
        "processor_s": run.processor_s, "memory_max_bytes": run.memory_max_bytes, "left_running": run.left_running,
        "host": _of_host(frames[HOST], end_s), "gpus": {}, "phases": [], "notes": notes + marks.notes,
        "moments": len(marks.moments),
    }  # fmt: skip
    phases = []
    for gpu in record.gpus:
        frame = frames[gpu.uuid]
        contexts = run.contexts_before.get(gpu.uuid)
        logged = run.logged.get(gpu.uuid)
        told["gpus"][gpu.uuid] = gpu_summary.of_gpu(frame, end_s, contexts) | {
            "rings": {name: ring.model_dump() for name, ring in logged.rings.items()} if logged else {},
            "failed_readings": logged.failed_readings if logged else None,
        }
        power, counter = gpu_summary.power_readings(frame, end_s), frame.dropna(subset=["energy_counter_j"])
        energies = signals.energy_of_phases(
            marks.phases, power.index, power, counter["time_s"], counter["energy_counter_j"],
            longest_gap_s=gpu_summary.LONGEST_GAP_S,
        )  # fmt: skip
        phases.append(energies.assign(gpu_uuid=gpu.uuid))
    table = pd.concat(phases) if phases else marks.phases.assign(time_s=marks.phases["end_s"] - marks.phases["start_s"])
    if len(table):
        frame = pa.Table.from_pandas(table, preserve_index=False)
        write_table(frame, layout.run_folder(folder, run.number) / "phases.parquet")
    told["phases"] = by_name(table)
    return told, marks


def _end_s(run: Run, frames: dict[str, pd.DataFrame]) -> float:
    """Return how long the program ran; if nobody saw its end, until the last reading."""
    if run.end_ns is not None and run.start_ns is not None:
        return (run.end_ns - run.start_ns) * 1e-9
    return max((float(frame["time_s"].max()) for frame in frames.values() if len(frame)), default=0.0)


def by_name(phases: pd.DataFrame) -> list[Summary]:
    """Phases of one name as one row. Processes that mark the same phases (ranks) count once: the first of them."""
    rows = []
    for name, named in phases.groupby("name", sort=False):
        first = named.sort_values(["rank", "start_s"], na_position="first").iloc[0]
        same = named["pid"].eq(first["pid"]) | (named["pid"].isna() & pd.isna(first["pid"]))
        own = named[same.fillna(value=False).astype(bool)]
        gpus = {}
        for uuid, on_gpu in own.groupby("gpu_uuid") if "gpu_uuid" in own else ():
            energy_j = gpu_summary.known(on_gpu["energy_j"].sum(min_count=len(on_gpu)))
            time_s = float(on_gpu["time_s"].sum())
            gpus[str(uuid)] = {
                "energy_j": energy_j,
                "energy_counter_j": gpu_summary.known(on_gpu["energy_counter_j"].sum(min_count=len(on_gpu))),
                "power_mean_w": energy_j / time_s if energy_j is not None and time_s > 0 else None,
            }
        one = own.drop_duplicates(["start_s", "thread"]) if "gpu_uuid" in own else own
        rows.append(
            {
                "name": str(name), "count": len(one), "unfinished": int((~one["complete"]).sum()),
                "processes": int(named["pid"].nunique()), "time_s": float(one["time_s"].sum()),
                "time_mean_s": float(one["time_s"].mean()), "gpus": gpus,
            }
        )  # fmt: skip
    return rows


def _of_host(frame: pd.DataFrame, end_s: float) -> Summary:
    """Sensors of the host while the program ran; a list has one entry per socket, or per sensor of temperature."""
    during = frame[frame["time_s"].between(0, end_s)]
    used = during["host_memory_used_bytes"].dropna()
    temperatures = _stacked(during["host_cpu_temperature_c"])
    counters = _stacked(during["host_cpu_energy_j"])
    grown = None if len(counters) < 2 else counters.iloc[-1] - counters.iloc[0]
    return {
        "cpu_utilization_percent": _means(_stacked(during["host_cpu_utilization_percent"])),
        "cpu_temperature_max_c": None if temperatures.empty else [float(value) for value in temperatures.max()],
        # a counter that wrapped says nothing
        "cpu_energy_j": None if grown is None or (grown < 0).any() else [float(value) for value in grown],
        "memory_max_bytes": int(used.max()) if len(used) else None,
    }


def _stacked(lists: pd.Series[Any]) -> pd.DataFrame:
    return pd.DataFrame([list(values) for values in lists if values is not None])


def _means(table: pd.DataFrame) -> list[float] | None:
    return None if table.empty else [float(value) for value in table.mean()]


def _over_runs(record: Record, runs: list[Summary]) -> dict[str, Summary]:
    """Return means and deviations over runs of each GPU, by counter or integration, whichever covers more runs."""
    found = {}
    for gpu in record.gpus:
        energies = [
            [(run["time_s"], energy_j) for run in runs if (energy_j := run["gpus"][gpu.uuid][way]) is not None]
            for way in ("energy_counter_j", "energy_integrated_j")
        ]
        rows = [{"time_s": time_s, "energy_j": energy_j} for time_s, energy_j in max(energies, key=len)]
        if len(rows) > 1:
            told = signals.energy_of_runs(pd.DataFrame(rows))
            found[gpu.uuid] = {str(name): row.to_dict() for name, row in told.iterrows()}
    return found


def _notes(record: Record) -> list[str]:
    notes = list(record.notes)
    if not record.gpus:
        notes.append("no GPU was recorded: there is none here, or the program could not compute on any")
    if record.complete and len(record.runs) < record.repeat:
        notes.append(f"{len(record.runs)} of {record.repeat} runs: a signal ended them")
    return notes
