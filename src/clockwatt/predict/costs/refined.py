"""Costs of another source, with device times in place of its own that were measured for the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.costs.interface import Costs, CostSource, Floats
from clockwatt.predict.models.predictors import TARGETS

_DEVICE, _HOST, _EAGER, _DYNAMIC = (
    TARGETS.index(name)
    for name in (
        "time_device_corrected_s",
        "time_host_corrected_s",
        "time_eager_corrected_s",
        "energy_dynamic_corrected_j",
    )
)


Indices = NDArray[np.intp]

_CARRIED = 0.05
"""Half a 90 % interval of what is carried from one operating point to another: what laws of the clock miss."""


@dataclass(frozen=True)
class DeviceTimes:
    """Device times of operations in one pass at one operating point.

    Attributes
    ----------
    point, tf32
        Where.
    seconds
        Operation id to device time.
    errors
        Operation id to half its 90 % interval, relative to it.
    """

    point: str
    tf32: bool
    seconds: Mapping[str, float]
    errors: Mapping[str, float]


class Refined:
    """Costs with measured device times; dynamic energy follows in proportion, since the power is the same.

    By what factor an operation was missed at the operating point where it was measured, it is taken to be missed at the
    others too, where it was not measured. Host times stay: those of the machine that measures are a matter of the host
    that is asked for.
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
