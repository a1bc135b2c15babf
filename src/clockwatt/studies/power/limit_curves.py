"""Predict time and power at power limits that were not measured, and choose batch size and limit together."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.studies.power.analysis import OBJECTIVES

Floats = NDArray[np.float64]

_DEGREE = 2
_STEP_W = 5.0


def on_limit_curve(limits_w: Floats, values: Floats, at_w: Floats) -> Floats:
    """Return positive values at other power limits, in their unit.

    The logarithm is a polynomial of second degree in 1 / limit, of first degree through two limits, and constant from
    one.

    Parameters
    ----------
    limits_w, values
        Limits measured, in W, and time or power there; shape (n,).
    at_w
        Limits to predict, in W; shape (m,).
    """
    degree = min(_DEGREE, len(np.unique(limits_w)) - 1)
    fitted = np.polynomial.Polynomial.fit(1 / limits_w, np.log(values), degree)
    return np.asarray(np.exp(fitted(1 / at_w)), float)


def choices(rows: pd.DataFrame) -> pd.DataFrame:
    """Return batch size and power limit that together minimise each objective.

    Costs are those of all epochs to the target metric where `epochs` is known, else of one run. Limits are predicted
    in steps of 5 W between those measured.

    Parameters
    ----------
    rows
        `network`, `batch_size`, `power_limit_w`, `time_s`, `power_w`, `epochs` (NaN: not known).

    Returns
    -------
    pandas.DataFrame
        `network`, `objective`, `batch_size`, `power_limit_w`, `time_s`, `energy_j`, `energy_delay_product_j_s`. Where a
        network has epochs for some batch sizes, the others never reach the target and are left out.
    """
    limited = rows.dropna(subset=["power_limit_w"])
    reaches = limited["epochs"].notna() | limited.groupby("network")["epochs"].transform("count").eq(0)
    curves = [_curve(rows) for _, rows in limited[reaches].groupby(["network", "batch_size"], dropna=False)]
    if not curves:
        return pd.DataFrame(columns=["network", "objective", "batch_size", "power_limit_w", *OBJECTIVES])
    predicted = pd.concat(curves, ignore_index=True)
    best = [
        predicted.loc[predicted.groupby("network")[objective].idxmin()].assign(objective=objective)
        for objective in OBJECTIVES
    ]
    columns = ["network", "objective", "batch_size", "power_limit_w", *OBJECTIVES]
    return pd.concat(best)[columns].sort_values(["network", "objective"], ignore_index=True)


def _curve(rows: pd.DataFrame) -> pd.DataFrame:
    limits_w, power_w = rows["power_limit_w"].to_numpy(float), rows["power_w"].to_numpy(float)
    time_s = (rows["time_s"] * rows["epochs"].fillna(1.0)).to_numpy(float)
    at_w = np.arange(limits_w.min(), limits_w.max() + _STEP_W / 2, _STEP_W)
    time_s, power_w = on_limit_curve(limits_w, time_s, at_w), on_limit_curve(limits_w, power_w, at_w)
    energy_j = time_s * power_w
    costs = pd.DataFrame(
        {"power_limit_w": at_w, "time_s": time_s, "energy_j": energy_j, "energy_delay_product_j_s": energy_j * time_s}
    )
    return costs.assign(network=rows["network"].iloc[0], batch_size=rows["batch_size"].iloc[0])
