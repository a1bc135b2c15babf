"""Training data of one GPU: rows of a dataset, merged and selected, and the cells of a pass that predictors learn.

Repetitions are merged; excluded rows are kept with the reason and counted. Where many SM clocks were measured,
predictors are trained on some of them (see `clock_law.learnt_points`). Each operation is predicted there with its group
held out. The DVFS (clock) model extends these predictions to the other measured clocks, so that the predictor is
evaluated on all rows.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.dataset.corrections import BACK_TO_BACK_ALONE, NOT_ABOVE_IDLE
from clockwatt.errors import DataFileError
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.io import files
from clockwatt.predict.features import (
    CATALOGUE_COLUMNS,
    OPERATION_CLASS,
    channel_groups,
    features_of,
    operation_features,
    sm_clock_mhz,
)
from clockwatt.predict.models.clock_law import CostLaw, learnt_points, neighbours
from clockwatt.predict.models.extrapolation import Domain
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema import layout, tables
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    BY_CORRECTED,
    CORRECTED,
    COSTS,
    ENERGY_CORRECTED,
    ENERGY_DYNAMIC_CORRECTED,
    EXCLUDED,
    NEEDED,
    POWER_CORRECTED,
)
from clockwatt.schema.flags import Flag, flagged
from clockwatt.schema.records import OPERATION_SCHEMA

KEY = ["operation_id", "pass", "point", "execution"]
"""What identifies a measured cost on a GPU."""

_COLUMNS = [
    *("subject_id", "pass", "point", "execution", "gpu_name", "virtual", "flags", "device_work", EXCLUDED),
    *("power_idle_w", "power_limit_w", ENERGY_CORRECTED),
    *(cost.corrected for cost in COSTS),
    *(cost.standard_error for cost in COSTS),
]


def error_of(target: str) -> str:
    """Return the column of a target's relative standard error."""
    return BY_CORRECTED[target].relative_error


@dataclass(frozen=True)
class Samples:
    """Costs of operations on one GPU.

    Attributes
    ----------
    gpu_name
        NVML name.
    virtual
        Whether the GPU is virtual; never mixed with measured rows.
    rows
        One row per `KEY`, sorted by it, with the corrected costs of the dataset, `error_of` each, `energy_corrected_j`,
        `device_work`, `power_idle_w`, `power_limit_w` and `excluded`: the reason why the row is not trained on, or
        empty.
    operations
        Every operation once per pass, with `CATALOGUE_COLUMNS`, `pass`, `device_work` and `block`.
    measurements
        Rows before repetitions were merged.
    """

    gpu_name: str
    virtual: bool
    rows: pd.DataFrame
    operations: pd.DataFrame
    measurements: int

    def learnt(self, pass_: str) -> pd.DataFrame:
        """Return rows of a pass that may be trained on: with work on the device, and not excluded."""
        rows = self.rows
        return rows[(rows["pass"] == pass_) & rows["device_work"].astype(bool) & (rows[EXCLUDED] == "")]

    @property
    def exclusions(self) -> dict[str, int]:
        """Reason to number of rows that are not trained on."""
        reasons = Counter(reason for reason in self.rows["excluded"] if reason)
        return dict(sorted(reasons.items()))


def gpus_in(dataset_dir: Path) -> list[str]:
    """Return the labels of the GPUs that a dataset has operations of, sorted.

    DataFileError if there is no dataset of operations.
    """
    table = files.read_table(dataset_dir / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA, ["gpu"])
    return sorted(pc.unique(table["gpu"]).to_pylist())


def read_samples(dataset_dir: Path, gpu: str) -> Samples:
    """Read the measurements of one GPU's operations from a dataset, and the operations from its catalogue.

    DataFileError if the dataset is missing or damaged, has no rows of this GPU, or mixes virtual and measured ones.
    """
    path = dataset_dir / layout.OPERATIONS_FILE
    table = read_gpu_rows(path, tables.OPERATIONS_SCHEMA, gpu, _COLUMNS)
    if table.num_rows == 0:
        raise DataFileError(f"{path}: no rows of GPU {gpu!r}. Measure it, then run `clockwatt dataset` again.")
    if len(pc.unique(table["virtual"])) > 1:
        raise DataFileError(
            f"{path}: GPU {gpu!r} has virtual and measured rows, which are never mixed. Give them different labels in "
            "config.yaml and measure again."
        )
    rows = table.to_pandas().rename(columns={"subject_id": "operation_id"})
    for cost in COSTS:
        rows[cost.relative_error] = rows[cost.standard_error].astype(float) / rows[cost.corrected].astype(float)
    described = rows[~flagged(rows, Flag.NOT_IN_CATALOGUE)]
    return Samples(
        gpu_name=str(rows["gpu_name"].iloc[0]),
        virtual=bool(rows["virtual"].iloc[0]),
        rows=_merge_repetitions(described),
        operations=_operations(dataset_dir / layout.CATALOGUE / layout.OPERATIONS_FILE, described),
        measurements=len(rows),
    )


def _operations(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the catalogue's rows of the operations of `rows`, by pass; DataFileError if it lacks one."""
    key = ["operation_id", "pass"]
    columns = list(dict.fromkeys([*key, "device_work", "block", *CATALOGUE_COLUMNS]))
    catalogue: pd.DataFrame = files.read_table(path, OPERATION_SCHEMA, columns).to_pandas()
    wanted = pd.MultiIndex.from_frame(rows[key].drop_duplicates())
    known = pd.MultiIndex.from_frame(catalogue[key])
    lacking = wanted.difference(known)
    if len(lacking):
        raise DataFileError(
            f"{path}: lacks {len(lacking)} operations that were measured, such as {lacking[0][0]} in {lacking[0][1]}. "
            "It belongs to another dataset: run `clockwatt dataset` again."
        )
    there = known.isin(wanted)
    return catalogue[there].sort_values(["pass", "operation_id"], ignore_index=True)


def read_gpu_rows(path: Path, expected: pa.Schema, gpu: str, columns: list[str]) -> pa.Table:
    """Read the rows of one GPU, from the row groups that have any.

    DataFileError if the file is missing, damaged or of another kind.
    """
    tables = []
    with files.open_parquet(path, expected) as parquet:
        for group in range(parquet.num_row_groups):
            labels = parquet.read_row_group(group, columns=["gpu"])["gpu"]
            mask = pc.equal(labels, gpu)
            if pc.any(mask).as_py():
                there = files.stored_columns(parquet.schema_arrow.names, columns)
                tables.append(
                    files.with_columns(parquet.read_row_group(group, columns=there), expected, columns).filter(mask)
                )
    wanted = pa.schema([expected.field(name) for name in columns])
    return pa.concat_tables(tables) if tables else wanted.empty_table()


def worth_most(rows: pd.DataFrame, worth: pd.Series, key: list[str]) -> pd.DataFrame:
    """Select, among the rows with the same `key`, those of the highest `worth`."""
    return rows[worth == worth.groupby([rows[name] for name in key]).transform("max")]


def _merge_repetitions(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the median over the best repetitions: those that may be trained on, of these those on steady hosts."""
    worth = 2 * (rows[EXCLUDED] == "").astype(int) + (~flagged(rows, Flag.HOST_UNSTEADY)).astype(int)
    kept = worth_most(rows, worth, KEY)
    numbers = [
        *(name for cost in COSTS for name in (cost.corrected, cost.relative_error)),
        *(ENERGY_CORRECTED, "power_idle_w", "power_limit_w"),
    ]
    grouped = kept.groupby(KEY, sort=True)
    merged = grouped[numbers].median()
    merged[[EXCLUDED, "device_work"]] = grouped[[EXCLUDED, "device_work"]].first()
    return merged.reset_index()


FEWEST = 150
"""Operations with a cost that suffice to fit it (`benchmarks/few_energies.py`)."""
SHARE = 0.5
"""Share of the operations trained on that suffices too, where there are few operations in all."""

ENERGY = "energy"
DEVICE_AND_HOST = "device and host time"
"""Quantities that a pass may lack."""

Lacks = dict[str, dict[str, str]]
"""Pass to missing quantity to the reason."""

_SUMMED = "back-to-back times alone were measured, and a pass is their sum"


def held(samples: Samples, passes: Sequence[str], lender: Samples | None = None) -> tuple[Samples, Lacks]:
    """Select the costs to fit, and return what each pass lacks. This is decided once, before any fit.

    A forest fitted to few energies predicts nearly the same power for all operations, and the power limit then distorts
    times. So a cost that too few operations have is set to missing. Where back-to-back times alone were measured,
    predictors are fitted to these, and a pass is their sum.

    Parameters
    ----------
    samples
        Of one GPU.
    passes
        Passes to fit.
    lender
        Samples of another GPU to transfer from: its operations count.

    Returns
    -------
    samples
        Without costs that too few operations have. Rows that were excluded because of such a cost alone are included,
        and so are back-to-back times where nothing else was measured.
    lacks
        See `description.PassDescription.lacks`.
    """
    samples = replace(samples, rows=samples.rows.copy())
    lacks: Lacks = {}
    for pass_ in passes:
        lacks[pass_] = {}
        if _free(samples, pass_, BACK_TO_BACK_ALONE):
            lacks[pass_][DEVICE_AND_HOST] = _SUMMED
        lacks[pass_] |= _without_scarce(samples, pass_, lender, summed=bool(lacks[pass_]))
        _free(samples, pass_, NOT_ABOVE_IDLE, beside=True)
    return samples, lacks


def _free(samples: Samples, pass_: str, reason: str, *, beside: bool = False) -> bool:
    """Include rows that were excluded for this reason alone, in place; return whether there are any.

    Without `beside`, do so only if no other rows are trained on.
    """
    if not beside and not samples.learnt(pass_).empty:
        return False
    rows = samples.rows
    freed = (rows["pass"] == pass_) & (rows[EXCLUDED] == reason) & ~(rows[list(CORRECTED)] <= 0).any(axis=1)
    rows.loc[freed, EXCLUDED] = ""
    return bool(freed.any())


def _without_scarce(samples: Samples, pass_: str, lender: Samples | None, *, summed: bool) -> dict[str, str]:
    """Set costs that too few operations have to missing, in place; return why energy is missing, or nothing."""
    times = (BACK_TO_BACK,) if summed else NEEDED
    sources = [samples] if lender is None or summed else [samples, lender]
    learnt = pd.concat([source.learnt(pass_) for source in sources])
    counts = {name: int(learnt.loc[learnt[name].notna(), "operation_id"].nunique()) for name in CORRECTED}
    needed = min(FEWEST, math.ceil(SHARE * counts[times[0]]))
    for target in CORRECTED:
        if target not in times and counts[target] < needed:
            columns = [target, error_of(target), *([ENERGY_CORRECTED] if target == POWER_CORRECTED else [])]
            samples.rows.loc[samples.rows["pass"] == pass_, columns] = math.nan
    count = counts[POWER_CORRECTED if summed else ENERGY_DYNAMIC_CORRECTED]
    if count >= max(needed, 1):
        return {}
    return {ENERGY: f"only {count} operations have one, and {needed} are needed" if count else "none was measured"}


_SERIES = ["operation_id", "execution"]
CELL = ["operation_id", "point", "execution"]
"""What identifies a cell within a pass."""


def keys_of(frame: pd.DataFrame, columns: list[str] = CELL) -> pd.MultiIndex:
    """Return an index of rows by some of their columns, to find them in another frame."""
    return pd.MultiIndex.from_frame(frame[columns])


@dataclass(frozen=True)
class TrainingData:
    """Training data of one pass: rows with work on the device.

    Attributes
    ----------
    pass_, spec
        The pass, and the GPU.
    rows
        Every measured row: `KEY`, `TARGETS`, `excluded`, `operation_class`, and `group` for
        cross-validation.
    usable
        Which rows may be trained on; shape (rows,).
    cells
        Each operation with each precision at each operating point to train on, measured there or not: `operation_id`,
        `point`, `execution`.
    features, targets, groups, learnt
        Per cell: features, costs (missing where not measured: some have times alone), group for cross-validation, and
        whether it may be trained on.
    domain
        The measured operations, to detect requests outside the training data.
    blocks
        Designed operations, which no network calls.
    borrowed
        Number of cells transferred from another GPU.
    """

    pass_: str
    spec: GpuSpec
    rows: pd.DataFrame
    usable: NDArray[np.bool_]
    cells: pd.DataFrame
    features: pd.DataFrame
    targets: pd.DataFrame
    groups: pd.Series
    learnt: NDArray[np.bool_]
    domain: Domain
    blocks: frozenset[str] = frozenset()
    borrowed: int = 0

    @property
    def to_learn(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return features and targets of the cells that may be trained on."""
        return self.features[self.learnt], self.targets[self.learnt]

    def at_rows(self, at_cells: pd.DataFrame) -> pd.DataFrame:
        """Convert predictions for the cells to measured rows; shape (cells, targets) to (rows, targets)."""
        of_point = {
            str(point): at_cells.loc[group.index].set_index(keys_of(group, _SERIES))
            for point, group in self.cells.groupby("point")
        }
        laws: dict[tuple[str, ...], CostLaw] = {}
        parts = []
        for point, group in self.rows.groupby("point"):
            wanted = keys_of(group, _SERIES)
            found = of_point.get(str(point))
            if found is None:
                around = tuple(neighbours(OperatingPoint.parse(str(point)), list(of_point)))
                if around not in laws:
                    laws[around] = _law({sm_clock_mhz(name, self.spec): of_point[name] for name in around})
                found = laws[around].at(sm_clock_mhz(str(point), self.spec))
            parts.append(found.reindex(wanted).set_index(group.index))
        return pd.concat(parts).loc[self.rows.index]

    def spread_at_rows(self, at_cells: pd.DataFrame) -> pd.DataFrame:
        """Return the spread of trees for every measured row; the mean over cells where the clock model extrapolates."""
        of_cells = at_cells.set_index(keys_of(self.cells))
        found = of_cells.reindex(keys_of(self.rows)).set_index(self.rows.index)
        means = at_cells.groupby([self.cells[name] for name in _SERIES]).mean()
        return found.fillna(means.reindex(keys_of(self.rows, _SERIES)).set_index(self.rows.index))

    @property
    def own(self) -> NDArray[np.bool_]:
        """Cells measured on this GPU: not transferred, and not needed by the clock model alone; shape (cells,)."""
        measured = keys_of(self.rows)
        here: NDArray[np.bool_] = keys_of(self.cells).isin(measured)
        return here

    @property
    def designed(self) -> NDArray[np.bool_]:
        """Which cells are of designed operations; networks call the others. Shape (cells,)."""
        return self.cells["operation_id"].isin(self.blocks).to_numpy(bool)


def training_data(samples: Samples, pass_: str) -> TrainingData | None:
    """Return the training data of one pass; None without any."""
    rows = samples.rows
    rows = rows[(rows["pass"] == pass_) & rows["device_work"].astype(bool)].reset_index(drop=True)
    usable = (rows["excluded"] == "").to_numpy(bool)
    if not usable.any():
        return None
    described = samples.operations[samples.operations["pass"] == pass_]
    operations = operation_features(described)
    rows[OPERATION_CLASS] = rows["operation_id"].map(operations[OPERATION_CLASS])
    groups = groups_of(operations, described)
    rows["group"] = rows["operation_id"].map(groups)
    spec = find_spec(samples.gpu_name)
    return TrainingData(
        pass_=pass_,
        spec=spec,
        rows=rows,
        usable=usable,
        **_of_cells(rows, usable, operations, groups, spec),
        domain=Domain.of(operations.loc[rows.loc[usable, "operation_id"].unique()], described),
        blocks=frozenset(described.loc[described["block"].notna(), "operation_id"]),
    )


def with_unmeasured(data: TrainingData, wanted: pd.DataFrame, described: pd.DataFrame) -> TrainingData:
    """Return the data with rows and cells for what was not measured; these are predicted, never trained on.

    Parameters
    ----------
    data
        What was measured in one pass.
    wanted
        `operation_id`, `point` and `execution` of what is to be predicted, measured or not.
    described
        Operations of the catalogue in this pass.
    """
    works = described.set_index("operation_id")["device_work"].astype(bool)
    measured = keys_of(data.rows)
    lacking = wanted[CELL].drop_duplicates()
    lacking = lacking[lacking["operation_id"].map(works).eq(True) & ~keys_of(lacking).isin(measured)]
    if lacking.empty:
        return data
    known = set(data.rows["operation_id"]) | set(lacking["operation_id"])
    operations = operation_features(described[described["operation_id"].isin(known)])
    groups, ids = groups_of(operations, described), lacking["operation_id"]
    lacking = lacking.assign(
        **dict.fromkeys(TARGETS, np.nan),
        **{"pass": data.pass_, "excluded": "not measured"},
        **{OPERATION_CLASS: ids.map(operations[OPERATION_CLASS]), "group": ids.map(groups)},
    )
    rows = pd.concat([data.rows, lacking], ignore_index=True)
    usable = np.concatenate([data.usable, np.zeros(len(lacking), dtype=bool)])
    parts = _of_cells(rows, usable, operations, groups, data.spec)
    # cells transferred from another GPU have no row here
    lent = ~keys_of(data.cells).isin(keys_of(parts["cells"]))
    for name in ("cells", "features", "targets", "groups"):
        parts[name] = pd.concat([parts[name], getattr(data, name)[lent]], ignore_index=True)
    parts["learnt"] = np.concatenate([parts["learnt"], data.learnt[lent]])
    return replace(data, rows=rows, usable=usable, **parts)


def groups_of(operations: pd.DataFrame, described: pd.DataFrame) -> pd.Series:
    """Return each operation's group for cross-validation: its block of the design, else its class and channels.

    Operations of a block are similar, so whole blocks are held out.

    Parameters
    ----------
    operations
        From `features.operation_features`.
    described
        The catalogue's rows in this pass, with `operation_id` and `block`.
    """
    blocks = operations.index.to_series().map(described.set_index("operation_id")["block"])
    return blocks.where(blocks.notna(), channel_groups(operations))


def _of_cells(
    rows: pd.DataFrame, usable: NDArray[np.bool_], operations: pd.DataFrame, groups: pd.Series, spec: GpuSpec
) -> dict[str, Any]:
    """Return the fields of training data that describe the cells; `operations` from `features.operation_features`."""
    points = sorted(rows["point"].unique())
    learnt = learnt_points(points)
    measured = rows.assign(usable=usable)[[*CELL, "usable", *TARGETS]]
    cells = measured[measured["point"].isin(learnt)]
    if len(learnt) < len(points):
        elsewhere = measured.loc[~measured["point"].isin(learnt), CELL]
        wanted = {point: neighbours(OperatingPoint.parse(point), learnt) for point in elsewhere["point"].unique()}
        needed = elsewhere.assign(point=elsewhere["point"].map(wanted)).explode("point").drop_duplicates()
        cells = cells.merge(needed, how="outer", on=CELL)
        cells["usable"] = cells["usable"].eq(True)  # missing where it was not measured
    cells = cells.sort_values(CELL, ignore_index=True)
    return {
        "cells": cells[CELL],
        "features": features_of(cells, operations, spec),
        "targets": cells[list(TARGETS)].astype(float),
        "groups": cells["operation_id"].map(groups),
        "learnt": cells["usable"].to_numpy(bool),
    }


def _law(at_clocks: dict[float, pd.DataFrame]) -> CostLaw:
    """Return the clock model of the operations that have a prediction at every clock."""
    complete = (costs.dropna(how="all").index for costs in at_clocks.values())
    known = functools.reduce(pd.Index.intersection, complete)
    return CostLaw({clock: costs.loc[known] for clock, costs in at_clocks.items()})
