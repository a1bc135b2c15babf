"""Rows of a dataset as a predictor sees them: one GPU, repetitions merged, cards levelled, every exclusion counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.predict.features import CATALOGUE_COLUMNS
from clockwatt.predict.predictors import TARGETS
from clockwatt.predict.unlimited import without_limit
from clockwatt.schema import flags, tables
from clockwatt.schema.records import OK

KEY = ["operation_id", "pass", "point", "tf32"]
"""What identifies a measured cost on a GPU."""

EXCLUDED_FLAGS = (flags.HARDWARE_THROTTLED, "interrupted")
"""Rows with one of these are not learnt from: what they say cannot be repeated."""

WITHOUT_WORK = "no device work: known, not learnt"
"""Why calls that cost host time alone are not learnt from."""

NOT_ABOVE_IDLE = "dynamic energy not above zero"
"""Why calls that need no more power than idling are not learnt from: what is learnt is a ratio."""

OFF_TARGET = "clock_off_target"
"""Not learnt from either, unless the power limit explains it: then it is what happens at this operating point."""


def error_of(target: str) -> str:
    """Column of the standard error of a target relative to it."""
    return f"error_{target}"


def _standard_error_of(target: str) -> str:
    """Column of a measurement's standard error, in the unit of the target."""
    quantity, _, unit = target.rpartition("_")
    return f"{quantity}_standard_error_{unit}"


_OPERATION = [name for name in CATALOGUE_COLUMNS if name != "operation_id"]
_COLUMNS = [
    "subject_id",
    "pass",
    "point",
    "tf32",
    "gpu_name",
    "virtual",
    "status",
    "flags",
    "device_work",
    "anchor_time_factor",
    "anchor_power_factor",
    "anchor_host_factor",
    "power_idle_w",
    "power_limit_w",
    "energy_j",
    "time_host_in_pass_s",
    "time_host_in_pass_standard_error_s",
    "sm_clock_median_mhz",
    "energy_dynamic_paced_j",
    "energy_dynamic_paced_standard_error_j",
    *_OPERATION,
    *TARGETS,
    *(_standard_error_of(target) for target in TARGETS),
]


@dataclass(frozen=True)
class Samples:
    """Costs of operations on one GPU.

    Attributes
    ----------
    gpu_name
        NVML name.
    virtual
        Whether the GPU is modelled; never mixed with measured rows.
    rows
        One row per `KEY`, sorted by it, with `TARGETS`, `error_of` each, `energy_j`, `device_work`, `power_idle_w`,
        `power_limit_w` and `excluded`: the reason why the row is not learnt from, or empty. The host time is that of a
        call among others of its pass; the dynamic energy, like the device time, is that of a call which the power limit
        does not slow.
    operations
        Every operation once per pass, with `CATALOGUE_COLUMNS`, `pass` and `device_work`.
    measurements
        Rows before repetitions were merged.
    """

    gpu_name: str
    virtual: bool
    rows: pd.DataFrame
    operations: pd.DataFrame
    measurements: int

    @property
    def exclusions(self) -> dict[str, int]:
        """Reason to number of rows that are not learnt from."""
        reasons = Counter(reason for reason in self.rows["excluded"] if reason)
        return dict(sorted(reasons.items()))


def gpus_in(dataset_dir: Path) -> list[str]:
    """Labels of the GPUs that a dataset has operations of, sorted.

    Raises
    ------
    DataFileError
        If there is no dataset of operations.
    """
    table = files.read_table(dataset_dir / tables.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA, ["gpu"])
    return sorted(pc.unique(table["gpu"]).to_pylist())


def read_samples(dataset_dir: Path, gpu: str) -> Samples:
    """Read the operations of one GPU out of a dataset.

    Times are divided by the card's anchor factor in time, power by that in power, dynamic energy by both, host times by
    the host's in the session, so that all rows speak of the median card in the median host.

    Raises
    ------
    DataFileError
        If the dataset is missing or damaged, has no rows of this GPU, or mixes virtual and measured ones.
    """
    path = dataset_dir / tables.OPERATIONS_FILE
    table = read_gpu_rows(path, tables.OPERATIONS_SCHEMA, gpu, _COLUMNS)
    if table.num_rows == 0:
        raise DataFileError(f"{path}: no rows of GPU {gpu!r}. Measure it, then run `clockwatt dataset` again.")
    if len(pc.unique(table["virtual"])) > 1:
        raise DataFileError(
            f"{path}: GPU {gpu!r} has virtual and measured rows, which are never mixed. Give them different labels in "
            "config.yaml and measure again."
        )
    rows = table.to_pandas().rename(columns={"subject_id": "operation_id"})
    # in a network many calls share one backward pass, which an operation alone starts anew in each call
    _take(rows, "time_host_s", "time_host_in_pass_s", rows["time_host_in_pass_s"].notna())
    unlimited = without_limit(rows, (rows["status"] == OK) & ~flags.flagged(rows, *EXCLUDED_FLAGS))
    rows[list(unlimited.columns)] = unlimited
    for target in TARGETS:
        rows[error_of(target)] = rows[_standard_error_of(target)].astype(float) / rows[target].astype(float)
    rows["excluded"] = _reasons(rows)
    level_cards(rows)
    rows["time_host_s"] = rows["time_host_s"].astype(float) / rows["anchor_host_factor"].fillna(1.0)
    described = rows[rows["spec"].notna()]
    operations = described.drop_duplicates(["operation_id", "pass"])[
        ["operation_id", "pass", "device_work", *_OPERATION]
    ].sort_values(["pass", "operation_id"], ignore_index=True)
    return Samples(
        gpu_name=str(rows["gpu_name"].iloc[0]),
        virtual=bool(rows["virtual"].iloc[0]),
        rows=_merge_repetitions(described),
        operations=operations,
        measurements=len(rows),
    )


def read_gpu_rows(path: Path, expected: pa.Schema, gpu: str, columns: list[str]) -> pa.Table:
    """Rows of one GPU, reading only the row groups that have any.

    Raises
    ------
    DataFileError
        If the file is missing, damaged or of another kind.
    """
    tables = []
    with files.open_parquet(path, expected) as parquet:
        for group in range(parquet.num_row_groups):
            labels = parquet.read_row_group(group, columns=["gpu"])["gpu"]
            mask = pc.equal(labels, gpu)
            if pc.any(mask).as_py():
                there = [name for name in columns if name in parquet.schema_arrow.names]
                tables.append(
                    files.with_columns(parquet.read_row_group(group, columns=there), expected, columns).filter(mask)
                )
    wanted = pa.schema([expected.field(name) for name in columns])
    return pa.concat_tables(tables) if tables else wanted.empty_table()


def _take(rows: pd.DataFrame, target: str, other: str, where: pd.Series) -> None:
    """Put another column and its error in place of a target where `where` holds, in place."""
    for column, taken in ((target, other), (_standard_error_of(target), _standard_error_of(other))):
        rows[column] = rows[taken].astype(float).where(where, rows[column].astype(float))


def _reasons(rows: pd.DataFrame) -> list[str]:
    targets = rows[list(TARGETS)].astype(float)
    finite = targets.notna().all(axis=1)
    positive = (targets > 0).all(axis=1)
    return [
        _reason(status, set(() if flagged is None else flagged), bool(device_work), complete, above_zero)
        for status, flagged, device_work, complete, above_zero in zip(
            rows["status"], rows["flags"], rows["device_work"].fillna(True), finite, positive, strict=True
        )
    ]


def _reason(status: str, flagged: set[str], device_work: bool, complete: bool, positive: bool) -> str:
    """Why a row is not learnt from; the first reason that holds."""
    if status != OK:
        return f"status {status}"
    if not device_work:
        return WITHOUT_WORK
    for flag in EXCLUDED_FLAGS:
        if flag in flagged:
            return f"flag {flag}"
    if OFF_TARGET in flagged and flags.POWER_CAPPED not in flagged:
        return f"flag {OFF_TARGET}"
    if not complete:
        return "a time or the power could not be measured"
    return "" if positive else NOT_ABOVE_IDLE


def level_cards(rows: pd.DataFrame) -> None:
    """Divide times, power and energies by the factors of the card they were measured on, in place."""
    time_factor = rows["anchor_time_factor"].astype(float).fillna(1.0)
    power_factor = rows["anchor_power_factor"].astype(float).fillna(1.0)
    for name in ("time_device_s", "time_eager_s"):
        rows[name] = rows[name].astype(float) / time_factor
    rows["power_w"] = rows["power_w"].astype(float) / power_factor
    for name in ("energy_dynamic_j", "energy_j"):
        rows[name] = rows[name].astype(float) / (time_factor * power_factor)


def worth_most(rows: pd.DataFrame, worth: pd.Series, key: list[str]) -> pd.DataFrame:
    """Of the rows with the same `key`, those of the highest `worth`."""
    return rows[worth == worth.groupby([rows[name] for name in key]).transform("max")]


def _merge_repetitions(rows: pd.DataFrame) -> pd.DataFrame:
    """Median over the repetitions worth most: those that may be learnt from, of these those on steady hosts."""
    worth = 2 * (rows["excluded"] == "").astype(int) + (~flags.flagged(rows, flags.HOST_UNSTEADY)).astype(int)
    kept = worth_most(rows, worth, KEY)
    numbers = [*TARGETS, *(error_of(target) for target in TARGETS), "energy_j", "power_idle_w", "power_limit_w"]
    grouped = kept.groupby(KEY, sort=True)
    merged = grouped[numbers].median()
    merged[["excluded", "device_work"]] = grouped[["excluded", "device_work"]].first()
    return merged.reset_index()
