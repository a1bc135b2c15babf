"""What the figures are drawn from."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from clockwatt.config import OperatingPoint
from clockwatt.errors import DataFileError
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.predict.composition.comparison import VALIDATION_SCHEMA
from clockwatt.predict.evaluation.tables import CROSSVAL_SCHEMA
from clockwatt.predict.samples import read_gpu_rows
from clockwatt.schema import layout
from clockwatt.schema.records import CALIBRATION_SCHEMA


@dataclass(frozen=True)
class Gpu:
    """A GPU that figures show."""

    label: str
    virtual: bool


def gpus(predictors_dir: Path) -> list[Gpu]:
    """Every GPU with predictions, sorted by label.

    Raises
    ------
    DataFileError
        If there is no cross-validation.
    """
    table = files.read_table(predictors_dir / layout.CROSSVAL_FILE, CROSSVAL_SCHEMA, ["gpu", "virtual"])
    pairs = table.group_by(["gpu", "virtual"]).aggregate([]).to_pylist()
    return sorted((Gpu(pair["gpu"], pair["virtual"]) for pair in pairs), key=lambda gpu: gpu.label)


def held_out(predictors_dir: Path, gpu: Gpu, columns: list[str]) -> pd.DataFrame:
    """Held-out predictions of one GPU that count in its metrics, with pass, predictor and class beside `columns`.

    Raises
    ------
    DataFileError
        If there is no cross-validation, or it is damaged.
    """
    wanted = ["pass", "predictor", "operation_class", "learnt", *columns]
    table = read_gpu_rows(predictors_dir / layout.CROSSVAL_FILE, CROSSVAL_SCHEMA, gpu.label, wanted)
    frame: pd.DataFrame = table.filter(pc.field("learnt")).to_pandas()
    return frame


def compositions(validation_dir: Path) -> pd.DataFrame:
    """Every composition, with `clock_mhz`, the SM clock asked for (at `default` the model's boost clock).

    Raises
    ------
    DataFileError
        If there is no validation, or it is damaged.
    """
    rows: pd.DataFrame = files.read_table(validation_dir / layout.NETWORKS_FILE, VALIDATION_SCHEMA).to_pandas()
    pairs = rows[["gpu_name", "point"]].drop_duplicates().itertuples(index=False)
    clocks = {
        (name, point): OperatingPoint.parse(point).sm_clock_mhz or find_spec(name).boost_clock_mhz
        for name, point in pairs
    }
    keys = zip(rows["gpu_name"], rows["point"], strict=True)
    return rows.assign(clock_mhz=[float(clocks[key]) for key in keys])


def calibrated(dataset_dir: Path, quantity: str) -> pd.DataFrame:
    """Calibration rows of one quantity that have a value, of each GPU at its highest SM clock (`default` before all).

    Raises
    ------
    DataFileError
        If the dataset has no calibration, or it is damaged.
    """
    columns = ["gpu", "virtual", "point", "quantity", "subject", "x", "value", "standard_error"]
    table = files.read_table(dataset_dir / layout.CALIBRATION_FILE, CALIBRATION_SCHEMA, columns)
    wanted = (pc.field("quantity") == quantity) & pc.field("value").is_valid()
    rows: pd.DataFrame = table.filter(wanted).to_pandas()
    clocks = {point: OperatingPoint.parse(point).sm_clock_mhz or math.inf for point in rows["point"].unique()}
    clock = rows["point"].map(clocks)
    first = rows.assign(clock=clock).sort_values(["clock", "point"]).groupby("gpu")["point"].last()
    return rows[rows["point"] == rows["gpu"].map(first)]


def quality(dataset_dir: Path, name: str) -> dict[str, Any]:
    """Counts that the dataset wrote.

    Raises
    ------
    DataFileError
        If they are missing or no JSON.
    """
    path = dataset_dir / name
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path}: cannot be read ({error}). Run `clockwatt dataset` again.") from error
    return report
