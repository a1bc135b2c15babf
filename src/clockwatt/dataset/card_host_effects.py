"""Estimate card effects, host effects and drift from the reference operations.

Cards of one model differ by several percent, and Slurm assigns them at random. The same few operations are therefore
measured at the start and the end of every session: their times on one card, relative to the median card at the same
operating point, are that card's factor; their change from start to end is the session's drift. Hosts differ by more,
and change by the hour. The host time of their calls relative to the median session is therefore a factor of the
session.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

ANCHOR_COLUMNS = [
    "kind",
    "subject_id",
    "pass",
    "execution",
    "gpu_uuid",
    "session_id",
    "started_us",
    "time_device_s",
    "time_host_s",
    "power_w",
]
"""Columns of a measurement that are needed here."""

_KEY = ["subject_id", "pass", "execution"]


@dataclass(frozen=True)
class _Compared:
    """Quantities compared between reference operations, and the columns of their relative difference."""

    column: str
    factor: str
    change: str
    change_per_hour: str


_COMPARED = (
    _Compared("time_device_s", "anchor_time_factor", "session_time_change", "drift_time_per_hour"),
    _Compared("power_w", "anchor_power_factor", "session_power_change", "drift_power_per_hour"),
)

_HOUR_US = 3.6e9
_MAD_TO_DEVIATION = 1.4826  # of normally distributed values


def card_factors(anchors: pd.DataFrame) -> pd.DataFrame:
    """Return the factor of each card in time and power.

    Parameters
    ----------
    anchors
        Rows of the reference operations of one GPU label at one operating point, with `ANCHOR_COLUMNS`.

    Returns
    -------
    pandas.DataFrame
        Indexed by card UUID; `anchor_time_factor` and `anchor_power_factor`: median over reference operations of this
        card's median over the median card's. 1 where there is one card, or no other has its reference operations;
        missing where none of them has a value.
    """
    factors = {}
    for compared in _COMPARED:
        per_card = anchors.groupby(["gpu_uuid", *_KEY])[compared.column].median().reset_index()
        per_card = per_card.pivot_table(index=_KEY, columns="gpu_uuid", values=compared.column)
        factors[compared.factor] = per_card.div(per_card.median(axis=1), axis=0).median(axis=0)
    return pd.DataFrame(factors)


def host_factors(anchors: pd.DataFrame) -> pd.Series:
    """Return the host factor of each session: its relative host time per call.

    Parameters
    ----------
    anchors
        Rows of the reference operations of one GPU label at one operating point, with `ANCHOR_COLUMNS`.

    Returns
    -------
    pandas.Series
        Indexed by session: median over reference operations of this session's median host time over the median
        session's; 1 where no other session has its reference operations, missing where none of them has a host time.
    """
    per_session = anchors.groupby(["session_id", *_KEY])["time_host_s"].median().reset_index()
    per_session = per_session.pivot_table(index=_KEY, columns="session_id", values="time_host_s")
    return per_session.div(per_session.median(axis=1), axis=0).median(axis=0)


def host_spreads(anchors: pd.DataFrame) -> pd.Series:
    """Return how far the reference operations of a session disagree on the host's speed.

    Hosts of different kinds differ in relative cost too, so each operation is compared with the median session.

    Parameters
    ----------
    anchors
        As for `host_factors`.

    Returns
    -------
    pandas.Series
        Indexed by session: standard deviation of the log of host time over the session's measurements of reference
        operations, each relative to its operation's median. It is estimated from the median absolute deviation, so that
        single outliers do not count. 0 where there is one; missing where none has a host time.
    """
    host_s, session = anchors["time_host_s"].astype(float), anchors["session_id"]
    typical_s = host_s.groupby([anchors[name] for name in _KEY]).transform("median")
    relative = pd.Series(np.log(host_s / typical_s), index=anchors.index)
    off = (relative - relative.groupby(session).transform("median")).abs()
    return _MAD_TO_DEVIATION * off.groupby(session).median()


def session_drifts(anchors: pd.DataFrame) -> pd.DataFrame:
    """Return the change of the reference operations from their first to their last measurement in a session.

    Parameters
    ----------
    anchors
        Rows of the reference operations with `ANCHOR_COLUMNS`.

    Returns
    -------
    pandas.DataFrame
        Indexed by session; `session_time_change` and `session_power_change`: median over reference operations of last /
        first − 1; `drift_time_per_hour` and `drift_power_per_hour`: the same per hour. Sessions whose reference
        operations were measured once are missing.
    """
    ordered = anchors.sort_values("started_us").groupby(["session_id", *_KEY])
    first, last = ordered.nth(0), ordered.nth(-1)
    first, last = (rows.set_index(["session_id", *_KEY]) for rows in (first, last))
    hours = (last["started_us"] - first["started_us"]) / _HOUR_US
    hours = hours[hours > 0]
    drifts = {}
    for compared in _COMPARED:
        change = (last[compared.column] / first[compared.column] - 1).reindex(hours.index).astype(float)
        drifts[compared.change] = change.groupby("session_id").median()
        drifts[compared.change_per_hour] = (change / hours).groupby("session_id").median()
    return pd.DataFrame(drifts)
