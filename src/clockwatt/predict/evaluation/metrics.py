"""How far predictions are from measurements, and what choosing an operating point by them would have cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def metrics(measured: NDArray[np.float64], predicted: NDArray[np.float64]) -> dict[str, Any]:
    """Errors of positive quantities.

    Parameters
    ----------
    measured, predicted
        Shape (rows,). Pairs with a value that is not finite, or a measured one that is not positive, do not count.

    Returns
    -------
    dict
        `rows`; `r2`, the coefficient of determination (None for fewer than two rows or no variance); `mape`,
        `median_ape`, `p95_ape`, the mean, median and 95th percentile of |predicted / measured − 1|; `bias`, the mean of
        predicted / measured − 1. All but `rows` are None without rows.
    """
    counts = np.isfinite(measured) & np.isfinite(predicted) & (measured > 0)
    measured, predicted = measured[counts], predicted[counts]
    if measured.size == 0:
        return {"rows": 0, **dict.fromkeys(("r2", "mape", "median_ape", "p95_ape", "bias"))}
    relative = predicted / measured - 1
    errors = np.abs(relative)
    variance = float(np.sum((measured - measured.mean()) ** 2))
    return {
        "rows": int(measured.size),
        "r2": 1 - float(np.sum((measured - predicted) ** 2)) / variance if variance > 0 else None,
        "mape": float(errors.mean()),
        "median_ape": float(np.median(errors)),
        "p95_ape": float(np.percentile(errors, 95)),
        "bias": float(relative.mean()),
    }


def metrics_by(group: pd.Series, measured: NDArray[np.float64], predicted: NDArray[np.float64]) -> dict[str, Any]:
    """`metrics` of each value of `group`; shape (rows,) each."""
    keys = group.to_numpy()
    return {str(key): metrics(measured[keys == key], predicted[keys == key]) for key in sorted(set(keys))}


OBJECTIVES = ("time", "energy", "edp")


def objective_of(objective: str, time_s: Any, energy_j: Any) -> Any:
    """Value to be made small: time in s, energy in J, or their product (EDP) in J·s.

    ValueError if there is no such objective.
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
