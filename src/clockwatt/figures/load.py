"""Load the files of earlier stages, as data frames for the figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from clockwatt.config import OperatingPoint
from clockwatt.errors import DataFileError
from clockwatt.figures import sampling, style
from clockwatt.figures.gpus import Gpu, Gpus
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.predict.composition.networks import VALIDATION_SCHEMA
from clockwatt.predict.evaluation.leave_out import CROSSVAL_SCHEMA
from clockwatt.predict.models.training_data import read_gpu_rows
from clockwatt.schema import layout, records, tables
from clockwatt.schema.costs import ENERGY_CORRECTED
from clockwatt.schema.execution import FP32, TF32


def metrics(predictors_dir: Path) -> dict[str, Any]:
    """Return the report of `clockwatt fit` on each GPU.

    Raises
    ------
    DataFileError
        If it is missing or no such file.
    """
    return _json(predictors_dir / layout.METRICS_FILE, "clockwatt fit", "gpus")


def quality(dataset_dir: Path) -> dict[str, Any]:
    """Return counts that `clockwatt dataset` wrote.

    Raises
    ------
    DataFileError
        If they are missing or no such file.
    """
    return _json(dataset_dir / layout.QUALITY_FILE, "clockwatt dataset", "points")


def _json(path: Path, command: str, key: str) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        report[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataFileError(f"{path}: cannot be read ({error!r}). Run `{command}` again.") from error
    return report


def gpus(report: dict[str, Any]) -> Gpus:
    """Return every GPU with predictors; `report` from `metrics`."""
    return Gpus(Gpu(label, bool(told["virtual"])) for label, told in report["gpus"].items())


def held_out(predictors_dir: Path, gpu: str, predictors: Sequence[str], columns: list[str]) -> pd.DataFrame:
    """Held-out predictions of one GPU that count in its metrics: pass, predictor, class, operation beside `columns`.

    Raises
    ------
    DataFileError
        If there is no cross-validation, or it is damaged.
    """
    wanted = ["gpu", "pass", "predictor", "operation_class", "learnt", *columns]
    table = read_gpu_rows(predictors_dir / layout.CROSSVAL_FILE, CROSSVAL_SCHEMA, gpu, wanted)
    chosen = pc.field("learnt") & pc.is_in(pc.field("predictor"), pa.array(predictors, pa.string()))
    frame: pd.DataFrame = table.filter(chosen).drop_columns(["learnt"]).to_pandas()
    return frame


def compositions(validation_dir: Path) -> pd.DataFrame:
    """Return every composition, with what its operating point asks.

    `sm_clock_mhz` and `power_limit_w` are those asked for, at `default` the model's boost clock and default limit, and
    null where another setting is not the default; `reference` is whether it is the GPU's `reference_point`; `compared`
    are the execution settings of other GPUs that it stands beside: float32 on a GPU without TF32 beside their TF32.

    Raises
    ------
    DataFileError
        If there is no validation, or it is damaged.
    """
    rows: pd.DataFrame = files.read_table(validation_dir / layout.NETWORKS_FILE, VALIDATION_SCHEMA).to_pandas()
    pairs = rows[["gpu", "gpu_name", "point"]].drop_duplicates()
    asked = [_asked(name, point) for name, point in zip(pairs["gpu_name"], pairs["point"], strict=True)]
    clocks, limits = zip(*asked, strict=True) if asked else ((), ())
    pairs = pairs.assign(sm_clock_mhz=pd.array(clocks, "Float64"), power_limit_w=pd.array(limits, "Float64"))
    pairs = pairs.astype({"sm_clock_mhz": float, "power_limit_w": float})
    reference = {label: reference_point(own["point"]) for label, own in pairs.groupby("gpu")}
    pairs = pairs.assign(reference=pairs["point"] == pairs["gpu"].map(reference))
    return rows.assign(compared=_compared(rows)).merge(pairs, on=["gpu", "gpu_name", "point"], how="left")


def _compared(rows: pd.DataFrame) -> pd.Series:
    without = [name for name in rows["gpu_name"].unique() if find_spec(name).flop_per_cycle_per_sm.tf32 is None]
    in_tf32 = rows.loc[rows["execution"] == TF32, ["virtual", "network_id"]].drop_duplicates()
    beside = pd.MultiIndex.from_frame(rows[["virtual", "network_id"]]).isin(pd.MultiIndex.from_frame(in_tf32))
    exact = beside & rows["gpu_name"].isin(without) & (rows["execution"] == FP32)
    return rows["execution"].mask(exact, str(TF32))


def _asked(gpu_name: str, point: str) -> tuple[float | None, float | None]:
    """Return the SM clock if nothing else is asked for, and power limit if nothing else is."""
    asked, spec = OperatingPoint.parse(point), find_spec(gpu_name)
    others = set(asked.settings)
    clock = asked.sm_clock_mhz or spec.boost_clock_mhz if others <= {"sm_clock_mhz"} else None
    limit = asked.power_limit_w or spec.power_w.default if others <= {"power_limit_w"} else None
    return clock, limit


def reference_point(points: Iterable[str]) -> str:
    """The operating point that a GPU is shown at where one is enough: `default`, else that of the highest SM clock."""

    def key(point: str) -> tuple[float, str]:
        asked = OperatingPoint.parse(point)
        return (math.inf if asked.is_default else asked.sm_clock_mhz or 0, point)

    return max(points.unique() if isinstance(points, pd.Series) else set(points), key=key)


def whole_errors(dataset_dir: Path) -> pd.DataFrame:
    """Standard errors of networks measured whole, of repetitions together: `time_s_error` and `energy_j_error`.

    Raises
    ------
    DataFileError
        If the dataset is missing or damaged.
    """
    columns = [
        *("gpu", "subject_id", "pass", "point", "execution", "status", "energy_j", "energy_standard_error_j"),
        *("time_eager_corrected_s", "time_eager_corrected_standard_error_s", ENERGY_CORRECTED),
    ]
    table = files.read_table(dataset_dir / layout.NETWORKS_FILE, tables.NETWORKS_SCHEMA, columns)
    rows = table.filter(pc.field("status") == records.OK).to_pandas()
    rows = _with_energy_error(rows).rename(columns={"subject_id": "network_id"})
    key = ["gpu", "point", "execution", "network_id", "pass"]
    found = {}
    for name, value, error in (
        ("time_s_error", "time_eager_corrected_s", "time_eager_corrected_standard_error_s"),
        ("energy_j_error", ENERGY_CORRECTED, "energy_error"),
    ):
        own = rows.assign(square=rows[error].astype(float) ** 2, value=rows[value].astype(float)).groupby(key)
        spread = own["value"].var(ddof=1).fillna(0)
        found[name] = ((own["square"].mean() + spread) / own["value"].count()) ** 0.5
    return pd.DataFrame(found).reset_index()


def _with_energy_error(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with `energy_error`, that of the energy as it is on the median card."""
    factor = rows[ENERGY_CORRECTED].astype(float) / rows["energy_j"].astype(float)
    return rows.assign(energy_error=rows["energy_standard_error_j"].astype(float) * factor)


def operations(dataset_dir: Path, points: dict[str, str], columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return the operations of GPUs, each at one operating point, with their costs and errors.

    Parameters
    ----------
    dataset_dir
        From `clockwatt dataset`.
    points
        GPU to its operating point.
    columns
        Wanted beside GPU, point, operation, pass, TF32, times and energies.

    Raises
    ------
    DataFileError
        If the dataset is missing or damaged.
    """
    wanted = [
        *("gpu", "point", "subject_id", "pass", "execution", "status", "operation_class", "energy_j"),
        *("energy_standard_error_j", ENERGY_CORRECTED, "time_device_corrected_s"),
        *("time_device_corrected_standard_error_s", "time_eager_corrected_s", "time_eager_corrected_standard_error_s"),
        *columns,
    ]
    parts = []
    for table in files.read_batches(dataset_dir / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA, wanted):
        there = pc.fill_null(pc.equal(table["status"], records.OK), False)
        one = pc.is_in(
            pc.binary_join_element_wise(table["gpu"], table["point"], "/"),
            pa.array([f"{gpu}/{point}" for gpu, point in points.items()], pa.string()),
        )
        parts.append(table.filter(pc.and_(there, one)))
    rows = pa.concat_tables(parts).to_pandas() if parts else pd.DataFrame(columns=wanted)
    return _with_energy_error(rows).rename(columns={"subject_id": "operation_id"})


def calls(dataset_dir: Path) -> pd.DataFrame:
    """Return how often (`calls`) each network calls each operation in a pass.

    Raises
    ------
    DataFileError
        If the dataset's catalogue is missing or damaged.
    """
    path = dataset_dir / layout.DATASET_CATALOGUE.name / layout.CALLS_FILE
    key = ["network_id", "pass", "operation_id"]
    table = files.read_table(path, records.CALL_SCHEMA, key)
    counted: pd.DataFrame = table.group_by(key).aggregate([([], "count_all")]).to_pandas()
    return counted.rename(columns={"count_all": "calls"})


def catalogue(dataset_dir: Path) -> pd.DataFrame:
    """Return the description of the dataset's operations, once for each pass.

    Raises
    ------
    DataFileError
        If the dataset's catalogue is missing or damaged.
    """
    path = dataset_dir / layout.DATASET_CATALOGUE.name / layout.OPERATIONS_FILE
    rows: pd.DataFrame = files.read_table(path, records.OPERATION_SCHEMA).to_pandas()
    return rows


def specs(operations: pd.DataFrame, operation_ids: Iterable[str]) -> dict[str, str]:
    """Return operation ids to the JSON of what they are; `operations` from `catalogue`."""
    found = operations[operations["operation_id"].isin(set(operation_ids))]
    return dict(zip(found["operation_id"], found["spec"], strict=True))


def clocks(dataset_dir: Path) -> pd.DataFrame:
    """Return the SM clocks asked for and seen under load, of every operation, by GPU and point.

    Raises
    ------
    DataFileError
        If the dataset is missing or damaged.
    """
    columns = ["gpu", "point", "requested_sm_clock_mhz", "sm_clock_median_mhz"]
    rows: pd.DataFrame = files.read_table(
        dataset_dir / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA, columns
    ).to_pandas()
    return rows


def calibrated(dataset_dir: Path, quantity: str) -> pd.DataFrame:
    """Return the calibration rows of one quantity that have a value, of each GPU at its `reference_point`.

    Raises
    ------
    DataFileError
        If the dataset has no calibration, or it is damaged.
    """
    columns = ["gpu", "virtual", "point", "quantity", "subject", "x", "value", "standard_error"]
    table = files.read_table(dataset_dir / layout.CALIBRATION_FILE, records.CALIBRATION_SCHEMA, columns)
    wanted = (pc.field("quantity") == quantity) & pc.field("value").is_valid()
    rows: pd.DataFrame = table.filter(wanted).to_pandas()
    points = {label: reference_point(own["point"]) for label, own in rows.groupby("gpu")}
    return rows[rows["point"] == rows["gpu"].map(points)]


def telemetry(measurements_dir: Path, labels: Iterable[str], points_at_most: int) -> pd.DataFrame:
    """Readings taken while networks ran, of some operating points of each GPU: `gpu`, `point`, `time_s` from the first.

    GPUs of reference data have none: it is shipped without telemetry.

    Raises
    ------
    DataFileError
        If a file is damaged.
    """
    parts = []
    for label in labels:
        found = sampling.of_networks(measurements_dir, label)
        ordered = sorted(found, key=lambda point: (OperatingPoint.parse(point).sm_clock_mhz or math.inf, point))
        parts += [
            sampling.readings(found[point]).assign(gpu=label, point=point)
            for point in style.spread(ordered, points_at_most)
        ]
    names = [*sampling.COLUMNS, "time_s", "gpu", "point"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=names)
