"""A GPU with few operations of its own learns from another one's, carried over by `transfer`.

What the other GPU alone measured gets the time that it would take here, told by the operations that both measured, and
by the rooflines without any. Only forests learn from it: errors and intervals are those of the GPU's own operations,
and nothing of it is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.predict.features.operations import OPERATION_CLASS, operation_features
from clockwatt.predict.features.points import ROOFLINE_TIME, features_of
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.models.training_data import CELL, TrainingData, groups_of, keys_of
from clockwatt.predict.models.transfer import OtherCard, Transfer
from clockwatt.predict.samples import Samples
from clockwatt.schema import layout, tables
from clockwatt.schema.costs import CORRECTED

_DEVICE, _HOST, _EAGER, _DYNAMIC, _POWER = CORRECTED

MORE = 2.0
"""A GPU lends if so many times as many operations were measured on it."""
_LEAST_SHARED = 10
"""So many operations of both it takes to compare their hosts or powers."""


def lenders(dataset_dir: Path, gpus: list[str]) -> dict[str, str]:
    """GPUs of a dataset that have few operations, and the one with most of them; virtual and measured never mix.

    DataFileError if the dataset is missing or damaged.
    """
    if len(gpus) < 2:
        return {}
    table = files.read_table(
        dataset_dir / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA, ["gpu", "virtual", "subject_id", "pass"]
    )
    rows = table.to_pandas().drop_duplicates()
    counts = {str(gpu): (bool(part["virtual"].iloc[0]), len(part)) for gpu, part in rows.groupby("gpu")}
    return {gpu: other for gpu in gpus if (other := _lender(counts, gpu)) is not None}


def _lender(counts: Mapping[str, tuple[bool, int]], gpu: str) -> str | None:
    virtual, own = counts[gpu]
    others = {name: count for name, (kind, count) in counts.items() if kind == virtual and name != gpu}
    most = max(others, key=lambda name: others[name], default=None)
    return most if most is not None and others[most] >= MORE * own else None


def with_borrowed(data: TrainingData, other: Samples) -> TrainingData:
    """The data with cells of what another GPU measured and this one did not; rows, which are judged, stay as they are.

    Nothing is lent where one of the two has back-to-back times alone.
    """
    theirs = other.learnt(data.pass_)
    theirs = theirs[theirs["point"].isin(data.cells["point"]) & theirs[_DEVICE].notna()]
    theirs = theirs.sort_values(CELL, ignore_index=True)
    described = other.operations[other.operations["pass"] == data.pass_]
    if theirs.empty or data.targets[_DEVICE].isna().all():
        return data
    operations = operation_features(described[described["operation_id"].isin(theirs["operation_id"])])
    here, there = (features_of(theirs[CELL], operations, one) for one in (data.spec, find_spec(other.gpu_name)))
    own = data.targets.set_index(keys_of(data.cells))[data.learnt]
    own = own.reindex(keys_of(theirs)).reset_index(drop=True)
    carried = _carried(theirs, own, here, there)
    lacking = ~keys_of(theirs).isin(keys_of(data.cells))
    groups = groups_of(operations, described)
    blocks = described.loc[described["block"].notna(), "operation_id"]

    def both(mine: pd.DataFrame, borrowed: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([mine, borrowed[lacking][mine.columns]], ignore_index=True)

    return replace(
        data,
        cells=both(data.cells, theirs),
        features=both(data.features, here),
        targets=both(data.targets, carried),
        groups=pd.concat([data.groups, theirs.loc[lacking, "operation_id"].map(groups)], ignore_index=True),
        learnt=np.concatenate([data.learnt, np.ones(int(lacking.sum()), dtype=bool)]),
        blocks=data.blocks | frozenset(blocks),
        borrowed=int(lacking.sum()),
    )


def _carried(theirs: pd.DataFrame, own: pd.DataFrame, here: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    """Costs of the other GPU's operations on this one; `own` has those that were measured here, in their order."""
    their_s, own_s = (rows[_DEVICE].to_numpy(float) for rows in (theirs, own))
    classes = here[OPERATION_CLASS].to_numpy(object)
    other = OtherCard(their_s, there[ROOFLINE_TIME].to_numpy(float))
    rooflines_s = here[ROOFLINE_TIME].to_numpy(float)
    shared = np.isfinite(own_s) & (own_s > 0)
    numbers = here.drop(columns=[OPERATION_CLASS]).to_numpy(float)
    transfer = Transfer().fit(classes[shared], other.among(shared), rooflines_s[shared], own_s[shared], numbers[shared])
    device_s, _ = transfer.predict(classes, other, rooflines_s, numbers)
    longer = device_s / their_s
    limits = (here["power_limit_w"] / there["power_limit_w"]).to_numpy(float)
    host_s = theirs[_HOST].to_numpy(float) * _ratio(own[_HOST], theirs[_HOST])
    drawn = _ratio(own[_DYNAMIC] / own_s, theirs[_DYNAMIC] / their_s, limits)
    found = {
        _DEVICE: device_s,
        _HOST: host_s,
        _EAGER: np.fmax(theirs[_EAGER].to_numpy(float) * longer, host_s + 0 * theirs[_EAGER].to_numpy(float)),
        _POWER: theirs[_POWER].to_numpy(float) * limits,
        _DYNAMIC: theirs[_DYNAMIC].to_numpy(float) * longer * drawn,
    }
    return pd.DataFrame({name: found[name] for name in TARGETS}, index=theirs.index)


def _ratio(own: pd.Series, theirs: pd.Series, otherwise: np.ndarray | float = 1.0) -> np.ndarray | float:
    """Median of what shared operations cost here over there; `otherwise` where few were measured on both."""
    logs = np.log(own.to_numpy(float) / theirs.to_numpy(float))
    known = logs[np.isfinite(logs)]
    return float(np.exp(np.median(known))) if len(known) >= _LEAST_SHARED else otherwise
