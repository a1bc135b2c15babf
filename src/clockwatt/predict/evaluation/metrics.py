"""How far predictions are from measurements."""

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
