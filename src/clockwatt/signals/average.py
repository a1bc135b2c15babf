"""Runs of different length as one curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from clockwatt.signals.grid import Kind, checked, measured_rate_hz, resample


def average_runs(
    runs: Sequence[pd.Series[float]], *, rate_hz: float | None = None, kind: Kind = "cubic"
) -> pd.DataFrame:
    """Return the mean and deviation over runs at each time since their start.

    Each run is brought onto one even grid that begins at its first reading. Where a run has ended or has
    a gap it is masked: it counts for nothing, and the others are averaged.

    Parameters
    ----------
    runs
        One series of readings per run, with times in s as its index.
    rate_hz
        Rate of the grid in Hz; twice the highest median rate of the runs if None.
    kind
        The kind of interpolation, as in `resample`.

    Returns
    -------
    Columns `mean` (NaN where every run has a gap) and `deviation` in the unit of the readings (of a sample; NaN where
    there is one run only) and `runs`, their number, by `time_s`; empty without a run of two readings.

    Raises
    ------
    ValueError
        If the rate is not above 0.
    """
    usable = [run for run in (_readings(run) for run in runs) if len(run) > 1]
    if not usable:
        empty = pd.Index([], name="time_s", dtype=float)
        return pd.DataFrame({"mean": [], "deviation": [], "runs": []}, index=empty).astype({"runs": int})
    rate = 2 * max(measured_rate_hz(run.index) for run in usable) if rate_hz is None else rate_hz
    gridded = [
        resample(run.index.to_numpy(float), run.to_numpy(float), rate_hz=rate, kind=kind).to_numpy() for run in usable
    ]
    stacked = np.full((len(gridded), max(map(len, gridded))), np.nan)
    for row, values in enumerate(gridded):
        stacked[row, : len(values)] = values
    ran = ~np.isnan(stacked)  # the masks
    count = ran.sum(axis=0)
    mean = np.where(ran, stacked, 0).sum(axis=0) / np.where(count > 0, count, np.nan)
    squares = (np.where(ran, stacked - mean, 0) ** 2).sum(axis=0)
    deviation = np.sqrt(squares / np.where(count > 1, count - 1, np.nan))
    return pd.DataFrame(
        {"mean": mean, "deviation": deviation, "runs": count},
        index=pd.Index(np.arange(stacked.shape[1]) / rate, name="time_s"),
    )


def _readings(run: pd.Series[float]) -> pd.Series[float]:
    times, values = checked(run.index.to_numpy(float), run.to_numpy(float, na_value=np.nan))
    return pd.Series(values, index=times)
