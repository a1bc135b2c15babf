"""Quality flags derived from a row and from those beside it. Rows keep the flags that the measurement gave them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CARD_CHANGE_ABOVE = 0.02
"""Deviation of a card from the median card, and change of the anchors within a session, that is flagged."""

HOST_SPREAD_ABOVE = 0.1
"""Standard deviation of the anchors' host times within a session that is flagged: steady hosts were seen to have up to
8 %, one that varied 11 to 30 %."""

POWER_CAPPED = "power_capped"
HARDWARE_THROTTLED = "hardware_throttled"
HOST_UNSTEADY = "host_unsteady"

DESCRIPTIONS: Mapping[str, str] = {
    "clock_off_target": "the SM clock under load was more than 2 % off the one asked for",
    "memory_clock_off_target": "the memory clock under load was more than 2 % off the one asked for",
    "sensors_disagree": "two estimates of power differ by more than 3 % and more than their errors explain",
    "no_power": "power could not be read during the measurement",
    "not_stationary": "time or power still changed when measuring began, or by more than 2 % within the window",
    "temperature_drift": "the card's temperature changed by more than 5 K within the measurement",
    "interrupted": "the process or the card stood still for half a second or more within the window",
    "counter_wrapped": "the energy counter went backwards; it was not used",
    "not_queueable": "the call waits for the device, or is too long for the launch queue: its device time is not known",
    POWER_CAPPED: "slowed by the power limit: what this operation always does at this operating point",
    HARDWARE_THROTTLED: "slowed by temperature or by the board (see throttle_reasons): cannot be repeated at will",
    "no_dynamic_energy": "power under load was not above idle power: no dynamic energy can be learnt from it",
    "card_differs": "this card's anchors are more than 2 % off the median card",
    "card_drift": "the anchors changed by more than 2 % within the session",
    HOST_UNSTEADY: "anchors disagree about the host's speed by more than 10 %: what it paces cannot be repeated",
    "not_in_catalogue": "the catalogue no longer has what was measured",
}
"""What each flag means: those that measuring gives, and those that are derived here."""

MEASUREMENT_COLUMNS = ["flags", "throttle_reasons", "power_w", "power_idle_w"]
"""Columns of a measurement that are needed here."""

_CAPPED_BY = {"sw_power_cap"}
_SLOWED_BY = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sync_boost"}


def flagged(rows: pd.DataFrame, *names: str) -> pd.Series:
    """Which rows have one of these flags; boolean, with the index of `rows`."""
    return rows["flags"].map(lambda own: not set(names).isdisjoint(() if own is None else own)).astype(bool)


def derived_flags(rows: pd.DataFrame) -> dict[str, NDArray[np.bool_]]:
    """Which rows get which derived flag.

    Parameters
    ----------
    rows
        `MEASUREMENT_COLUMNS`, and beside them `anchor_time_factor`, `anchor_power_factor`, `session_time_change`,
        `session_power_change`, `session_host_spread` and `in_catalogue`.

    Returns
    -------
    dict
        Flag to boolean array of shape (rows,).
    """
    reasons = [set(() if names is None else names) for names in rows["throttle_reasons"]]
    above_idle = rows["power_w"].astype(float) - rows["power_idle_w"].astype(float)
    factors = rows[["anchor_time_factor", "anchor_power_factor"]].astype(float)
    changes = rows[["session_time_change", "session_power_change"]].astype(float)
    return {
        POWER_CAPPED: np.array([bool(names & _CAPPED_BY) for names in reasons], dtype=bool),
        HARDWARE_THROTTLED: np.array([bool(names & _SLOWED_BY) for names in reasons], dtype=bool),
        "no_dynamic_energy": (above_idle <= 0).to_numpy(bool),
        "card_differs": ((factors - 1).abs() > CARD_CHANGE_ABOVE).any(axis=1).to_numpy(bool),
        "card_drift": (changes.abs() > CARD_CHANGE_ABOVE).any(axis=1).to_numpy(bool),
        HOST_UNSTEADY: (rows["session_host_spread"].astype(float) > HOST_SPREAD_ABOVE).to_numpy(bool),
        "not_in_catalogue": ~rows["in_catalogue"].to_numpy(bool),
    }


def merged_flags(rows: pd.DataFrame) -> list[list[str]]:
    """The rows' own flags and the derived ones, each once, sorted."""
    merged = [set(() if flags is None else flags) for flags in rows["flags"]]
    for flag, applies in derived_flags(rows).items():
        for position in np.flatnonzero(applies):
            merged[position].add(flag)
    return [sorted(flags) for flags in merged]
