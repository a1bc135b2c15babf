"""DVFS (clock) model of an operation: time a/f + b, power p0 + c1·f + c4·f⁴ with SM clock f, coefficients ≥ 0.

One part of the time depends on the clock, one on the memory. The power has parts for leakage and memory, for switching
at a constant voltage, and for switching at a voltage that is flat at low clocks and rises steeply at high ones. There
are few parameters, so three or four measured clocks suffice. A forest cannot extrapolate beyond the clocks in its
training data.

Some regimes deviate from the model: a power cap that lowers the clock, or a memory that slows below some clock. The
residuals at measured clocks are interpolated to the clocks between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema.costs import (
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_EAGER_CORRECTED,
    TIME_HOST_CORRECTED,
)

Floats = NDArray[np.float64]

POWER_CLOCKS = 3
"""Fewest clocks for both models: as many as that of power has coefficients."""

LEARNT_CLOCKS = 6
"""Most clocks to train on, which bounds the time of a fit; the clock model interpolates the others."""

_FOLLOWING_THE_CLOCK = (TIME_DEVICE_CORRECTED, TIME_EAGER_CORRECTED)


def time_terms(clock_mhz: Floats) -> Floats:
    """Return the terms of the time model; shape (clocks,) to (clocks, 2)."""
    return np.column_stack([1 / clock_mhz, np.ones_like(clock_mhz)])


def power_terms(clock_mhz: Floats) -> Floats:
    """Return the terms of the power model; shape (clocks,) to (clocks, 3)."""
    return np.column_stack([np.ones_like(clock_mhz), clock_mhz, clock_mhz**4])


@dataclass(frozen=True)
class ClockLaw:
    """Clock models of many operations, and their residuals at the measured clocks.

    Attributes
    ----------
    terms
        `time_terms` or `power_terms`.
    coefficients
        Shape (operations, coefficients).
    clocks_mhz
        Measured clocks, ascending; shape (clocks,).
    log_residuals
        log(measured / model) there; shape (operations, clocks).
    """

    terms: Callable[[Floats], Floats]
    coefficients: Floats
    clocks_mhz: Floats
    log_residuals: Floats

    @classmethod
    def fit(cls, terms: Callable[[Floats], Floats], clocks_mhz: Floats, values: Floats) -> Self:
        """Fit positive values at ascending clocks; shapes (clocks,) and (operations, clocks).

        ValueError if there are fewer clocks than coefficients.
        """
        coefficients = fit_law(terms(clocks_mhz), values)
        return cls(terms, coefficients, clocks_mhz, np.log(values / evaluate_law(coefficients, terms(clocks_mhz))))

    def at(self, clock_mhz: float) -> Floats:
        """Return values at one clock; shape (operations,).

        At a measured clock, the measured value. Between two, the model times the residual, interpolated over the
        logarithm of the clock. Outside, the model times the residual at the nearest clock.
        """
        position = np.interp(np.log(clock_mhz), np.log(self.clocks_mhz), np.arange(len(self.clocks_mhz)))
        below = min(int(position), len(self.clocks_mhz) - 2)
        share = position - below
        missed = (1 - share) * self.log_residuals[:, below] + share * self.log_residuals[:, below + 1]
        law = evaluate_law(self.coefficients, self.terms(np.array([float(clock_mhz)])))[:, 0]
        values: Floats = law * np.exp(missed)
        return values


def fit_law(terms: Floats, values: Floats) -> Floats:
    """Return non-negative coefficients with the least sum of squared relative errors.

    With two or three coefficients the active set of the non-negative least-squares problem (Lawson and Hanson, Solving
    Least Squares Problems, 1974) is found by trying all of them, for all operations at once.

    Takes the model's terms at each clock, shape (clocks, coefficients), and positive values of each operation there,
    shape (operations, clocks). Returns shape (operations, coefficients). ValueError if there are fewer clocks than
    coefficients.
    """
    clocks, coefficients = terms.shape
    if clocks < coefficients:
        raise ValueError(f"{coefficients} coefficients need as many clocks; there are {clocks}")
    scale = np.abs(terms).max(axis=0)
    weighted = (terms / scale)[None, :, :] / values[:, :, None]
    best = np.zeros((len(values), coefficients))
    least = np.full(len(values), np.inf)
    for size in range(1, coefficients + 1):
        for chosen in itertools.combinations(range(coefficients), size):
            solution = np.zeros_like(best)
            part = weighted[:, :, list(chosen)]
            solution[:, list(chosen)] = np.linalg.pinv(part).sum(axis=2)  # the right-hand side is all ones
            error = np.sum((np.einsum("nkm,nm->nk", weighted, solution) - 1) ** 2, axis=1)
            better = (solution >= 0).all(axis=1) & (error < least)
            best[better], least[better] = solution[better], error[better]
    laws: Floats = best / scale
    return laws


def evaluate_law(coefficients: Floats, terms: Floats) -> Floats:
    """Evaluate models; shapes (operations, coefficients) and (clocks, coefficients) to (operations, clocks)."""
    values: Floats = coefficients @ terms.T
    return values


def neighbours(point: OperatingPoint, measured: Sequence[str]) -> list[str]:
    """Return measured operating points that differ from `point` in the locked SM clock only."""
    parsed = {name: OperatingPoint.parse(name) for name in measured}
    return [
        name
        for name, other in parsed.items()
        if other.sm_clock_mhz is not None
        and (other.memory_clock_mhz, other.power_limit_w) == (point.memory_clock_mhz, point.power_limit_w)
    ]


def learnt_points(measured: Sequence[str]) -> list[str]:
    """Return operating points to train on: all, or `LEARNT_CLOCKS` of many SM clocks, with the lowest and highest."""
    learnt = []
    for name in measured:
        point = OperatingPoint.parse(name)
        row = sorted(neighbours(point, measured), key=lambda other: OperatingPoint.parse(other).sm_clock_mhz or 0)
        if point.sm_clock_mhz is not None and len(row) > LEARNT_CLOCKS:
            chosen = np.linspace(0, len(row) - 1, LEARNT_CLOCKS).round().astype(int)
            if row.index(name) not in chosen:
                continue
        learnt.append(name)
    return learnt


class CostLaw:
    """Clock models of all costs of operations, for any SM clock.

    Device and back-to-back time follow the time model. Power follows the power model, as does dynamic power, from which
    dynamic energy is computed. Host time is the mean over clocks.

    Parameters
    ----------
    at_clocks
        SM clock in MHz to costs with columns `TARGETS`, positive or missing, the same operations in the same order; at
        least `POWER_CLOCKS` clocks, else ValueError. A cost that is missing at one clock is missing at all.
    """

    def __init__(self, at_clocks: Mapping[float, pd.DataFrame]) -> None:
        clocks = np.array(sorted(at_clocks), dtype=float)
        self._index = at_clocks[clocks[0]].index
        costs = np.stack([at_clocks[clock][list(TARGETS)].to_numpy(float) for clock in clocks], axis=1)
        self._unknown = ~np.isfinite(costs).all(axis=1)
        costs[np.broadcast_to(self._unknown[:, None], costs.shape)] = 1.0  # placeholder: the result is set to missing
        values = dict(zip(TARGETS, np.moveaxis(costs, 2, 0), strict=True))
        self._host_s = values[TIME_HOST_CORRECTED].mean(axis=1)
        # all models of one kind at once: calls take most of a fit's time
        times = [values[name] for name in _FOLLOWING_THE_CLOCK]
        self._times = ClockLaw.fit(time_terms, clocks, np.concatenate(times))
        powers = [values[POWER_CORRECTED], values[ENERGY_DYNAMIC_CORRECTED] / values[TIME_DEVICE_CORRECTED]]
        self._powers = ClockLaw.fit(power_terms, clocks, np.concatenate(powers))

    def at(self, clock_mhz: float) -> pd.DataFrame:
        """Return costs at a clock, with the columns and index of the input."""
        result = dict(zip(_FOLLOWING_THE_CLOCK, np.split(self._times.at(clock_mhz), 2), strict=True))
        result[POWER_CORRECTED], dynamic_w = np.split(self._powers.at(clock_mhz), 2)
        result[TIME_HOST_CORRECTED] = self._host_s
        result[ENERGY_DYNAMIC_CORRECTED] = dynamic_w * result[TIME_DEVICE_CORRECTED]
        values = np.column_stack([result[name] for name in TARGETS])
        values[self._unknown] = np.nan
        return pd.DataFrame(values, index=self._index, columns=list(TARGETS))
