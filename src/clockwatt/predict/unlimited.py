"""Energy of calls that the power limit slows, as they need it where other calls let the card recover between them.

Slowed calls run at a lowered clock, and need less. Measured with pauses they do not; where no measurement with pauses
succeeded, the clock that they ran at tells what it would have said. Of 194 operations measured both ways on an H200,
those at the full clock need the same energy either way, within 3 % but for a few, and the ratio of the others follows
the clock (rank correlation -0.95).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from clockwatt.schema.flags import POWER_CAPPED, flagged

_ENERGIES = [
    "energy_dynamic_j",
    "energy_dynamic_standard_error_j",
    "energy_dynamic_paced_j",
    "energy_dynamic_paced_standard_error_j",
]
COLUMNS = ["operation_id", "pass", "point", "flags", "sm_clock_median_mhz", *_ENERGIES]
"""Columns of measurements that are needed here."""

PACED_ERROR_BELOW = 0.1
"""Relative standard error of an energy with pauses beyond which it is not believed."""
FEWEST = 8
"""Operations measured both ways, at clocks that the limit had lowered, that are needed to tell of others."""
_LOWERED_BELOW = 0.995


def without_limit(rows: pd.DataFrame, believed: pd.Series) -> pd.DataFrame:
    """Dynamic energy of calls that the power limit does not slow.

    Parameters
    ----------
    rows
        Measurements of one GPU with `COLUMNS`; shape (measurements, …).
    believed
        Which of them may tell of others.

    Returns
    -------
    pandas.DataFrame
        With the index of `rows`: `energy_dynamic_j` and `energy_dynamic_standard_error_j`, with pauses where that was
        measured, told from the clock where it was not but the limit acted, otherwise as measured.
    """
    energy_j, error_j, paced_j, paced_error_j = (rows[name].astype(float) for name in _ENERGIES)
    measured = (paced_j > 0) & (paced_error_j <= PACED_ERROR_BELOW * paced_j)
    capped = flagged(rows, POWER_CAPPED)
    clock_mhz = rows["sm_clock_median_mhz"].astype(float)
    relative = clock_mhz / clock_mhz.where(believed).groupby(rows["point"]).transform("max")
    ratio, ratio_error = _told_by_clock(rows, relative, (paced_j / energy_j).where(measured & believed))
    told = capped & ~measured & ratio.notna() & (energy_j > 0)
    told_j = ratio * energy_j
    told_error_j = ((ratio * error_j) ** 2 + (ratio_error * energy_j) ** 2) ** 0.5
    return pd.DataFrame(
        {
            "energy_dynamic_j": paced_j.where(measured, told_j.where(told, energy_j)),
            "energy_dynamic_standard_error_j": paced_error_j.where(measured, told_error_j.where(told, error_j)),
        }
    )


def _told_by_clock(rows: pd.DataFrame, relative: pd.Series, ratio: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Energy with pauses over that without, and its standard error, of every row whose clock was lowered.

    `relative` is the clock over the highest at this operating point. The ratio falls with it: isotonic regression over
    the operations measured both ways, in the same pass at the same operating point. Missing where too few of them were
    slowed.
    """
    from sklearn.isotonic import IsotonicRegression  # only to fit: questions that need no predictor import no sklearn

    lowered = relative < _LOWERED_BELOW
    log_ratio = pd.Series(np.log(ratio.where(ratio > 0)), index=rows.index).where(relative.notna()).dropna()
    told, error = pd.Series(np.nan, index=rows.index), pd.Series(np.nan, index=rows.index)
    for key, own in log_ratio.groupby([rows["point"], rows["pass"]]):
        slowed = own.index[lowered[own.index]]
        if rows.loc[slowed, "operation_id"].nunique() < FEWEST:
            continue
        law = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(relative[own.index], own)
        left = own[slowed] - law.predict(relative[slowed])
        here = lowered & (rows["point"] == key[0]) & (rows["pass"] == key[1])
        told[here] = np.exp(law.predict(relative[here]))
        error[here] = told[here] * float(left.std())
    return told, error
