"""What was measured, kept beside the predictors: an operation that was measured is looked up, not predicted."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from clockwatt.dataset.corrections import NOT_ABOVE_IDLE, WITHOUT_WORK
from clockwatt.io import files
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.samples import error_of

MEASURED_SCHEMA = pa.schema(
    [
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        # a file that lacks it is another version's
        *(pa.field(target, pa.float64(), nullable=target != "time_host_corrected_s") for target in TARGETS),
        *(pa.field(error_of(target), pa.float64()) for target in TARGETS),
    ],
    metadata={"kind": "measured costs"},
)
"""Costs of an operation in one pass, and their standard errors relative to them."""

KNOWN_NOT_LEARNT = (WITHOUT_WORK, NOT_ABOVE_IDLE)
_NORMAL_90 = 1.645
_UNKNOWN_ERROR = 0.05
"""Relative standard error where a measurement has none."""


@dataclass(frozen=True)
class LookedUp:
    """What was measured of some operations at one operating point.

    Attributes
    ----------
    known
        Which of the operations; shape (operations,).
    costs
        Those that are known, shape (known, targets).
    factors
        From costs to the lower and upper end of their 90 % interval, by their own standard errors: it holds for the
        card and the hour. Shape (known, targets, 2).
    """

    known: NDArray[np.bool_]
    costs: NDArray[np.float64]
    factors: NDArray[np.float64]


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

    def look_up(self, operation_ids: pd.Index, point: str, *, tf32: bool) -> LookedUp:
        """What was measured of operations, in their order."""
        rows = self._of(point, tf32)
        at = rows.index.get_indexer(operation_ids)
        found = rows.iloc[at[at >= 0]]
        costs = found[list(TARGETS)].to_numpy(float)
        errors = found[[error_of(target) for target in TARGETS]].to_numpy(float)
        width = _NORMAL_90 * np.where(np.isfinite(errors), np.abs(errors), _UNKNOWN_ERROR)
        return LookedUp(at >= 0, costs, np.stack([np.maximum(1 - width, 0.0), 1 + width], axis=2))


def write_measured(rows: pd.DataFrame, path: Path) -> None:
    """Write what may be learnt from, and what is known but not learnt, of one pass; `rows` of `samples.Samples`.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    kept = rows[rows["excluded"].isin(("", *KNOWN_NOT_LEARNT)) & rows["time_host_corrected_s"].notna()].sort_values(
        ["operation_id", "point", "tf32"]
    )
    files.write_table(pa.Table.from_pandas(kept, MEASURED_SCHEMA, preserve_index=False), path)
