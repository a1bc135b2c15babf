"""Energy and time of each phase and of each run."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from clockwatt.signals.energy import counted_energy_j, energy_delay_product_j_s, integrated_energy_j
from clockwatt.signals.grid import checked, measured_rate_hz

LEAST_READINGS = 2
"""Fewest readings of power in a phase from which its energy is computed."""


def energy_of_phases(
    phases: pd.DataFrame,
    time_s: ArrayLike,
    power_w: ArrayLike,
    counter_time_s: ArrayLike,
    counter_j: ArrayLike,
    *,
    longest_gap_s: float = np.inf,
) -> pd.DataFrame:
    """Return phases with the energy of each.

    Parameters
    ----------
    phases
        With columns `start_s` and `end_s`, on the clock of the readings; one row a phase, others are kept.
    time_s, power_w
        Readings of power: times in s and W, of shape (n,).
    counter_time_s, counter_j
        Readings of an energy counter: times in s and J, of shape (m,).
    longest_gap_s
        As in `integrated_energy_j`.

    Returns
    -------
    The phases with `time_s`, `energy_j` (by integration), `energy_counter_j`, `power_w` (mean) and `told`: whether the
    phase is long enough for its own energy to be known. The energies of short ones are shares of what was read around
    them: good enough to be summed, not to be compared.
    """
    starts, ends = phases["start_s"].to_numpy(float), phases["end_s"].to_numpy(float)
    duration = ends - starts
    energy = integrated_energy_j(time_s, power_w, starts, ends, longest_gap_s=longest_gap_s)
    readings, _ = checked(time_s, power_w)
    shortest_s = LEAST_READINGS / measured_rate_hz(readings)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(duration > 0, energy / duration, np.nan)
    return phases.assign(
        time_s=duration,
        energy_j=energy,
        energy_counter_j=counted_energy_j(counter_time_s, counter_j, starts, ends),
        power_w=power,
        told=duration >= shortest_s,
    )


def energy_of_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean, deviation and range of time, energy and energy-delay product over runs of one program.

    Parameters
    ----------
    runs
        One row a run, with columns `time_s` and `energy_j`.

    Returns
    -------
    Rows `time_s`, `energy_j`, `energy_delay_product_j_s`; columns `mean`, `deviation` (of a sample; NaN for one run),
    `least`, `most` and `runs`.
    """
    product = energy_delay_product_j_s(runs["energy_j"], runs["time_s"])
    table = runs[["time_s", "energy_j"]].assign(energy_delay_product_j_s=product)
    told = table.agg(["mean", "std", "min", "max", "count"]).T
    told.columns = pd.Index(["mean", "deviation", "least", "most", "runs"])
    return told.astype({"runs": int})
