"""Describe the measurement of each GPU: sensors, transients, cards, hosts, temperatures and versions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from clockwatt.figures import sampling
from clockwatt.io import files
from clockwatt.page.packing import packed
from clockwatt.page.words import clock_mhz
from clockwatt.schema import layout, tables
from clockwatt.schema.quantities import UNRESTED, CalibrationQuantity
from clockwatt.schema.records import CALIBRATION_SCHEMA

_SENSORS = {
    "power_instant": "instantaneous power",
    "power_average": "driver's average",
    "power_samples": "samples kept by the driver",
    "energy_counter": "energy counter",
}
_ESTIMATORS = {
    "samples": "samples kept by the driver",
    "average": "driver's average",
    "instant": "instantaneous power",
    "counter": "energy counter",
}
_VERSIONS = {"driver_version": "Driver", "cuda_version": "CUDA", "torch_version": "PyTorch", "cudnn_version": "cuDNN"}
_READINGS_SHOWN = 400
"""Largest number of readings shown of a sampling rate."""
_STEP_S = 0.02
_BEFORE_S = 0.3


def described(dataset_dir: Path, gpus: list[str], measurements_dir: Path | None = None) -> dict[str, dict[str, Any]]:
    """Describe how each GPU was measured.

    Parameters
    ----------
    dataset_dir
        From `clockwatt dataset`.
    gpus
        Labels.
    measurements_dir
        The shards' files, for readings of the sensors; None if there are none.

    Raises
    ------
    DataFileError
        If the dataset is missing, or a file is damaged.
    """
    columns = [
        "gpu", "gpu_uuid", "host", "cpu_model", "temperature_start_c", "temperature_end_c", "session_id",
        "power_estimator", *_VERSIONS,
    ]  # fmt: skip
    rows = files.read_table(dataset_dir / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA, columns).to_pandas()
    calibration = files.read_table(dataset_dir / layout.CALIBRATION_FILE, CALIBRATION_SCHEMA).to_pandas()
    cards = _cards(dataset_dir)
    found = {}
    for gpu in gpus:
        own, of_gpu = rows[rows["gpu"] == gpu], calibration[calibration["gpu"] == gpu]
        found[gpu] = {
            "operations": len(own),
            "sessions": int(own["session_id"].nunique()),
            "cards": cards.get(gpu, []),
            "hosts": int(own["host"].nunique()),
            "processors": sorted(own["cpu_model"].dropna().unique()),
            "temperature_c": _range(pd.concat([own["temperature_start_c"], own["temperature_end_c"]])),
            "versions": {
                name: sorted(str(value) for value in own[column].dropna().unique())
                for column, name in _VERSIONS.items()
            },
            "estimators": {
                _ESTIMATORS.get(str(key), str(key)): int(value)
                for key, value in own["power_estimator"].value_counts().items()
            },
            **_calibrated(of_gpu),
            "polling": None if measurements_dir is None else _polling(measurements_dir, gpu, of_gpu),
        }
    return found


def _calibrated(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the calibration at the highest clock of a GPU (`default` first)."""
    if rows.empty:
        return {"point": None, "sensors": [], "idle": [], "repeatability": {}, "transient": None}
    name = str(rows["gpu_name"].iloc[0])
    point = _highest(rows["point"].unique(), name)
    own = rows[(rows["point"] == point) & rows["value"].notna()]

    def values(quantity: CalibrationQuantity) -> dict[str, float]:
        chosen = own[own["quantity"] == quantity]
        return {str(subject): float(value) for subject, value in chosen.groupby("subject")["value"].median().items()}

    periods, windows = values(CalibrationQuantity.SENSOR_PERIOD), values(CalibrationQuantity.SENSOR_WINDOW)
    jitter = own[own["quantity"] == CalibrationQuantity.SENSOR_PERIOD].groupby("subject")["standard_error"].median()
    idle = rows[(rows["quantity"] == CalibrationQuantity.IDLE_POWER) & rows["value"].notna()]
    return {
        "point": point,
        "sensors": [
            {
                "sensor": words, "period_s": periods.get(sensor), "window_s": windows.get(sensor),
                "period_error_s": float(error) if (error := jitter.get(sensor)) and error > 0 else None,
            }
            for sensor, words in _SENSORS.items()
            if sensor in periods or sensor in windows
        ],
        "idle": [
            {"point": str(one), "power_w": float(value)}
            for one, value in sorted(
                idle.groupby("point")["value"].median().items(), key=lambda known: clock_mhz(name, str(known[0]))
            )
        ],
        "repeatability": values(CalibrationQuantity.TIME_REPEATABILITY),
        "transient": _transient(own),
    }  # fmt: skip


def _highest(points: Iterable[str], gpu_name: str) -> str:
    """Return the point of the highest clock, `default` before all."""
    return max(points, key=lambda one: (clock_mhz(gpu_name, one), one == "default"))


def _polling(measurements_dir: Path, gpu: str, calibration: pd.DataFrame) -> dict[str, Any] | None:
    """Return the jitter of power readings while networks ran, by sampling rate; None without telemetry."""
    found = sampling.of_networks(measurements_dir, gpu)
    if not found or calibration.empty:
        return None
    point = _highest(found, str(calibration["gpu_name"].iloc[0]))
    intervals = sampling.intervals(sampling.readings(found[point]).assign(gpu=gpu, point=point))
    lanes = {}
    for lane, own in intervals.groupby("lane"):
        shown = _farthest_off(own)
        lanes[str(lane)] = {
            "time_s": packed(shown["time_s"], "f4"), "jitter_s": packed(shown["jitter_s"], "f4"),
            "interval_s": float(own["interval_s"].median()), "off_95_s": float(own["jitter_s"].abs().quantile(0.95)),
            "readings": len(own),
        }  # fmt: skip
    return {"point": point, "lanes": lanes} if lanes else None


def _farthest_off(rows: pd.DataFrame) -> pd.DataFrame:
    """All readings, or of each of `_READINGS_SHOWN` stretches of time the one that is farthest off the median."""
    if len(rows) <= _READINGS_SHOWN:
        return rows
    stretch = pd.cut(rows["time_s"], _READINGS_SHOWN, labels=False)
    found: pd.DataFrame = rows.loc[rows["jitter_s"].abs().groupby(stretch).idxmax()]
    return found


def _transient(rows: pd.DataFrame) -> dict[str, list[float]] | None:
    """Return the power from idle to load: all runs of a sensor together, medians over steps of time."""
    own = rows[(rows["quantity"] == CalibrationQuantity.POWER_TRANSIENT) & (rows["x"] >= -_BEFORE_S)]
    own = own[~own["subject"].str.startswith(UNRESTED)]
    if own.empty:
        return None
    lane = own["subject"].str.rsplit("-", n=1).str[-1]
    found: dict[str, list[float]] = {}
    for name in ("ring", "fast"):
        mine = own[lane == name]
        step = _STEP_S if name == "ring" else 5 * _STEP_S
        grouped = mine.groupby((mine["x"] / step).round())
        found[f"{name}_s"] = [round(float(key) * step, 4) for key in grouped["value"].median().index.to_numpy(float)]
        found[f"{name}_w"] = [round(float(value), 2) for value in grouped["value"].median()]
    return found


def _cards(dataset_dir: Path) -> dict[str, list[dict[str, Any]]]:
    """Return each GPU's cards with the costs of their reference operations relative to the median card."""
    columns = ["gpu", "gpu_uuid", "anchor_time_factor", "anchor_power_factor"]
    table = files.read_table(dataset_dir / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA, columns)
    grouped = table.filter(pc.is_valid(table["gpu_uuid"])).to_pandas().groupby(["gpu", "gpu_uuid"])
    found: dict[str, list[dict[str, Any]]] = {}
    for (gpu, uuid), own in grouped[["anchor_time_factor", "anchor_power_factor"]].median().iterrows():
        known = {name: None if pd.isna(value) else round(float(value), 4) for name, value in own.items()}
        found.setdefault(str(gpu), []).append(
            {"card": str(uuid), "time": known["anchor_time_factor"], "power": known["anchor_power_factor"]}
        )
    return found


def _range(values: pd.Series) -> list[float] | None:
    known = values.dropna()
    return [float(known.min()), float(known.max())] if len(known) else None
