"""Measured costs: those stored with the predictors, and device times measured for one request."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from clockwatt.dataset.corrections import NOT_ABOVE_IDLE, WITHOUT_WORK
from clockwatt.io import files
from clockwatt.predict.costs.interface import Costs, CostSource, Floats, unknown
from clockwatt.predict.evaluation.errors import NORMAL_90
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.training_rows import error_of
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    ENERGY_DYNAMIC_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_EAGER_CORRECTED,
    TIME_HOST_CORRECTED,
)
from clockwatt.schema.execution import ExecutionSettings

MEASURED_SCHEMA = pa.schema(
    [
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("point", pa.string()),
        pa.field("execution", pa.string()),
        *(pa.field(target, pa.float64()) for target in TARGETS),
        *(pa.field(error_of(target), pa.float64()) for target in TARGETS),
    ],
    metadata={"kind": "measured costs"},
)
"""Costs of an operation in one pass, and their relative standard errors."""

KNOWN_NOT_LEARNT = (WITHOUT_WORK, NOT_ABOVE_IDLE)
_UNKNOWN_ERROR = 0.05
"""Relative standard error where a measurement has none."""


class MeasuredCosts:
    """Measured costs by operating point and execution settings: normalised, and repetitions merged."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._of = functools.cache(
            lambda point, execution: rows[(rows["point"] == point) & (rows["execution"] == execution)]
        )

    @classmethod
    def read(cls, path: Path) -> MeasuredCosts:
        """Read what `write_measured` wrote; DataFileError if it is missing, damaged or of another kind."""
        return cls(files.read_table(path, MEASURED_SCHEMA).to_pandas().set_index("operation_id"))

    def look_up(self, operation_ids: pd.Index, point: str, *, execution: ExecutionSettings) -> Costs:
        """Return measured costs of operations, in their order.

        The ends of the intervals follow from the standard errors, so they cover this card at that time only.
        """
        rows = self._of(point, execution)
        at = rows.index.get_indexer(operation_ids)
        known, found = at >= 0, rows.iloc[at[at >= 0]]
        errors = found[[error_of(target) for target in TARGETS]].to_numpy(float)
        width = NORMAL_90 * np.where(np.isfinite(errors), np.abs(errors), _UNKNOWN_ERROR)
        costs = unknown(len(operation_ids))
        costs.mean[known] = found[list(TARGETS)].to_numpy(float)
        costs.factors[known] = np.stack([np.maximum(1 - width, 0.0), 1 + width], axis=2)
        return Costs(costs.mean, costs.factors, known, known)


def write_measured(rows: pd.DataFrame, path: Path) -> None:
    """Write the measured costs of one pass, trained on or not; `rows` of `training_rows.Samples`.

    OutputError if it cannot be written.
    """
    alone = rows[BACK_TO_BACK].notna() & rows[TIME_DEVICE_CORRECTED].isna()
    timed = rows[TIME_HOST_CORRECTED].notna() | alone
    kept = rows[rows["excluded"].isin(("", *KNOWN_NOT_LEARNT)) & timed].sort_values(
        ["operation_id", "point", "execution"]
    )
    files.write_table(pa.Table.from_pandas(kept, MEASURED_SCHEMA, preserve_index=False), path)


class LookedUp:
    """Source of measured costs of some operations.

    Parameters
    ----------
    measured
        On the GPU, in one pass.
    ids
        Operations.
    execution
        Settings that operations are measured under.
    positive
        Omit operations with a cost of zero or less: clock models are fitted to ratios.
    """

    def __init__(
        self, measured: MeasuredCosts, ids: pd.Index, *, execution: ExecutionSettings, positive: bool = False
    ) -> None:
        self._measured, self._ids = measured, ids
        self._execution, self._positive = execution, positive

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        return {point: self._at(point) for point in points}

    def _at(self, point: str) -> Costs:
        costs = self._measured.look_up(self._ids, point, execution=self._execution)
        if not self._positive:
            return costs
        known = costs.known & ~(costs.mean <= 0).any(axis=1)
        costs.mean[~known] = np.nan
        return Costs(costs.mean, costs.factors, known, known)


_DEVICE, _HOST, _EAGER, _DYNAMIC = (
    TARGETS.index(name)
    for name in (TIME_DEVICE_CORRECTED, TIME_HOST_CORRECTED, TIME_EAGER_CORRECTED, ENERGY_DYNAMIC_CORRECTED)
)
Indices = NDArray[np.intp]

_CARRIED = 0.05
"""Half a 90 % interval of a device time extrapolated to another operating point: the error of the clock model."""


@dataclass(frozen=True)
class DeviceTimes:
    """Device times of operations in one pass at one operating point.

    Attributes
    ----------
    point, execution
        Where.
    seconds
        Operation id to device time.
    errors
        Operation id to half the 90 % interval of its device time, relative to it.
    """

    point: str
    execution: ExecutionSettings
    seconds: Mapping[str, float]
    errors: Mapping[str, float]


class Refined:
    """Replace device times by measured ones; dynamic energy scales with them, since the power stays the same.

    The ratio of measured to predicted device time at one operating point corrects the others, where the operation was
    not measured. Host times do not change: they belong to the requested host, not to the measuring machine.
    """

    def __init__(self, source: CostSource, ids: pd.Index, times: DeviceTimes) -> None:
        self._source, self._ids, self._times = source, ids, times

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        own = np.flatnonzero(self._ids.isin(list(self._times.seconds)))
        if not own.size:
            return self._source.at(points)
        found = self._source.at([*dict.fromkeys([*points, self._times.point])])
        seconds = np.array([self._times.seconds[name] for name in self._ids[own]], dtype=float)
        missed_by = seconds / found[self._times.point].mean[own, _DEVICE]
        return {point: self._refined(found[point], own, missed_by, here=point == self._times.point) for point in points}

    def _refined(self, costs: Costs, own: Indices, missed_by: Floats, *, here: bool) -> Costs:
        mean, factors, measured = costs.mean.copy(), costs.factors.copy(), costs.measured.copy()
        widths = np.array([self._times.errors[name] for name in self._ids[own]], dtype=float)
        if not here:
            unmeasured = ~measured[own]
            own, missed_by, widths = own[unmeasured], missed_by[unmeasured], np.hypot(widths[unmeasured], _CARRIED)
        for column in (_DEVICE, _DYNAMIC):
            mean[own, column] *= missed_by
        mean[own, _EAGER] = np.maximum(mean[own, _HOST], mean[own, _DEVICE])
        factors[own, _DEVICE] = np.stack([1 - widths, 1 + widths], axis=1)
        measured[own] |= here
        return Costs(mean, factors, costs.known, measured)
