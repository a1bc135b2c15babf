"""Training data of one GPU in one pass, and predictions for every measured row.

Where many SM clocks were measured, predictors are trained on some of them (see `clock_law.learnt_points`). Each
operation is predicted there with its group held out. The DVFS (clock) model extends these predictions to the other
measured clocks, so that the predictor is evaluated on all rows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.predict.features import OPERATION_CLASS, channel_groups, features_of, operation_features, sm_clock_mhz
from clockwatt.predict.models.clock_law import CostLaw, learnt_points, neighbours
from clockwatt.predict.models.extrapolation import Domain
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.training_rows import Samples

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
        Every measured row: `training_rows.KEY`, `TARGETS`, `excluded`, `operation_class`, and `group` for
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
