"""Flags that are derived from a row and from those beside it. Rows keep the flags that measuring gave them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.schema.flags import Flag

CARD_CHANGE_ABOVE = 0.02
"""Flagged deviation of a card from the median card, and of the reference operations within a session."""

HOST_SPREAD_ABOVE = 0.1
"""Flagged standard deviation of the reference operations' host times within a session: more than steady hosts have."""

_CAPPED_BY = {"sw_power_cap"}
SLOWED_BY = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sync_boost"}


def throttle_flags(rows: pd.DataFrame) -> dict[Flag, NDArray[np.bool_]]:
    """Return which rows were throttled, by the power limit or otherwise; `rows` has `throttle_reasons`."""
    reasons = [set(() if names is None else names) for names in rows["throttle_reasons"]]
    return {
        Flag.POWER_CAPPED: np.array([bool(names & _CAPPED_BY) for names in reasons], dtype=bool),
        Flag.HARDWARE_THROTTLED: np.array([bool(names & SLOWED_BY) for names in reasons], dtype=bool),
    }


def derived_flags(rows: pd.DataFrame) -> dict[Flag, NDArray[np.bool_]]:
    """Return the rows of each derived flag.

    Parameters
    ----------
    rows
        `throttle_reasons`, `power_w` and `power_idle_w` of measurements, and beside them `anchor_time_factor`,
        `anchor_power_factor`, `session_time_change`, `session_power_change`, `session_host_spread` and `in_catalogue`.

    Returns
    -------
    dict
        Flag to boolean array of shape (rows,).
    """
    above_idle = rows["power_w"].astype(float) - rows["power_idle_w"].astype(float)
    factors = rows[["anchor_time_factor", "anchor_power_factor"]].astype(float)
    changes = rows[["session_time_change", "session_power_change"]].astype(float)
    return throttle_flags(rows) | {
        Flag.NO_DYNAMIC_ENERGY: (above_idle <= 0).to_numpy(bool),
        Flag.CARD_DIFFERS: ((factors - 1).abs() > CARD_CHANGE_ABOVE).any(axis=1).to_numpy(bool),
        Flag.CARD_DRIFT: (changes.abs() > CARD_CHANGE_ABOVE).any(axis=1).to_numpy(bool),
        Flag.HOST_UNSTEADY: (rows["session_host_spread"].astype(float) > HOST_SPREAD_ABOVE).to_numpy(bool),
        Flag.NOT_IN_CATALOGUE: ~rows["in_catalogue"].to_numpy(bool),
    }


def merged_flags(rows: pd.DataFrame, derived: dict[Flag, NDArray[np.bool_]]) -> list[list[str]]:
    """Return the rows' own `flags` and derived ones, each once, sorted."""
    merged: list[set[str]] = [set(() if flags is None else flags) for flags in rows["flags"]]
    for flag, applies in derived.items():
        for position in np.flatnonzero(applies):
            merged[position].add(flag.value)
    return [sorted(flags) for flags in merged]
