"""Readings of a host's sensors, of which each socket has its own."""

from __future__ import annotations

import numpy as np
import pandas as pd


def of_sockets(host: pd.DataFrame, column: str) -> list[pd.Series[float]]:
    """Return the readings of each socket by time in s, from a column of lists; NaN where a list lacks one.

    Parameters
    ----------
    host
        Telemetry of a host, with `time_s` since the program's start.
    column
        Such as `host_cpu_temperature_c`.
    """
    there = host[host[column].notna()]
    index = pd.Index(there["time_s"].to_numpy(float), name="time_s")
    table = pd.DataFrame([list(values) for values in there[column]], dtype=float)
    return [pd.Series(table[socket].to_numpy(float), index=index) for socket in table.columns]


def power_of_counter(energy_j: pd.Series[float]) -> pd.Series[float]:
    """Return the mean power in W since the reading before, by time in s; where the counter wrapped it is not known."""
    if len(energy_j) < 2:
        return energy_j.iloc[:0]
    grown, passed_s = np.diff(energy_j.to_numpy(float)), np.diff(energy_j.index.to_numpy(float))
    known = (grown >= 0) & (passed_s > 0)
    return pd.Series(grown[known] / passed_s[known], index=energy_j.index[1:][known])
