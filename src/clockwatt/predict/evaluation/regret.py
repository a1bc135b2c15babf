"""What choosing an operating point by prediction would have cost on networks that were measured at all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

OBJECTIVES = ("time", "energy", "edp")


def objective_of(objective: str, time_s: Any, energy_j: Any) -> Any:
    """Value to be made small: time in s, energy in J, or their product (EDP) in J·s.

    Raises
    ------
    ValueError
        If there is no such objective.
    """
    match objective:
        case "time":
            return time_s
        case "energy":
            return energy_j
        case "edp":
            return time_s * energy_j
    raise ValueError(f"objective {objective!r}: choose {', '.join(OBJECTIVES)}")


def regrets(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Regret of the predicted choice beside that of the best single operating point for all networks.

    Parameters
    ----------
    rows
        One GPU's compositions from predicted operations, with the measured values beside them, see
        `networks.VALIDATION_SCHEMA`. Networks that lack one of the operating points do not count.

    Returns
    -------
    list of dict
        For each pass, TF32 setting and objective with at least two operating points: `networks`, `points`,
        `mean_regret` of the predicted choice, `fixed_point` and `fixed_mean_regret`. Regret is the measured objective
        over the least measured one, minus one.
    """
    found = []
    for (pass_, tf32), group in rows.groupby(["pass", "tf32"]):
        for objective in OBJECTIVES:
            measured = _per_point(group, objective_of(objective, group["measured_time_s"], group["measured_energy_j"]))
            predicted = _per_point(group, objective_of(objective, group["time_s"], group["energy_j"]))
            complete = measured.notna().all(axis=1) & predicted.notna().all(axis=1)
            if complete.sum() and measured.shape[1] > 1:
                numbers = _regret(measured[complete].to_numpy(float), predicted[complete].to_numpy(float))
                fixed = measured.columns[numbers.pop("fixed")]
                found.append(
                    {"pass": pass_, "tf32": bool(tf32), "objective": objective, "fixed_point": fixed, **numbers}
                )
    return found


def _per_point(rows: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    return rows.assign(value=values).pivot_table(index="network_id", columns="point", values="value")


def _regret(measured: NDArray[np.float64], predicted: NDArray[np.float64]) -> dict[str, Any]:
    regret = measured / measured.min(axis=1, keepdims=True) - 1
    chosen = np.take_along_axis(regret, predicted.argmin(axis=1)[:, None], axis=1)
    fixed = regret.mean(axis=0)
    return {
        "networks": int(measured.shape[0]),
        "points": int(measured.shape[1]),
        "mean_regret": float(chosen.mean()),
        "fixed": int(fixed.argmin()),
        "fixed_mean_regret": float(fixed.min()),
    }
