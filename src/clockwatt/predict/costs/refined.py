"""Costs of another source, with device times in place of its own that were measured for the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from clockwatt.predict.costs.interface import Costs, CostSource
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

    Host times stay: those of the machine that measures are a matter of the host that is asked for.
    """

    def __init__(self, source: CostSource, ids: pd.Index, times: DeviceTimes) -> None:
        self._source, self._ids, self._times = source, ids, times

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        found = self._source.at(points)
        if self._times.point in found:
            found[self._times.point] = self._refined(found[self._times.point])
        return found

    def _refined(self, costs: Costs) -> Costs:
        mean, factors, measured = costs.mean.copy(), costs.factors.copy(), costs.measured.copy()
        own = np.flatnonzero(self._ids.isin(list(self._times.seconds)))
        names = self._ids[own]
        device_s = np.array([self._times.seconds[name] for name in names], dtype=float)
        widths = np.array([self._times.errors[name] for name in names], dtype=float)
        mean[own, _DYNAMIC] *= device_s / mean[own, _DEVICE]
        mean[own, _DEVICE] = device_s
        mean[own, _EAGER] = np.maximum(mean[own, _HOST], device_s)
        factors[own, _DEVICE] = np.stack([1 - widths, 1 + widths], axis=1)
        measured[own] = True
        return Costs(mean, factors, costs.known, measured)
