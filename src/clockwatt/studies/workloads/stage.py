"""Recording all workloads on a GPU, one after another, and drawing what the records say.

```
records/WORKLOAD/     as `clockwatt record` makes them; finished ones are kept, so that a job that was killed goes on
workloads.parquet     the table, a row for each workload
sensors.parquet       all sensors on a grid of a second
figures/              PNG, PDF and CSV
```
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from clockwatt.config import CampaignConfig, WorkloadsStudyConfig
from clockwatt.errors import ClockwattError
from clockwatt.figures.style import save, styled
from clockwatt.gpu.interface import Gpu
from clockwatt.gpu.registry import open_gpu
from clockwatt.io.files import read_frame, write_table
from clockwatt.io.progress import say
from clockwatt.studies.relations.draw import draw_correlations, draw_table, draw_time
from clockwatt.studies.relations.sensors import Sensors, correlations, sensors_of
from clockwatt.studies.relations.table import summary_table
from clockwatt.studies.workloads.names import command_of
from clockwatt.studies.workloads.records import RECORDS, is_finished
from clockwatt.telemetry.recording.layout import HOST, Record, read_record
from clockwatt.telemetry.recording.program import ENDED_BY
from clockwatt.telemetry.recording.session import Settings, record
from clockwatt.telemetry.recording.summary import summarise, telemetry_of
from clockwatt.telemetry.recording.virtual import RealTimeGpu

TABLE, SENSORS, FIGURES = "workloads.parquet", "sensors.parquet", "figures"


def run(campaign: CampaignConfig, label: str, folder: Path) -> None:
    """Record every workload of the study on a GPU and write `workloads.parquet` and `sensors.parquet`.

    Parameters
    ----------
    campaign
        With `studies.workloads`.
    label
        The label of the GPU.
    folder
        Where it is written. Records that are finished there are kept.

    Raises
    ------
    ConfigError
        If the campaign has no such study or GPU.
    ClockwattError
        If a workload failed; the others are recorded all the same.
    GpuError
        If the GPU is not here.
    SystemExit
        If a signal asked for the end.
    """
    study, gpu = campaign.studies.study_workloads(), campaign.gpu(label)
    failed = []
    with _opened(campaign, label) as opened:
        for name in study.workloads:
            where = folder / RECORDS / name
            command = command_of(name, study, seed=campaign.seed, virtual=gpu.virtual_model is not None)
            if is_finished(where, command):
                say(f"{name}: recorded before.")
                continue
            say(f"{name}: {' '.join(command[1:])}")
            shutil.rmtree(where, ignore_errors=True)  # cut off, failed, or of other settings
            status = _record(command, opened, where, study)
            if status:
                failed.append(f"{name} (status {status})")
    if failed:
        raise ClockwattError(
            f"studies.workloads: {', '.join(failed)} failed on {label}; see the log. The others are "
            "recorded. Run it again to repeat the failed ones."
        )
    write_tables(study.workloads, folder)


def figures(campaign: CampaignConfig, label: str, folder: Path) -> None:
    """Draw the figures of a GPU from the two tables in its folder, into `figures/` there.

    Raises
    ------
    ConfigError
        If the campaign has no such study or GPU.
    DataFileError
        If a table is missing or damaged.
    """
    study = campaign.studies.study_workloads()
    campaign.gpu(label)
    table, grid = (read_frame(folder / name, "study-workloads-run") for name in (TABLE, SENSORS))
    draw(table, grid, study.workloads, label, folder / FIGURES)


def draw(table: pd.DataFrame, grid: pd.DataFrame, names: Sequence[str], label: str, folder: Path) -> None:
    """Draw the table of workloads, and for each its sensors over time and their correlations.

    Parameters
    ----------
    table, grid
        As `write_tables` gives them.
    names
        Workloads to draw.
    label
        The label of the GPU.
    folder
        Where the figures are written.

    Raises
    ------
    OutputError
        If they cannot be written.
    """
    where = f"{label} (virtual)" if table["virtual"].any() and "virtual" not in label else label
    with styled():
        save(draw_table(table, _where_long(table, label)), table, folder, "workloads")
        for name in names:
            own = grid[grid["workload"] == name].drop(columns="workload").set_index("time_s")
            sensors = Sensors(own)
            save(draw_time(sensors, name, where), own[sensors.there].reset_index(), folder, f"time_{name}")
            found = correlations(sensors)
            save(draw_correlations(found, sensors, name, where), found, folder, f"correlation_{name}")


@contextlib.contextmanager
def _opened(campaign: CampaignConfig, label: str) -> Iterator[Gpu]:
    """The GPU; a virtual one lives in the machine's time, as the programs do that it is recorded beside."""
    config = campaign.gpu(label)
    if config.virtual_model is not None:
        gpu: Gpu = RealTimeGpu(config.virtual_model)
    else:
        gpu = open_gpu(config.device, seed=campaign.seed, key=f"gpus.{label}.device")
    with contextlib.closing(gpu):
        yield gpu


def _record(command: list[str], gpu: Gpu, where: Path, study: WorkloadsStudyConfig) -> int:
    """Record a workload; its exit status."""
    settings = Settings(
        name=where.name, rest_to_c=study.rest_to_c, rest_max_s=study.rest_max_s, idle_s=study.idle_s, hooks=False
    )
    (told,) = record(command, [gpu], where, settings).runs
    if told.status in ENDED_BY:
        raise SystemExit(told.status)
    return 1 if told.status is None else told.status


def write_tables(names: Sequence[str], folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Write `workloads.parquet` and `sensors.parquet` from the records of these workloads in a folder.

    Returns
    -------
    table, grid
        Their content: see `summary_table`; and `sensors_of` for each, with a column `workload`.

    Raises
    ------
    DataFileError
        If a record is missing or damaged.
    OutputError
        If they cannot be written.
    """
    records = {name: read_record(folder / RECORDS / name) for name in names}
    summaries = {name: summarise(folder / RECORDS / name) for name in names}
    grid = pd.concat(
        [_sensors(folder / RECORDS / name, known).assign(workload=name) for name, known in records.items()]
    )
    table = summary_table(summaries)
    for path, frame in ((folder / SENSORS, grid), (folder / TABLE, table)):
        write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    return table, grid


def _sensors(where: Path, known: Record) -> pd.DataFrame:
    (told,), (gpu,) = known.runs, known.gpus
    assert told.start_ns is not None
    assert told.end_ns is not None
    end_s = (told.end_ns - told.start_ns) * 1e-9
    return sensors_of(telemetry_of(where, told, gpu.uuid), telemetry_of(where, told, HOST), end_s).table.reset_index()


def _where_long(table: pd.DataFrame, label: str) -> str:
    if table["virtual"].any():
        return f"{label}: VIRTUAL GPU, programs on the CPU"
    name = str(table["gpu_name"].iloc[0])
    return name if label == name else f"{label}: {name}"
