"""Estimate the host time of modules and calls from the time of whole passes beyond their calls.

A calibration estimates it from networks of its own, predictors from those that a campaign measured.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COSTS = 2
"""Number of fitted costs: with no more passes than that, no error can be estimated."""


def module_and_call_costs(
    pass_s: NDArray[np.float64],
    modules: NDArray[np.float64],
    calls: NDArray[np.float64],
    beyond_s: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return host time that a module adds to a pass, and a call.

    Parameters
    ----------
    pass_s
        Host time of each pass in s; shape (passes,).
    modules, calls
        How many modules are entered and calls issued in it; shape (passes,).
    beyond_s
        What of `pass_s` is not its calls' alone; shape (passes,).

    Returns
    -------
    tuple of numpy.ndarray
        The two costs in s, and their standard errors by what is left (nan without more passes than costs); shape (2,).
        Least squares relative to the pass, neither cost below zero.
    """
    from scipy.optimize import nnls  # half a second that most calibrations do not need: the virtual ones

    counts = np.column_stack([modules, calls]) / pass_s[:, None]
    relative = beyond_s / pass_s
    found, _ = nnls(counts, relative)
    left = relative - counts @ found
    spare = len(pass_s) - COSTS
    variance = float(left @ left) / spare if spare > 0 else np.nan
    return found, np.sqrt(np.diag(np.linalg.pinv(counts.T @ counts)) * variance)
