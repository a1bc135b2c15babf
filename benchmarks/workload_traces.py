"""Temperature, power and other sensors of recorded workloads, a second a row: from records, or as one table.

Several workloads may be in one record: programs that mark each by a phase of its name, as `workload_sequence.py` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from clockwatt.config import ORIGINAL_WORKLOADS, WORKLOADS
from clockwatt.io.files import write_table
from clockwatt.studies.thermal.traces import Trace, read_traces

_LEAST_STEPS = 3
_OF_TRACE = ("run", "workload", "host", "gpu", "gpu_name", "virtual", "step_s")


def read_records(folders: Iterable[Path]) -> list[Trace]:
    """Return traces of records, cut where a program says that another workload begins."""
    return [piece for trace in read_traces(folders).traces for piece in _cut(trace)]


def _cut(trace: Trace) -> list[Trace]:
    phases = pd.read_parquet(Path(trace.run) / "phases.parquet")
    phases = phases[phases["name"].isin((*WORKLOADS, *ORIGINAL_WORKLOADS))].drop_duplicates(["name", "start_s"])
    if phases.empty:
        return [trace]
    pieces = []
    for phase in phases.assign(turn=phases.groupby("name").cumcount() + 1).itertuples():
        # the mean power of a step is of the time before it, which must not hold the workload before this one
        inside = (trace.time_s - trace.step_s >= phase.start_s) & (trace.time_s <= phase.end_s)
        if inside.sum() >= _LEAST_STEPS:
            pieces.append(
                _at(trace, inside, workload=str(phase.name), run=f"{trace.run}/turn-{phase.turn}/{phase.name}")
            )
    return pieces


def _at(trace: Trace, inside: np.ndarray, **changes: str) -> Trace:
    return replace(
        trace, start_s=float(trace.time_s[inside][0]), temperature_c=trace.temperature_c[inside],
        power_w=trace.power_w[inside], sensors={name: values[inside] for name, values in trace.sensors.items()},
        **changes,
    ).alone()  # fmt: skip


def to_frame(traces: Sequence[Trace]) -> pd.DataFrame:
    """Return a row per second of each trace; sensors that no trace has are left out."""
    frames = []
    for trace in traces:
        columns = {name: getattr(trace, name) for name in _OF_TRACE}
        columns |= {"time_s": trace.time_s, "temperature_c": trace.temperature_c, "power_w": trace.power_w}
        frames.append(pd.DataFrame(columns | trace.sensors))
    return pd.concat(frames, ignore_index=True).dropna(axis=1, how="all")


def write(traces: Sequence[Trace], file: Path) -> None:
    """Write traces as one table; runs are named without the folder of their record."""
    frame = to_frame(traces)
    runs = frame["run"].str.extract(r"(run-\d.*)")[0]
    write_table(pa.Table.from_pandas(frame.assign(run=frame["workload"] + "/" + runs), preserve_index=False), file)


def read(file: Path) -> list[Trace]:
    """Return the traces of a table that `write` wrote."""
    frame = pq.read_table(file).to_pandas()
    sensors = [name for name in frame if name not in (*_OF_TRACE, "time_s", "temperature_c", "power_w")]
    traces = []
    for _, part in frame.groupby(["gpu", "run"], sort=False):
        first = part.iloc[0]
        traces.append(
            Trace(
                **{name: first[name] for name in _OF_TRACE}, start_s=float(first["time_s"]),
                temperature_c=part["temperature_c"].to_numpy(float), power_w=part["power_w"].to_numpy(float),
                sensors={name: part[name].to_numpy(float) for name in sensors},
            ).alone()
        )  # fmt: skip
    return traces
