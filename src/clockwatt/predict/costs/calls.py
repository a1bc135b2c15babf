"""Host time of calls by what they call.

A host issues a call in the same time whatever the size and dtype of its tensors and whatever the GPU. So host times of
an operation class are pooled: calls with as many tensors, gradients and sequential steps share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.costs.interface import Costs, CostSource
from clockwatt.predict.evaluation.errors import ANY_CLASS
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema.costs import TIME_HOST_CORRECTED

CallTimes = dict[str, list[list[float]]]
"""Operation class to the kinds of its calls: `_kinds` of one, and the median host time of such a call."""

_FEWEST = 3
"""Fewest measurements of a kind of call."""
_STEPS = 4.0
"""Steps per octave in which numbers of tensors, gradients and sequential steps are told apart."""
_HOST = TARGETS.index(TIME_HOST_CORRECTED)
Floats = NDArray[np.float64]


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
    """Return what tells kinds of calls of a class apart; shape (operations, 4)."""
    numbers = np.log2(1 + features[["tensors", "tensors_with_gradient"]].to_numpy(float))
    steps, grouped = features["log_serial_steps"].to_numpy(float), features["groups"].to_numpy(float) > 1
    return np.column_stack([np.round(_STEPS * np.column_stack([numbers, steps])) / _STEPS, grouped])


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
