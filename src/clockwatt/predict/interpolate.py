"""Costs at SM clocks that no predictor learnt, by the clock law through its predictions at those it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from clockwatt.config import OperatingPoint
from clockwatt.predict.clocklaw import ClockLaw, power_terms, time_terms
from clockwatt.predict.predictors import TARGETS

LEARNT_CLOCKS = 6
"""Of more clocks than these, so many are learnt from, and the others follow by the law: 40 clocks take a seventh of the
time, and a forest repeats what it has seen, where the law knows what lies between."""

_FOLLOWING_THE_CLOCK = ("time_device_corrected_s", "time_eager_corrected_s")


def neighbours(point: OperatingPoint, measured: Sequence[str]) -> list[str]:
    """Measured operating points that differ from `point` in nothing but a locked SM clock."""
    parsed = {name: OperatingPoint.parse(name) for name in measured}
    return [
        name
        for name, other in parsed.items()
        if other.sm_clock_mhz is not None
        and (other.memory_clock_mhz, other.power_limit_w) == (point.memory_clock_mhz, point.power_limit_w)
    ]


def learnt_points(measured: Sequence[str]) -> list[str]:
    """Points to learn from: all, but of many SM clocks only `LEARNT_CLOCKS`, the lowest and the highest included."""
    learnt = []
    for name in measured:
        point = OperatingPoint.parse(name)
        row = sorted(neighbours(point, measured), key=lambda other: OperatingPoint.parse(other).sm_clock_mhz or 0)
        if point.sm_clock_mhz is not None and len(row) > LEARNT_CLOCKS:
            chosen = np.linspace(0, len(row) - 1, LEARNT_CLOCKS).round().astype(int)
            if row.index(name) not in chosen:
                continue
        learnt.append(name)
    return learnt


class CostLaw:
    """Costs of operations at any SM clock.

    Device and back-to-back time follow the law of time; power, and the device's dynamic power that dynamic energy is
    made of, that of power; host time is the mean.

    Parameters
    ----------
    at_clocks
        SM clock in MHz to costs with columns `TARGETS`, positive, the same operations in the same order; at least
        `POWER_CLOCKS` clocks.

    Raises
    ------
    ValueError
        If there are fewer clocks than the law of power has coefficients.
    """

    def __init__(self, at_clocks: Mapping[float, pd.DataFrame]) -> None:
        clocks = np.array(sorted(at_clocks), dtype=float)
        self._index = at_clocks[clocks[0]].index
        costs = np.stack([at_clocks[clock][list(TARGETS)].to_numpy(float) for clock in clocks], axis=1)
        values = dict(zip(TARGETS, np.moveaxis(costs, 2, 0), strict=True))
        self._host_s = values["time_host_corrected_s"].mean(axis=1)
        # all laws of one kind at once: most of a fit's time goes into calls
        times = [values[name] for name in _FOLLOWING_THE_CLOCK]
        self._times = ClockLaw.fit(time_terms, clocks, np.concatenate(times))
        powers = [values["power_corrected_w"], values["energy_dynamic_corrected_j"] / values["time_device_corrected_s"]]
        self._powers = ClockLaw.fit(power_terms, clocks, np.concatenate(powers))

    def at(self, clock_mhz: float) -> pd.DataFrame:
        """Costs at a clock, in the form of those given."""
        result = dict(zip(_FOLLOWING_THE_CLOCK, np.split(self._times.at(clock_mhz), 2), strict=True))
        result["power_corrected_w"], dynamic_w = np.split(self._powers.at(clock_mhz), 2)
        result["time_host_corrected_s"] = self._host_s
        result["energy_dynamic_corrected_j"] = dynamic_w * result["time_device_corrected_s"]
        values = np.column_stack([result[name] for name in TARGETS])
        return pd.DataFrame(values, index=self._index, columns=list(TARGETS))
