"""Import runs that others measured at power limits or clocks as tables of the study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from clockwatt.config import OperatingPoint
from clockwatt.errors import DataFileError
from clockwatt.io.files import write_table
from clockwatt.io.resources import resource
from clockwatt.studies.power import tables
from clockwatt.studies.power.tables import CLOCK, NOTHING, POWER_LIMIT

SHIPPED = "shipped"
REQUIRED = ("gpu", "network", "time_s", "power_w")
OPTIONAL = ("batch_size", POWER_LIMIT, CLOCK, "epochs")
NETWORKS_AT_MOST = 6
"""In a figure as wide as a page."""


def read_runs(path: Path, gpu: str, networks: list[str]) -> pd.DataFrame:
    """Return the rows of a GPU, and of some networks if any are named.

    Parameters
    ----------
    path
        A `.csv` or `.parquet` file with the columns `REQUIRED` and perhaps `OPTIONAL`, a row per run; `shipped` for
        the runs that clockwatt ships.
    gpu
        Label in its column `gpu`.
    networks
        Names, with `-bBATCH` for one batch size (`resnet50-b192`).

    Raises
    ------
    DataFileError
        If the file cannot be read, lacks a column, has a value that is no positive number, or has no such rows.
    """
    path = resource("studies/power/runs-by-others.parquet") if str(path) == SHIPPED else path
    try:
        rows = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except FileNotFoundError:
        raise DataFileError(f"{path}: no such file. Give the table's path, or {SHIPPED}.") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataFileError(f"{path}: cannot be read as a table ({error}). Save it as .csv or .parquet.") from error
    if missing := [name for name in REQUIRED if name not in rows]:
        raise DataFileError(f"{path}: column {missing[0]} is missing. It needs {', '.join(REQUIRED)}.")
    rows = rows.reindex(columns=[*REQUIRED, *OPTIONAL])
    numbers = [*REQUIRED[2:], *OPTIONAL]
    rows[numbers] = rows[numbers].apply(pd.to_numeric, errors="coerce")
    wrong = rows[~((rows["time_s"] > 0) & (rows["power_w"] > 0) & np.isfinite(rows["time_s"] * rows["power_w"]))]
    if len(wrong):
        row = wrong.index[0] + 1
        raise DataFileError(f"{path}: row {row}: time_s and power_w must be positive numbers.")
    of_gpu = rows[rows["gpu"] == gpu]
    named = of_gpu["network"].isin(networks) | _names(of_gpu).isin(networks)
    chosen = of_gpu[named] if networks else of_gpu
    if chosen.empty:
        there = sorted(set(rows["gpu"])) if of_gpu.empty else sorted(set(of_gpu["network"]))
        raise DataFileError(f"{path}: no such {'GPU' if of_gpu.empty else 'network'}; there are {', '.join(there)}.")
    return chosen.reset_index(drop=True)


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
        If a table cannot be written.
    """
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
