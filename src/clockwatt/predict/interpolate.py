"""Costs at an SM clock that was never measured, by the clock law through the predictions at those that were."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from clockwatt.config import OperatingPoint
from clockwatt.predict.clocklaw import ClockLaw, power_terms, time_terms
from clockwatt.predict.predictors import TARGETS

_FOLLOWING_THE_CLOCK = ("time_device_s", "time_eager_s")


def neighbours(point: OperatingPoint, measured: list[str]) -> list[str]:
    """Measured operating points that differ from `point` in nothing but a locked SM clock."""
    parsed = {name: OperatingPoint.parse(name) for name in measured}
    return [
        name
        for name, other in parsed.items()
        if other.sm_clock_mhz is not None
        and (other.memory_clock_mhz, other.power_limit_w) == (point.memory_clock_mhz, point.power_limit_w)
    ]


def interpolate(at_clocks: Mapping[float, pd.DataFrame], clock_mhz: float) -> pd.DataFrame:
    """Costs at another clock.

    Parameters
    ----------
    at_clocks
        SM clock in MHz to costs with columns `TARGETS`, positive, the same operations in the same order; at least
        `POWER_CLOCKS` clocks.
    clock_mhz
        Where they are wanted.

    Returns
    -------
    pandas.DataFrame
        Like those given. Device and back-to-back time follow the law of time; power, and the device's dynamic power
        that dynamic energy is made of, that of power; host time is the mean.

    Raises
    ------
    ValueError
        If there are fewer clocks than the law of power has coefficients.
    """
    clocks = np.array(sorted(at_clocks))
    first = at_clocks[clocks[0]]
    values = {name: np.column_stack([at_clocks[clock][name].to_numpy(float) for clock in clocks]) for name in TARGETS}
    result = {name: ClockLaw.fit(time_terms, clocks, values[name]).at(clock_mhz) for name in _FOLLOWING_THE_CLOCK}
    result["time_host_s"] = values["time_host_s"].mean(axis=1)
    result["power_w"] = ClockLaw.fit(power_terms, clocks, values["power_w"]).at(clock_mhz)
    dynamic_w = values["energy_dynamic_j"] / values["time_device_s"]
    dynamic_law = ClockLaw.fit(power_terms, clocks, dynamic_w)
    result["energy_dynamic_j"] = dynamic_law.at(clock_mhz) * result["time_device_s"]
    return pd.DataFrame(result, index=first.index)[list(TARGETS)]
