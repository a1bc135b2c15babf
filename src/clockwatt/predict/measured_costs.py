"""Measured costs: those stored with the predictors, device times measured for one request, and host times of calls.

A host issues a call in the same time whatever the size and dtype of its tensors and whatever the GPU. So host times of
an operation class are pooled: calls with as many tensors, gradients and sequential steps share one. Depthwise
convolutions take one kernel, other grouped ones take several, so they are pooled separately.
"""

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
from clockwatt.predict.costs import Costs, CostSource, Floats, unknown
from clockwatt.predict.evaluation.errors import ANY_CLASS, NORMAL_90
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.models.training_data import error_of
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
    """Write the measured costs of one pass, trained on or not; `rows` of `training_data.Samples`.

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
class MeasuredOperations:
    """Operations that were measured for one request: in one pass, at one operating point.

    Attributes
    ----------
    point, execution
        Where.
    device_s, dynamic_j
        Operation id to its device time and, of some, its dynamic energy, each with half its 90 % interval relative to
        it.
    """

    point: str
    execution: ExecutionSettings
    device_s: Mapping[str, tuple[float, float]]
    dynamic_j: Mapping[str, tuple[float, float]]


class Refined:
    """Replace costs by measured ones. Where time alone was measured, dynamic energy scales with it: power stays.

    The ratio of measured to predicted cost at one operating point corrects the others, where the operation was not
    measured. Host times do not change: they belong to the requested host, not to the measuring machine.
    """

    def __init__(self, source: CostSource, ids: pd.Index, measured: MeasuredOperations) -> None:
        self._source, self._ids, self._measured = source, ids, measured

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        point = self._measured.point
        found = self._source.at([*dict.fromkeys([*points, point])])
        base = found[point]
        refined = {name: _copied(found[name]) for name in points}
        for column, values in ((_DEVICE, self._measured.device_s), (_DYNAMIC, self._measured.dynamic_j)):
            own = np.flatnonzero(self._ids.isin(list(values)))
            if not own.size:
                continue
            seen, widths = np.array([values[name] for name in self._ids[own]], dtype=float).T
            missed_by = seen / base.mean[own, column]
            for name, costs in refined.items():
                here = name == point
                kept = np.ones(own.size, dtype=bool) if here else ~found[name].measured[own]
                self._refine(costs, column, own[kept], missed_by[kept], widths[kept], here=here)
        return refined

    def _refine(
        self, costs: Costs, column: int, own: Indices, missed_by: Floats, widths: Floats, *, here: bool
    ) -> None:
        """Scale a cost in place, and set its interval."""
        widths = widths if here else np.hypot(widths, _CARRIED)
        costs.mean[own, column] *= missed_by
        costs.factors[own, column] = np.stack([1 - widths, 1 + widths], axis=1)
        if column == _DEVICE:
            timed_alone = [name not in self._measured.dynamic_j for name in self._ids[own]]
            costs.mean[own[timed_alone], _DYNAMIC] *= missed_by[timed_alone]
            costs.mean[own, _EAGER] = np.maximum(costs.mean[own, _HOST], costs.mean[own, _DEVICE])
            costs.measured[own] |= here


def _copied(costs: Costs) -> Costs:
    return Costs(costs.mean.copy(), costs.factors.copy(), costs.known, costs.measured.copy())


CallTimes = dict[str, list[list[float]]]
"""Operation class to the kinds of its calls: `_kinds` of one, and the median host time of such a call."""

_FEWEST = 3
"""Fewest measurements of a kind of call."""
_STEPS = 4.0
"""Steps per octave in which numbers of tensors, gradients and sequential steps are separated."""


def call_times(rows: pd.DataFrame, features: pd.DataFrame) -> CallTimes:
    """Return the pooled host times of calls, and of all classes together as `ANY_CLASS`.

    Kinds of calls with too few measurements are missing.

    Parameters
    ----------
    rows
        Measurements in one pass, with `operation_id` and the corrected host time.
    features
        From `features.operation_features`, of these operations at least.
    """
    rows = rows[rows[TIME_HOST_CORRECTED] > 0]
    called = features.loc[rows["operation_id"]]
    kinds = pd.DataFrame(_kinds(called)).assign(host_s=rows[TIME_HOST_CORRECTED].to_numpy(float))
    columns = [name for name in kinds if name != "host_s"]
    times: CallTimes = {}
    for classes in (called[OPERATION_CLASS].to_numpy(object), np.full(len(called), ANY_CLASS, dtype=object)):
        pooled = kinds.groupby([classes, *columns])["host_s"].agg(["median", "size"])
        enough = pooled.loc[pooled["size"] >= _FEWEST, "median"].reset_index()
        for name, *kind in enough.itertuples(index=False, name=None):
            times.setdefault(str(name), []).append([float(number) for number in kind])
    return times


def host_s_of(features: pd.DataFrame, times: CallTimes) -> Floats:
    """Return each call's host time: that of the nearest kind of its class, else of any; nan where there is none."""
    classes, kinds = features[OPERATION_CLASS].to_numpy(object), _kinds(features)
    found = np.full(len(features), np.nan)
    for name in set(classes):
        known = np.array(times.get(name) or times.get(ANY_CLASS) or [], dtype=float)
        if not known.size:
            continue
        own = np.flatnonzero(classes == name)
        apart = np.abs(kinds[own][:, None, :] - known[None, :, :-1]).sum(axis=2)
        found[own] = known[apart.argmin(axis=1), -1]
    return found


def host_ratio(own: Mapping[str, CallTimes], other: Mapping[str, CallTimes]) -> float:
    """Return how many times as long calls take on one host as on another; 1 where no class is known of both.

    `own` and `other` have the pooled host times by pass.
    """
    medians = [
        {
            (pass_, name): np.median([kind[-1] for kind in kinds])
            for pass_, times in one.items()
            for name, kinds in times.items()
        }
        for one in (own, other)
    ]
    shared = medians[0].keys() & medians[1].keys()
    return float(np.median([medians[0][key] / medians[1][key] for key in shared])) if shared else 1.0


def _kinds(features: pd.DataFrame) -> Floats:
    """Return what separates kinds of calls of a class; shape (operations, 4)."""
    numbers = np.log2(1 + features[["tensors", "tensors_with_gradient"]].to_numpy(float))
    steps, grouped = features["log_serial_steps"].to_numpy(float), features["groups"].to_numpy(float) > 1
    several = grouped & (features["log_group_channels"].to_numpy(float) > 1)  # log2(1 + channels of a group)
    return np.column_stack([np.round(_STEPS * np.column_stack([numbers, steps])) / _STEPS, grouped + 1.0 * several])


class OfCalls:
    """Source of costs with the host times of calls in place of another source's, with its relative intervals.

    Parameters
    ----------
    source
        The other source.
    host_s
        Host time of each call on the median host; nan keeps that of the source; shape (operations,).
    """

    def __init__(self, source: CostSource, host_s: Floats) -> None:
        self._source, self._host_s = source, host_s

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        pooled = np.isfinite(self._host_s)
        found = {}
        for point, costs in self._source.at(points).items():
            mean = costs.mean.copy()
            mean[pooled, _HOST] = self._host_s[pooled]
            found[point] = Costs(mean, costs.factors, costs.known, costs.measured)
        return found
