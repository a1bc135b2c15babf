"""Means, deviations, fits and optima of the study, and whether a power limit bit. Pure functions of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt import signals
from clockwatt.studies.power.tables import CLOCK, NOTHING, POWER_LIMIT

OBJECTIVES = {
    "energy_j": ("energy", "J"),
    "time_s": ("time", "s"),
    "energy_delay_product_j_s": ("energy × time", "J·s"),
}
"""Objectives for which a point may be the best: name and unit."""

POINT = ["network", "setting", "asked", "point"]
LEAST_PLACES = 3
"""A curve of the second degree needs so many different places; through three it goes exactly."""

_CAPPED_SHARE = 0.5
"""A limit bit where half of the readings under load name it as what throttles …"""
_AT_THE_LIMIT = 0.9
"""… and the card drew nearly as much as it may: a busy driver names the limit for other reasons too."""

_REACHED = 0.02
_NEAR = 0.1
_FINE = 2001


def with_products(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs with their energy-delay product, and energy by the counter where power readings are missing."""
    energy = runs["energy_j"].astype(float).fillna(runs["energy_counter_j"].astype(float))
    product = signals.energy_delay_product_j_s(energy, runs["time_s"])
    return runs.assign(energy_j=energy, energy_delay_product_j_s=product)


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and deviation of every network at every point.

    Parameters
    ----------
    runs
        From `tables.read`.

    Returns
    -------
    pandas.DataFrame
        A row for each network and point: `POINT`, `runs`, mean and `_deviation` (of a sample; NaN for one run) of
        `time_s`, `energy_j`, `energy_delay_product_j_s`, `power_mean_w`; means of `power_high_w`, `power_limit_w`,
        `power_cap_share`, `sm_clock_mhz`; `limit_bit` (null where neither shows it), `reached` (null but for clocks)
        and `x`, where the point stands in fits.
    """
    runs = with_products(runs)
    deviating = [*OBJECTIVES, "power_mean_w"]
    seen = ["power_high_w", "power_limit_w", "power_cap_share", "sm_clock_mhz"]
    grouped = runs.astype(dict.fromkeys([*deviating, *seen, "asked"], float)).groupby(POINT, dropna=False, sort=True)
    mean, deviation = grouped[[*deviating, *seen]].mean(), grouped[deviating].std().add_suffix("_deviation")
    found = pd.concat([grouped.size().rename("runs"), mean, deviation], axis=1).reset_index()
    found["limit_bit"] = _bit(found)
    clocks = found["setting"] == CLOCK
    reached = (found["sm_clock_mhz"] / found["asked"] - 1).abs() <= _REACHED
    found["reached"] = reached.astype("boolean").where(clocks & found["sm_clock_mhz"].notna())
    found["x"] = _places(found)
    return found


def _bit(found: pd.DataFrame) -> pd.Series[Any]:
    """Return whether the power limit in force slowed a network: throttle reasons and power drawn must both say so."""
    share, drawn = found["power_cap_share"], found["power_high_w"] / found["power_limit_w"]
    bit = (share.fillna(1.0) >= _CAPPED_SHARE) & (drawn.fillna(1.0) >= _AT_THE_LIMIT)
    return bit.astype("boolean").where(share.notna() | drawn.notna())


def _places(found: pd.DataFrame) -> pd.Series[float]:
    """Return the abscissa of each point in fits: the actual clock; the limit, or the power drawn where it is lower."""
    unbitten = found["setting"].isin([POWER_LIMIT, NOTHING]) & ~found["limit_bit"].fillna(value=True).astype(bool)
    # as a limit just there would do: all points that did not bite are one
    drawn = found["power_high_w"].where(unbitten).groupby(found["network"]).transform("mean")
    place = found["asked"].where(
        found["setting"] == POWER_LIMIT, found["sm_clock_mhz"].where(found["setting"] == CLOCK)
    )
    return place.where(~unbitten, drawn)


def fits(runs: pd.DataFrame, means: pd.DataFrame) -> pd.DataFrame:
    """Return a second-degree curve through energy, time and energy-delay product of all runs, against the setting.

    Parameters
    ----------
    runs
        From `tables.read`.
    means
        From `summary`.

    Returns
    -------
    pandas.DataFrame
        A row for each network, setting and objective: `places` (different x), `why_not` (None, or why there is no
        curve), the coefficients `c0`, `c1`, `c2`, `x_min`, `x_max`, `r2`, `optimum_x` (NaN without
        `signals.has_optimum`), `optimum`, and `at_border`.
    """
    joined = with_products(runs).merge(means[[*POINT, "x"]], on=POINT, how="left")
    rows = []
    for setting in (POWER_LIMIT, CLOCK):
        for network, of_network in means[means["setting"] == setting].groupby("network"):
            own = joined[(joined["network"] == network) & (joined["setting"] == setting)].dropna(subset=["x"])
            why_not = _why_not(of_network, setting)
            for objective in OBJECTIVES:
                known = own.dropna(subset=[objective])
                told = {"network": network, "setting": setting, "objective": objective, "why_not": why_not}
                fitted = {} if why_not else _curve(known["x"].to_numpy(float), known[objective].to_numpy(float))
                rows.append(told | {"places": known["x"].nunique()} | fitted)
    columns = ["network", "setting", "objective", "places", "why_not", *_CURVE]
    return pd.DataFrame(rows).reindex(columns=columns)


_CURVE = ["c0", "c1", "c2", "x_min", "x_max", "r2", "optimum_x", "optimum", "at_border"]


def _why_not(of_network: pd.DataFrame, setting: str) -> str | None:
    """Return the reason for a missing fit, as a text for a figure."""
    if setting == POWER_LIMIT and not of_network["limit_bit"].fillna(value=True).any():
        lowest = of_network.sort_values("asked").iloc[0]
        return f"the limit never bit:\nat {lowest['asked']:.0f} W it drew {lowest['power_high_w']:.0f} W"
    if (places := of_network["x"].dropna().nunique()) < LEAST_PLACES:
        bit = int(of_network["limit_bit"].fillna(value=True).sum())
        if setting == POWER_LIMIT:
            return f"the limit bit at {bit} of {len(of_network)} points:\ntoo few for a curve"
        return f"{places} different clocks ran:\ntoo few for a curve"
    return None


def _curve(x: NDArray[np.float64], y: NDArray[np.float64]) -> dict[str, Any]:
    if len(np.unique(x)) < LEAST_PLACES:
        return {"why_not": "too few runs have an energy"}
    curve = np.polynomial.Polynomial.fit(x, y, 2).convert()
    r2 = signals.r_squared(y, curve(x))
    c0, c1, c2 = np.pad(curve.coef, (0, 3 - len(curve.coef)))
    fitted = {"c0": c0, "c1": c1, "c2": c2, "x_min": x.min(), "x_max": x.max(), "r2": r2}
    return fitted | _optimum(x, y) if signals.has_optimum(r2, curve(x)) else fitted


def _optimum(x: NDArray[np.float64], y: NDArray[np.float64]) -> dict[str, Any]:
    """Least value of the curve of the second degree through the lowest mean and what is within a tenth of its place.

    That is three places at least. The curve through all places is too stiff for it, above all along a wide range.
    """
    places = np.unique(x)
    lowest = int(np.argmin([y[x == place].mean() for place in places]))
    first = min(max(lowest - 1, 0), len(places) - LEAST_PLACES)
    low = min(places[first], (1 - _NEAR) * places[lowest])
    high = max(places[first + LEAST_PLACES - 1], (1 + _NEAR) * places[lowest])
    near = (x >= low) & (x <= high)
    curve = np.polynomial.Polynomial.fit(x[near], y[near], 2)
    fine = np.linspace(x[near].min(), x[near].max(), _FINE)
    least = fine[int(np.argmin(curve(fine)))]
    return {"optimum_x": least, "optimum": float(curve(least)), "at_border": least in (places[0], places[-1])}


def on_curve(fit: pd.Series[Any], x: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values of a row of `fits` at some places."""
    return np.asarray(np.polynomial.Polynomial([fit["c0"], fit["c1"], fit["c2"]])(np.asarray(x, float)), float)
