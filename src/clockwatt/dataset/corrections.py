"""Correct the costs of calls and passes for training: median card and host, in a pass, unthrottled.

Measured columns stay as they are. Corrected costs get columns of their own, with the kind of correction.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from clockwatt.dataset.unthrottled import UnthrottledEnergy
from clockwatt.schema import costs
from clockwatt.schema.costs import Measured
from clockwatt.schema.flags import NEVER_LEARNT_FROM, Flag
from clockwatt.schema.records import OK

WITHOUT_WORK = "no device work"
"""Reason to exclude calls that cost host time alone from training."""

NOT_ABOVE_IDLE = "dynamic energy not above zero"
"""Reason to exclude calls that need no more than idle power from training: the target is a ratio."""

BACK_TO_BACK_ALONE = "times back to back alone"
"""Reason to exclude rows of back-to-back time alone from training, if other rows of the GPU have device time."""

_INCOMPLETE = "device or host time could not be measured"


def corrected(rows: pd.DataFrame, unthrottled: UnthrottledEnergy | None) -> pd.DataFrame:
    """Return the corrected costs of measurements.

    Parameters
    ----------
    rows
        Measurements with the factors of their cards and hosts, and all flags that they have; shape (measurements, …).
    unthrottled
        What is known of energy without the power limit; None for whole networks, which the limit throttles as it would
        without measuring.

    Returns
    -------
    pandas.DataFrame
        `tables.COST_COLUMNS`, with the index of `rows`.
    """
    time, power, host = (
        rows[name].astype(float).fillna(1.0)
        for name in ("anchor_time_factor", "anchor_power_factor", "anchor_host_factor")
    )
    in_pass = rows[costs.TIME_HOST_IN_PASS.column].notna()
    host_s, host_error_s = (
        taken.where(in_pass, alone)
        for taken, alone in zip(_of(rows, costs.TIME_HOST_IN_PASS), _of(rows, costs.TIME_HOST), strict=True)
    )
    host_from = pd.Series(costs.MEASURED, index=rows.index, dtype=object).where(host_s.notna(), None)
    if unthrottled is None:
        dynamic_j, dynamic_error_j = _of(rows, costs.ENERGY_DYNAMIC)
        dynamic_from = pd.Series(costs.MEASURED, index=rows.index, dtype=object).where(dynamic_j.notna(), None)
    else:
        found = unthrottled.of(rows)
        dynamic_j, dynamic_error_j, dynamic_from = found["energy_j"], found["standard_error_j"], found["source"]
    device_s, device_error_s = _of(rows, costs.TIME_DEVICE)
    eager_s, eager_error_s = _of(rows, costs.TIME_EAGER)
    power_w, power_error_w = _of(rows, costs.POWER)
    energy_j, _ = _of(rows, costs.ENERGY)
    return pd.DataFrame(
        {
            "time_device_corrected_s": device_s / time,
            "time_device_corrected_standard_error_s": device_error_s / time,
            "time_host_corrected_s": host_s / host,
            "time_host_corrected_standard_error_s": host_error_s / host,
            costs.TIME_HOST_FROM: host_from.mask(in_pass, costs.MEASURED_IN_PASS),
            "time_eager_corrected_s": eager_s / time,
            "time_eager_corrected_standard_error_s": eager_error_s / time,
            "power_corrected_w": power_w / power,
            "power_corrected_standard_error_w": power_error_w / power,
            costs.ENERGY_CORRECTED: energy_j / (time * power),
            "energy_dynamic_corrected_j": dynamic_j / (time * power),
            "energy_dynamic_corrected_standard_error_j": dynamic_error_j / (time * power),
            costs.ENERGY_DYNAMIC_FROM: dynamic_from,
        }
    )


def _of(rows: pd.DataFrame, measured: Measured) -> tuple[pd.Series, pd.Series]:
    return rows[measured.column].astype(float), rows[measured.standard_error].astype(float)


def exclusions(rows: pd.DataFrame) -> list[str]:
    """Return the first reason to exclude an operation from training; empty where there is none.

    Each cost is fitted to the rows that have it; times also to rows of times alone.

    Parameters
    ----------
    rows
        `status`, all `flags`, `device_work` (missing where the catalogue does not have the operation) and corrected
        costs.
    """
    found = rows[list(costs.CORRECTED)].astype(float)
    complete = found[list(costs.NEEDED)].notna().all(axis=1)
    alone = found[list(costs.NEEDED)].isna().all(axis=1) & found[costs.BACK_TO_BACK].notna()
    incomplete = np.where(complete, "", np.where(alone, BACK_TO_BACK_ALONE, _INCOMPLETE))
    positive = ~(found <= 0).any(axis=1)  # a missing cost excludes only itself from training
    works = np.array([work is None or bool(work) for work in rows["device_work"]], dtype=bool)
    return [
        _reason(status, set(flags), str(lacking), device_work=device_work, positive=above_zero)
        for status, flags, device_work, lacking, above_zero in zip(
            rows["status"], rows["flags"], works, incomplete, positive, strict=True
        )
    ]


def _reason(status: str, flags: set[str], incomplete: str, *, device_work: bool, positive: bool) -> str:
    if status != OK:
        return f"status {status}"
    if not device_work:
        return WITHOUT_WORK
    for flag in NEVER_LEARNT_FROM:
        if flag in flags:
            return f"flag {flag}"
    if Flag.CLOCK_OFF_TARGET in flags and Flag.POWER_CAPPED not in flags:
        return f"flag {Flag.CLOCK_OFF_TARGET}"
    return incomplete or ("" if positive else NOT_ABOVE_IDLE)
