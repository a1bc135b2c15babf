"""Energy of calls that the power limit throttles, as they need it where other calls let the card recover between them.

Throttled calls run at a lowered clock, and need less. Measured with pauses they do not; where no measurement with
pauses succeeded, the clock that they ran at says what it would have been. Of 194 operations measured both ways on an
H200, those at the full clock need the same energy either way, within 3 % but for a few, and the ratio of the others
follows the clock (rank correlation -0.95).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.schema.costs import (
    ENERGY_DYNAMIC,
    ENERGY_DYNAMIC_UNTHROTTLED,
    ESTIMATED_FROM_CLOCK,
    MEASURED,
    MEASURED_UNTHROTTLED,
)
from clockwatt.schema.flags import Flag, flagged

_ENERGIES = [
    ENERGY_DYNAMIC.column,
    ENERGY_DYNAMIC.standard_error,
    ENERGY_DYNAMIC_UNTHROTTLED.column,
    ENERGY_DYNAMIC_UNTHROTTLED.standard_error,
]
COLUMNS = ["subject_id", "pass", "point", "flags", "sm_clock_median_mhz", *_ENERGIES]
"""Columns of measurements that are needed here."""

ERROR_BELOW = 0.1
"""Relative standard error of an energy with pauses beyond which it is not believed."""
FEWEST = 8
"""Operations measured both ways, at clocks that the limit had lowered, that are needed to estimate others."""
_LOWERED_BELOW = 0.995


def telling(rows: pd.DataFrame, believed: pd.Series) -> pd.DataFrame:
    """Return the measurements that `UnthrottledEnergy.learn` needs: measured both ways, or at the highest clock.

    Parameters
    ----------
    rows
        With `COLUMNS`; shape (measurements, …).
    believed
        Which of them may say something of others.
    """
    found = rows.loc[believed, COLUMNS]
    highest = found["sm_clock_median_mhz"].astype(float).dropna().groupby(found["point"]).idxmax()
    return found[_measured(found) | found.index.isin(highest)]


def _measured(rows: pd.DataFrame) -> pd.Series:
    """Return which energies were measured with pauses, with a sufficiently small error."""
    unthrottled_j, error_j = (rows[name].astype(float) for name in _ENERGIES[2:])
    return (unthrottled_j > 0) & (error_j <= ERROR_BELOW * unthrottled_j)


@dataclass(frozen=True)
class ClockLaw:
    """Log of energy unthrottled over throttled, against the clock over the highest: it falls.

    Attributes
    ----------
    relative, log_ratios
        What was seen, ascending, smoothed by isotonic regression; shape (clocks,).
    deviation
        Standard deviation of what was seen at lowered clocks around it.
    """

    relative: NDArray[np.float64]
    log_ratios: NDArray[np.float64]
    deviation: float = 0.0

    @classmethod
    def fit(cls, relative: pd.Series, log_ratio: pd.Series) -> ClockLaw:
        """Smooth what was seen; shape (operations,)."""
        from scipy.optimize import isotonic_regression  # slow to import, and seldom needed

        seen = log_ratio.groupby(relative).agg(["mean", "size"])
        smoothed = isotonic_regression(seen["mean"], weights=seen["size"], increasing=False).x
        return cls(seen.index.to_numpy(float), smoothed)

    def log_ratio(self, relative: pd.Series) -> NDArray[np.float64]:
        """Interpolate linearly between observed clocks, with the nearest beyond them; shape (operations,)."""
        values: NDArray[np.float64] = np.interp(relative.to_numpy(float), self.relative, self.log_ratios)
        return values


@dataclass(frozen=True)
class UnthrottledEnergy:
    """Model of the energy without the power limit, from the clock that the limit allows.

    Attributes
    ----------
    top_clock_mhz
        Highest median SM clock by operating point.
    laws
        Law by operating point and pass.
    """

    top_clock_mhz: pd.Series
    laws: dict[tuple[str, str], ClockLaw]

    @classmethod
    def learn(cls, parts: Iterable[pd.DataFrame]) -> UnthrottledEnergy:
        """Fit to measurements of one GPU, each part from `telling`.

        The ratio falls with the clock. It is fitted to operations measured both ways, in the same pass at the same
        operating point. Nothing is fitted where too few of them were throttled.
        """
        told = pd.concat([pd.DataFrame(columns=COLUMNS), *(part for part in parts if len(part))], ignore_index=True)
        clock_mhz = told["sm_clock_median_mhz"].astype(float)
        top_mhz = clock_mhz.groupby(told["point"]).max()
        both = told[_measured(told)].astype(dict.fromkeys(_ENERGIES, float))
        ratio = both[ENERGY_DYNAMIC_UNTHROTTLED.column] / both[ENERGY_DYNAMIC.column]
        relative = clock_mhz[both.index] / both["point"].map(top_mhz).astype(float)
        known = (ratio > 0) & relative.notna()
        log_ratio = pd.Series(np.log(ratio[known]), index=ratio.index[known])
        laws = {}
        for key, own in log_ratio.groupby([both["point"], both["pass"]]):
            lowered = own.index[relative[own.index] < _LOWERED_BELOW]
            if both.loc[lowered, "subject_id"].nunique() < FEWEST:
                continue
            law = ClockLaw.fit(relative[own.index], own)
            left = own[lowered] - law.log_ratio(relative[lowered])
            laws[str(key[0]), str(key[1])] = replace(law, deviation=float(left.std()))
        return cls(top_mhz, laws)

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the dynamic energy of calls that the power limit does not throttle.

        Parameters
        ----------
        rows
            Measurements with `COLUMNS`, and all flags that they have; shape (measurements, …).

        Returns
        -------
        pandas.DataFrame
            With the index of `rows`: `energy_j`, `standard_error_j` and `source`: measured with pauses, estimated from
            the clock where it was not but the limit acted, otherwise as measured.
        """
        energy_j, error_j, unthrottled_j, unthrottled_error_j = (rows[name].astype(float) for name in _ENERGIES)
        measured = _measured(rows)
        ratio, ratio_error = self._ratios(rows)
        estimated = flagged(rows, Flag.POWER_CAPPED) & ~measured & ratio.notna() & (energy_j > 0)
        estimated_j = ratio * energy_j
        estimated_error_j = ((ratio * error_j) ** 2 + (ratio_error * energy_j) ** 2) ** 0.5
        source = pd.Series(MEASURED, index=rows.index, dtype=object).where(energy_j.notna(), None)
        return pd.DataFrame(
            {
                "energy_j": unthrottled_j.where(measured, estimated_j.where(estimated, energy_j)),
                "standard_error_j": unthrottled_error_j.where(measured, estimated_error_j.where(estimated, error_j)),
                "source": source.mask(estimated, ESTIMATED_FROM_CLOCK).mask(measured, MEASURED_UNTHROTTLED),
            }
        )

    def _ratios(self, rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
        """Energy unthrottled over that throttled, and its standard error, of every row whose clock was lowered."""
        relative = rows["sm_clock_median_mhz"].astype(float) / rows["point"].map(self.top_clock_mhz).astype(float)
        ratio, error = (pd.Series(np.nan, index=rows.index) for _ in range(2))
        for (point, pass_), law in self.laws.items():
            here = (relative < _LOWERED_BELOW) & (rows["point"] == point) & (rows["pass"] == pass_)
            if here.any():
                ratio[here] = np.exp(law.log_ratio(relative[here]))
                error[here] = ratio[here] * law.deviation
        return ratio, error
