"""What was measured, kept beside the predictors: an operation that was measured is looked up, not predicted."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from clockwatt.dataset.corrections import NOT_ABOVE_IDLE, WITHOUT_WORK
from clockwatt.io import files
from clockwatt.predict.costs.interface import Costs, unknown
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.samples import error_of
from clockwatt.schema.costs import BACK_TO_BACK

MEASURED_SCHEMA = pa.schema(
    [
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        *(pa.field(target, pa.float64()) for target in TARGETS),
        *(pa.field(error_of(target), pa.float64()) for target in TARGETS),
    ],
    metadata={"kind": "measured costs"},
)
"""Costs of an operation in one pass, and their standard errors relative to them."""

KNOWN_NOT_LEARNT = (WITHOUT_WORK, NOT_ABOVE_IDLE)
_NORMAL_90 = 1.645
_UNKNOWN_ERROR = 0.05
"""Relative standard error where a measurement has none."""


class MeasuredCosts:
    """Costs as measured, repetitions merged and cards and hosts levelled, by operating point and TF32 setting."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._of = functools.cache(lambda point, tf32: rows[(rows["point"] == point) & (rows["tf32"] == tf32)])

    @classmethod
    def read(cls, path: Path) -> MeasuredCosts:
        """Read what `write_measured` wrote.

        Raises
        ------
        DataFileError
            If it is missing, damaged or of another kind.
        """
        return cls(files.read_table(path, MEASURED_SCHEMA).to_pandas().set_index("operation_id"))

    def look_up(self, operation_ids: pd.Index, point: str, *, tf32: bool) -> Costs:
        """What was measured of operations, in their order.

        The ends of the intervals follow from the standard errors: they hold for the card and the hour.
        """
        rows = self._of(point, tf32)
        at = rows.index.get_indexer(operation_ids)
        known, found = at >= 0, rows.iloc[at[at >= 0]]
        errors = found[[error_of(target) for target in TARGETS]].to_numpy(float)
        width = _NORMAL_90 * np.where(np.isfinite(errors), np.abs(errors), _UNKNOWN_ERROR)
        costs = unknown(len(operation_ids))
        costs.mean[known] = found[list(TARGETS)].to_numpy(float)
        costs.factors[known] = np.stack([np.maximum(1 - width, 0.0), 1 + width], axis=2)
        return Costs(costs.mean, costs.factors, known, known)


def write_measured(rows: pd.DataFrame, path: Path) -> None:
    """Write what may be learnt from, and what is known but not learnt, of one pass; `rows` of `samples.Samples`.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    alone = rows[BACK_TO_BACK].notna() & rows["time_device_corrected_s"].isna()
    timed = rows["time_host_corrected_s"].notna() | alone
    kept = rows[rows["excluded"].isin(("", *KNOWN_NOT_LEARNT)) & timed].sort_values(["operation_id", "point", "tf32"])
    files.write_table(pa.Table.from_pandas(kept, MEASURED_SCHEMA, preserve_index=False), path)


class LookedUp:
    """Costs of some operations that were measured, as a source of costs.

    Parameters
    ----------
    measured
        On the GPU, in one pass.
    ids
        Operations.
    tf32
        Whether TF32 may be used.
    positive
        Know only operations of which no cost is zero or less: laws of the clock are laws of ratios.
    """

    def __init__(self, measured: MeasuredCosts, ids: pd.Index, *, tf32: bool, positive: bool = False) -> None:
        self._measured, self._ids = measured, ids
        self._tf32, self._positive = tf32, positive

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        return {point: self._at(point) for point in points}

    def _at(self, point: str) -> Costs:
        costs = self._measured.look_up(self._ids, point, tf32=self._tf32)
        if not self._positive:
            return costs
        known = costs.known & ~(costs.mean <= 0).any(axis=1)
        costs.mean[~known] = np.nan
        return Costs(costs.mean, costs.factors, known, known)
