"""Sensor readings taken while networks ran, and how regular they are; numbers alone, for figures and the page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from clockwatt.io import files
from clockwatt.schema.records import TELEMETRY_SCHEMA

LANES = {"ring": "ring buffer of the driver", "fast": "polled by the logger"}
"""Sampling rates of the logger that read power."""
PAUSE = 10.0
"""Intervals so many times as long as the median are pauses between sessions, in which nothing was read on purpose."""
COLUMNS = (
    *("lane", "monotonic_ns", "power_sample_w", "power_average_w", "power_instant_w", "energy_counter_j"),
    "session_id",
)
_READINGS_AT_MOST = 20_000


def of_networks(measurements_dir: Path, label: str) -> dict[str, Path]:
    """Return operating points of a GPU with the file of readings that were taken there while networks ran.

    GPUs of reference data have none: it is shipped without telemetry.
    """
    return {path.parent.name: path for path in sorted((measurements_dir / label).glob("*/telemetry-networks-*"))}


def readings(path: Path) -> pd.DataFrame:
    """Return the readings of the session that has most of them, in order: `COLUMNS` and `time_s` from the first.

    Raises
    ------
    DataFileError
        If the file is damaged.
    """
    rows: pd.DataFrame = files.read_table(path, TELEMETRY_SCHEMA, list(COLUMNS)).to_pandas()
    if rows.empty:
        return rows.assign(time_s=pd.Series(dtype=float))
    own = rows[rows["session_id"] == rows["session_id"].value_counts().idxmax()].sort_values("monotonic_ns")
    return own.assign(time_s=(own["monotonic_ns"] - own["monotonic_ns"].min()) / 1e9)


def intervals(telemetry: pd.DataFrame) -> pd.DataFrame:
    """Return the time between readings at a sampling rate.

    Parameters
    ----------
    telemetry
        From `readings`, with `gpu` and `point`.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `point`, `lane`, `time_s` (since the first reading), `interval_s`, `jitter_s`: deviation from the median
        of the sampling rate.
    """
    rows = telemetry[telemetry["lane"].isin(LANES)].sort_values(["gpu", "point", "lane", "monotonic_ns"])
    key = ["gpu", "point", "lane"]
    interval = rows.groupby(key)["monotonic_ns"].diff().astype(float) / 1e9
    rows = rows.assign(interval_s=interval).dropna(subset="interval_s")
    rows = rows[rows.groupby(key).cumcount() < _READINGS_AT_MOST]
    median = rows.groupby(key)["interval_s"].transform("median")
    rows, median = rows[rows["interval_s"] < PAUSE * median], median[rows["interval_s"] < PAUSE * median]
    return rows.assign(jitter_s=rows["interval_s"] - median)[[*key, "time_s", "interval_s", "jitter_s"]]
