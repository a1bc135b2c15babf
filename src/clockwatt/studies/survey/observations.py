"""What is compared between cards of one GPU model, and the cards to compare with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.dataset.reference import Source
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.measure.reference_operations import anchors
from clockwatt.schema import layout
from clockwatt.schema.records import ANCHOR, MEASUREMENT_SCHEMA, MEASUREMENT_VERSION, OK


@dataclass(frozen=True)
class Compared:
    """A quantity of a reference operation."""

    operation_id: str
    column: str
    worse: str  # word for a card whose value is higher


_, _RELU, _SOFTMAX, _, _LINEAR = (row.operation_id for row in anchors())
COMPARED = {
    "time of ReLU (memory)": Compared(_RELU, "time_eager_s", "slower"),
    "time of softmax (memory)": Compared(_SOFTMAX, "time_eager_s", "slower"),
    "time of linear (power limit)": Compared(_LINEAR, "time_eager_s", "slower"),
    "power of ReLU (memory)": Compared(_RELU, "power_w", "draws more power"),
    "power of softmax (memory)": Compared(_SOFTMAX, "power_w", "draws more power"),
}
"""Sustained times, and power where the power limit does not set it. Small operations show the host instead."""

COLUMNS = [
    "kind", "subject_id", "session_id", "started_us", "measurement_version", "gpu_name", "gpu_uuid", "virtual", "host",
    "status", "power_w", "time_eager_s", "temperature_end_c", "throttle_reasons", "sm_clock_median_mhz", "position",
]  # fmt: skip
"""Columns of measurements that are read here."""


def parquet_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files among some paths, and all Parquet files in the folders among them, each once."""
    found = [file for path in paths for file in (sorted(path.rglob("*.parquet")) if path.is_dir() else [path])]
    return list(dict.fromkeys(found))


def read(paths: Iterable[Path]) -> pd.DataFrame:
    """Read measurements of reference operations with energy from files, or from all Parquet files in folders.

    Returns
    -------
    pandas.DataFrame
        `COLUMNS`, and `file`, the name of the file without its suffix; rows of the present version of the procedure
        alone.

    Raises
    ------
    DataFileError
        If a file is missing, damaged or of another kind, or there is none.
    """
    found = parquet_files(paths)
    if not found:
        raise DataFileError(f"{', '.join(map(str, paths))}: no measurements. Give files of `clockwatt card --output`.")
    with files.named_by_user("Give a file of `clockwatt card --output`."):
        tables = [usable(files.read_table(file, MEASUREMENT_SCHEMA, COLUMNS)).assign(file=file.stem) for file in found]
    return pd.concat(tables, ignore_index=True)


def usable(measurements: pa.Table) -> pd.DataFrame:
    """Return what can be compared of measurements with `COLUMNS`, as `read` does."""
    rows: pd.DataFrame = measurements.select(COLUMNS).to_pandas()
    current = rows["measurement_version"] == MEASUREMENT_VERSION
    wanted = (rows["kind"] == ANCHOR) & (rows["status"] == OK) & current & rows["power_w"].notna()
    return rows[wanted].astype({"power_w": float, "time_eager_s": float, "temperature_end_c": float})


def shipped(gpu_name: str) -> pd.DataFrame:
    """Return the shipped measurements of cards of one model as `read` does; no row if none is shipped."""
    paths = shipped_files(gpu_name)
    return read(paths) if paths else pd.DataFrame(columns=COLUMNS)


def shipped_files(gpu_name: str) -> list[Path]:
    """Return the files of the shipped measurements of cards of one model."""
    paths = []
    for file in sorted(resource("reference").glob("*/config.yaml")):
        campaign = config.load(file)
        source = Source(campaign, file.parent / layout.MEASUREMENTS, file.parent / layout.CATALOGUE)
        for label, gpu in campaign.gpus.items():
            if gpu.device.casefold() == gpu_name.casefold():
                paths += source.measurement_files(label, OperatingPoint())
    return paths


def observations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each measured value of `COMPARED`.

    Parameters
    ----------
    rows
        As `read` returns them.

    Returns
    -------
    pandas.DataFrame
        `quantity` (a key of `COMPARED`), `card` (UUID), `session`, `host`, `started_us`, `position` in the session,
        `log` (natural logarithm of s or W) and `temperature_c`.
    """
    tables = []
    for name, compared in COMPARED.items():
        of_operation = rows[(rows["subject_id"] == compared.operation_id) & (rows[compared.column] > 0)]
        tables.append(
            pd.DataFrame(
                {
                    "quantity": name,
                    "card": of_operation["gpu_uuid"],
                    "session": of_operation["session_id"],
                    "host": of_operation["host"],
                    "started_us": of_operation["started_us"],
                    "position": of_operation["position"],
                    "log": np.log(of_operation[compared.column].astype(float)),
                    "temperature_c": of_operation["temperature_end_c"].astype(float),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def last_shared_position(rows: pd.DataFrame) -> int:
    """Return the last position in a session at which most sessions measured one quantity.

    An operation takes up to 2 % longer late in a session, so only measurements at equal positions compare cards.

    Parameters
    ----------
    rows
        As `observations` returns them, of one quantity.
    """
    counts = rows["position"].value_counts()
    return int(counts.index[counts > counts.max() / 2].max())
