"""Convert the records of the study into three tables: runs, epochs, readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from clockwatt import signals
from clockwatt.config import OperatingPoint
from clockwatt.errors import DataFileError
from clockwatt.gpu.interface import GPU_IDLE, SW_POWER_CAP
from clockwatt.io.files import read_table, write_table
from clockwatt.schema.records import schema_of, table_of
from clockwatt.studies.power.plan import PlannedRun
from clockwatt.studies.power.training import EPOCH, TRAINING
from clockwatt.telemetry.recording import layout
from clockwatt.telemetry.recording.gpu_summary import known, power_readings
from clockwatt.telemetry.recording.gpu_summary import readings as gpu_readings
from clockwatt.telemetry.recording.layout import HOST, Record, read_record
from clockwatt.telemetry.recording.marks import read_marks
from clockwatt.telemetry.recording.summary import telemetry_of
from clockwatt.telemetry.sampling import FAST, RING

RUNS, EPOCHS, READINGS = "runs.parquet", "epochs.parquet", "readings.parquet"
POWER_LIMIT, CLOCK, NOTHING = "power_limit_w", "sm_clock_mhz", "default"
"""Setting that an operating point changes."""

POLLED = "polled"
KEY = ["network", "point", "repetition"]
"""Columns that identify a run of a GPU."""
_DATA = "data: "


@dataclass(slots=True, kw_only=True)
class PowerRunRow:
    """One run; times, energies and powers are those of the phase `training`."""

    gpu: str
    gpu_name: str
    gpu_uuid: str
    virtual: bool
    network: str
    point: str
    setting: str  # power_limit_w, sm_clock_mhz or default: what the point sets
    asked: float | None  # in the unit of the setting
    repetition: int
    turn: int  # place in the order of all runs, from 1
    record: str  # folder, below the study's folder of the GPU
    data: str | None  # made, or the folder that was read
    start_s: float  # of the training, since the program's start
    end_s: float
    time_s: float
    energy_j: float | None  # readings of power, integrated
    energy_summed_j: float | None  # Σ Δt·P of the same readings, as in the report on power limits
    energy_counter_j: float | None
    power_mean_w: float | None
    power_high_w: float | None  # 95 % of the readings are below it: what it draws at work
    power_limit_w: float | None  # in force
    power_cap_share: float | None  # of the readings under load, those that name the power limit as what throttles
    sm_clock_mhz: float | None  # median under load
    temperature_start_c: float | None
    temperature_max_c: float | None
    gpu_utilization_percent: float | None
    host_utilization_percent: float | None
    notes: str


@dataclass(slots=True, kw_only=True)
class PowerEpochRow:
    """One epoch of a run."""

    network: str
    point: str
    repetition: int
    epoch: int
    time_s: float
    energy_j: float | None  # null where it is shorter than two readings of power


@dataclass(slots=True, kw_only=True)
class PowerReadingRow:
    """One reading of a run: of power, by the driver's ring or by polling, or of the host."""

    network: str
    point: str
    repetition: int
    lane: str  # ring, polled or host
    time_s: float  # since the program's start
    power_w: float | None = None
    host_utilization_percent: float | None = None  # mean over its sockets


RUN_SCHEMA, EPOCH_SCHEMA, READING_SCHEMA = map(schema_of, (PowerRunRow, PowerEpochRow, PowerReadingRow))


def write(runs: Sequence[PlannedRun], label: str, study_dir: Path) -> None:
    """Write the tables of all runs.

    Raises
    ------
    DataFileError
        If a record is missing or damaged.
    OutputError
        If a table cannot be written.
    """
    told, epochs, readings = [], [], []
    for run in runs:
        of_run = _Recorded(run, label, study_dir)
        told.append(of_run.row())
        epochs.append(of_run.epochs())
        readings.append(of_run.readings())
    write_table(table_of(told, RUN_SCHEMA), study_dir / RUNS)
    write_table(_table(epochs, EPOCH_SCHEMA), study_dir / EPOCHS)
    write_table(_table(readings, READING_SCHEMA), study_dir / READINGS)


def read(study_dir: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Read runs, epochs and readings as `write` wrote them.

    Raises
    ------
    DataFileError
        If a table is missing, damaged or foreign.
    """
    named = ((RUNS, RUN_SCHEMA), (EPOCHS, EPOCH_SCHEMA), (READINGS, READING_SCHEMA))
    runs, epochs, readings = (read_table(study_dir / name, schema).to_pandas() for name, schema in named)
    return runs, epochs, readings


def setting_of(point: OperatingPoint) -> tuple[str, float | None]:
    """Return the setting that a point of the study changes, and its value."""
    if point.power_limit_w is not None:
        return POWER_LIMIT, float(point.power_limit_w)
    if point.sm_clock_mhz is not None:
        return CLOCK, float(point.sm_clock_mhz)
    return NOTHING, None


def _table(frames: Sequence[pd.DataFrame], schema: pa.Schema) -> pa.Table:
    frame = pd.concat([frame.dropna(axis="columns", how="all") for frame in frames], ignore_index=True)
    return pa.Table.from_pandas(frame.reindex(columns=schema.names), schema=schema, preserve_index=False)


class _Recorded:
    """The record of one run.

    Parameters
    ----------
    run
        The run.
    label
        The label of the GPU.
    study_dir
        The study's folder of the GPU.
    """

    def __init__(self, run: PlannedRun, label: str, study_dir: Path) -> None:
        self._run, self._label, self._study_dir = run, label, study_dir
        self._folder = run.folder(study_dir)
        self._record: Record = read_record(self._folder)
        (self._made,), (gpu,) = self._record.runs, self._record.gpus
        self._gpu = gpu
        self._frame, self._host = (telemetry_of(self._folder, self._made, what) for what in (gpu.uuid, HOST))
        end_ns = self._made.end_ns if self._made.end_ns is not None else self._made.start_ns
        end_s = ((end_ns or 0) - (self._made.start_ns or 0)) * 1e-9
        self._marks = read_marks(layout.marks_folder(self._folder, 1), self._made, self._record.host, end_s)
        if (self._marks.phases["name"] == TRAINING).sum() != 1:
            raise DataFileError(
                f"{self._folder}: contains no training phase. Delete it: the next run of the study records it again."
            )
        self._phases = self._with_energy(self._marks.phases)
        (whole,) = self._phases[self._phases["name"] == TRAINING].to_dict("records")
        self._whole: dict[Any, Any] = whole

    def row(self) -> PowerRunRow:
        """Return the row of the run, with its costs."""
        run, whole = self._run, self._whole
        setting, asked = setting_of(run.point)
        during = self._during(self._frame)
        power = power_readings(during, float(whole["end_s"]))
        reasons = during["throttle_reasons"].dropna().astype("int64")
        loaded = reasons[(reasons & GPU_IDLE) == 0]
        return PowerRunRow(
            gpu=self._label, gpu_name=self._gpu.name, gpu_uuid=self._gpu.uuid, virtual=self._gpu.virtual,
            network=run.task.name, point=str(run.point), setting=setting, asked=asked, repetition=run.repetition,
            turn=run.turn, record=str(self._folder.relative_to(self._study_dir)), data=self._data,
            start_s=whole["start_s"], end_s=whole["end_s"], time_s=whole["time_s"], energy_j=known(whole["energy_j"]),
            energy_summed_j=known(signals.summed_energy_j(power.index, power)),
            energy_counter_j=known(whole["energy_counter_j"]), power_mean_w=known(whole["power_w"]),
            power_high_w=known(power.quantile(0.95)),
            # held all the time; a training of less than a second may lie between two readings of it
            power_limit_w=known(self._frame["power_limit_w"].min()),
            power_cap_share=float(((loaded & SW_POWER_CAP) != 0).mean()) if len(loaded) else None,
            sm_clock_mhz=known(during.loc[loaded.index, "sm_clock_mhz"].median()),
            temperature_start_c=known(during["temperature_c"].dropna().head(1).mean()),
            temperature_max_c=known(during["temperature_c"].max()),
            gpu_utilization_percent=known(during["gpu_utilization_percent"].mean()),
            host_utilization_percent=known(_of_sockets(self._during(self._host)).mean()),
            notes=" ".join([*self._record.notes, *self._made.notes]),
        )  # fmt: skip

    def epochs(self) -> pd.DataFrame:
        """Return a row for each epoch."""
        rows = self._phases[self._phases["name"] == EPOCH]
        energy = rows["energy_j"].where(rows["told"])
        return self._of_run(
            pd.DataFrame({"epoch": rows["index"].astype(int), "time_s": rows["time_s"], "energy_j": energy})
        )

    def readings(self) -> pd.DataFrame:
        """Return a row for each reading of power from the program's start on, and of the host."""
        frame, host = self._frame, self._host
        ring, polled = frame[frame["lane"] == RING], frame[frame["lane"] == FAST]
        power = polled["power_instant_w"].fillna(polled["power_average_w"])
        parts = [
            pd.DataFrame({"lane": RING, "time_s": ring["time_s"], "power_w": ring["power_sample_w"]}),
            pd.DataFrame({"lane": POLLED, "time_s": polled["time_s"], "power_w": power}),
            pd.DataFrame({"lane": HOST, "time_s": host["time_s"], "host_utilization_percent": _of_sockets(host)}),
        ]
        read = pd.concat(parts, ignore_index=True)
        return self._of_run(read[read["time_s"].between(0, self._whole["end_s"])])

    @property
    def _data(self) -> str | None:
        names = [name for name in self._marks.moments["name"] if name.startswith(_DATA)]
        return names[0].removeprefix(_DATA) if names else None

    def _of_run(self, frame: pd.DataFrame) -> pd.DataFrame:
        run = self._run
        return frame.assign(network=run.task.name, point=str(run.point), repetition=run.repetition)

    def _during(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["time_s"].between(self._whole["start_s"], self._whole["end_s"])]

    def _with_energy(self, phases: pd.DataFrame) -> pd.DataFrame:
        frame, end_s = self._frame, float(phases["end_s"].max())
        power, counter = power_readings(frame, end_s), gpu_readings(frame, "energy_counter_j")
        return signals.energy_of_phases(phases, power.index, power, counter.index, counter)


def _of_sockets(host: pd.DataFrame) -> pd.Series[float]:
    """Return the mean use of the host's processors over its sockets, in percent."""
    used = host["host_cpu_utilization_percent"]
    return used.map(lambda values: sum(values) / len(values) if values is not None and len(values) else None).astype(
        float
    )
