"""Import runs that others measured at power limits or clocks as tables of the study."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from clockwatt.config import OperatingPoint
from clockwatt.dataset import table as cells
from clockwatt.errors import DataFileError, OutputError
from clockwatt.io.files import write_table
from clockwatt.io.resources import resource
from clockwatt.studies.power import tables
from clockwatt.studies.power.tables import CLOCK, NOTHING, POWER_LIMIT

SHIPPED = "shipped"
TEXTS = ("gpu", "network")
REQUIRED = (*TEXTS, "time_s", "power_w")
COLUMNS = [*REQUIRED, "batch_size", POWER_LIMIT, CLOCK, "epochs"]
NETWORKS_AT_MOST = 6
"""In a figure as wide as a page."""


def read_runs(path: Path, gpu: str, networks: list[str]) -> pd.DataFrame:
    """Return the rows of a GPU, and of some networks if any are named.

    Parameters
    ----------
    path
        A `.csv` or `.parquet` file, a row per run, with columns of `COLUMNS`, at least `REQUIRED`; `shipped` for the
        runs that clockwatt ships.
    gpu
        Label in its column `gpu`.
    networks
        Names, with `-bBATCH` for one batch size (`resnet50-b192`).

    Raises
    ------
    DataFileError
        If the file cannot be read, lacks a column, has cells that are wrong, or has no such rows.
    """
    path = resource("studies/power/runs-by-others.parquet") if str(path) == SHIPPED else path
    file = cells.read_file(path)
    if missing := [name for name in REQUIRED if name not in file]:
        raise DataFileError(f"{path}: column {missing[0]} is missing. It needs {', '.join(REQUIRED)}.")
    problems = cells.Problems(path)

    def read(name: str, row: int, cell: Any) -> str | float | None:
        try:
            known = cells.text(cell) if name in REQUIRED else cell
            return cells.text(known) if name in TEXTS else cells.number(known, name, longest_s=math.inf)
        except cells.CellError as error:
            problems.add(row, name, str(error))
            return None

    rows = pd.DataFrame(
        {name: [read(name, row, cell) for row, cell in enumerate(file[name], 1)] for name in file if name in COLUMNS}
    ).reindex(columns=COLUMNS)
    problems.check()
    rows = rows.astype(dict.fromkeys(COLUMNS[len(TEXTS) :], float))
    of_gpu = rows[rows["gpu"] == gpu]
    if of_gpu.empty:
        raise DataFileError(f"{path}: has no GPU {gpu!r}. Choose {', '.join(sorted(set(rows['gpu'])))} by --gpu.")
    names = _names(of_gpu)
    for network in networks:
        if network not in {*of_gpu["network"], *names}:
            there = ", ".join(sorted(set(of_gpu["network"])))
            raise DataFileError(f"{path}: has no network {network!r} of {gpu}. Choose {there} by --network.")
    named = of_gpu["network"].isin(networks) | names.isin(networks)
    return (of_gpu[named] if networks else of_gpu).reset_index(drop=True)


def write_runs(rows: pd.DataFrame, study_dir: Path) -> None:
    """Write the tables that figures are drawn from.

    Parameters
    ----------
    rows
        From `read_runs`.
    study_dir
        The study's folder.

    Raises
    ------
    DataFileError
        If there are more than `NETWORKS_AT_MOST` networks, each batch size counted.
    OutputError
        If the folder contains recorded runs, or a table cannot be written.
    """
    if (study_dir / tables.RUNS).exists() and tables.read(study_dir)[0]["record"].any():
        raise OutputError(f"{study_dir}: contains runs that clockwatt recorded. Name another folder with --study-dir.")
    limited, clocked = rows[POWER_LIMIT].notna(), rows[CLOCK].notna()
    names = _names(rows)
    if names.nunique() > NETWORKS_AT_MOST:
        raise DataFileError(
            f"{names.nunique()} networks and batch sizes do not fit in a figure: name at most {NETWORKS_AT_MOST} by "
            f"--network, such as {names.iloc[0]}."
        )
    asked = rows[POWER_LIMIT].where(limited, rows[CLOCK])
    points = [
        str(OperatingPoint(power_limit_w=round(value) if limit else None, sm_clock_mhz=round(value) if clock else None))
        for value, limit, clock in zip(asked.fillna(0), limited, clocked & ~limited, strict=True)
    ]
    energy_j = rows["time_s"] * rows["power_w"]
    runs = rows[["gpu", "time_s"]].assign(
        gpu_name=rows["gpu"], gpu_uuid="", virtual=False, network=names, point=points, asked=asked,
        setting=np.select([limited, clocked], [POWER_LIMIT, CLOCK], NOTHING), turn=np.arange(len(rows)) + 1, record="",
        start_s=0.0, end_s=rows["time_s"], energy_j=energy_j, power_mean_w=rows["power_w"], notes="",
        sm_clock_mhz=rows[CLOCK], power_limit_w=rows[POWER_LIMIT],
    )  # fmt: skip
    runs["repetition"] = runs.groupby(["network", "point"]).cumcount() + 1
    named = (
        (tables.RUNS, tables.RUN_SCHEMA),
        (tables.EPOCHS, tables.EPOCH_SCHEMA),
        (tables.READINGS, tables.READING_SCHEMA),
    )
    for name, schema in named:
        frame = (runs if name == tables.RUNS else pd.DataFrame()).reindex(columns=schema.names)
        write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False), study_dir / name)


def _names(rows: pd.DataFrame) -> pd.Series[str]:
    batch = ["" if np.isnan(size) else f"-b{size:.0f}" for size in rows["batch_size"]]
    return pd.Series([f"{name}{size}" for name, size in zip(rows["network"], batch, strict=True)], rows.index)
