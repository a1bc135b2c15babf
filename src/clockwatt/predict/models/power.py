"""Estimate dynamic energy of operations measured in time alone: predicted power times measured time.

The power of a kernel depends on its use of arithmetic units and memory, far more than on the operation. So a forest
predicts power from the shares of peak and bandwidth that an operation reaches in its measured time. It is fitted to
operations measured with energy, and applied to all others.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.features import OPERATION_CLASS, POWER_LIMIT, ROOFLINE_TIME
from clockwatt.schema.costs import ENERGY_DYNAMIC_CORRECTED, TIME_DEVICE_CORRECTED

Floats = NDArray[np.float64]

_TIME, _ENERGY = TIME_DEVICE_CORRECTED, ENERGY_DYNAMIC_CORRECTED
LEAST_ROWS = 20
"""Fewest operations with energy to estimate that of others."""
_TREES = 25
_LEAST_SHARE = 1e-4


def with_energies(features: pd.DataFrame, targets: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return targets with dynamic energies added where only the device time was measured.

    Parameters
    ----------
    features
        From `features.features_at`; shape (rows, features).
    targets
        Columns of `predictors.TARGETS`, in their units; shape (rows, targets).
    seed
        Of the forest.

    Returns
    -------
    pandas.DataFrame
        The targets, unchanged if none lacks energy or too few have it.
    """
    if _ENERGY not in targets or _TIME not in targets:
        return targets
    time_s, energy_j = (targets[name].to_numpy(float, copy=True) for name in (_TIME, _ENERGY))
    known = (energy_j > 0) & (time_s > 0)
    lacking = np.isnan(energy_j) & (time_s > 0)
    if not lacking.any() or known.sum() < LEAST_ROWS:
        return targets
    from sklearn.ensemble import ExtraTreesRegressor

    limit_w = features[POWER_LIMIT].to_numpy(float)
    matrix = utilisation(features, time_s)
    forest = ExtraTreesRegressor(_TREES, max_features=0.5, min_samples_leaf=2, random_state=seed, n_jobs=1)
    forest.fit(matrix[known], np.log(energy_j[known] / time_s[known] / limit_w[known]))
    energy_j[lacking] = np.exp(forest.predict(matrix[lacking])) * limit_w[lacking] * time_s[lacking]
    return targets.assign(**{_ENERGY: energy_j})


def utilisation(features: pd.DataFrame, time_s: Floats) -> NDArray[np.float32]:
    """Return features of operations, and the shares of peak and bandwidth that they reach; shape (rows, features)."""
    reached = [np.exp2(features[name].to_numpy(float)) / time_s for name in ("log_compute_time", "log_memory_time")]
    shares = [np.log2(share + _LEAST_SHARE) for share in reached]
    of_roofline = np.log2(features[ROOFLINE_TIME].to_numpy(float) / time_s)
    numbers = features.drop(columns=[OPERATION_CLASS]).to_numpy(np.float32)
    found: NDArray[np.float32] = np.column_stack([numbers, *shares, of_roofline, np.log2(time_s * 1e6)]).astype(
        np.float32
    )
    return np.nan_to_num(found, posinf=0.0, neginf=0.0)
