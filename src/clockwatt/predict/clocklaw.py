"""How time and power of an operation depend on the SM clock: time a/f + b, power p0 + c1·f + c4·f⁴, nothing negative.

The part of the time that follows the clock and the part that memory sets; power of leakage and memory, of switching at
a constant voltage, and of switching at a voltage that is flat at low clocks and rises steeply at high ones (on a V100
sweep f⁴ misses by 3.2 %, f³ by 3.7 %). Few parameters, so that three or four measured clocks give the others, where a
forest only repeats what it has seen.

A card has regimes that no such law knows: a power cap that holds the clock down, a memory that slows below some clock.
There the law misses what was measured, and by how much is carried over to the clocks between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

POWER_CLOCKS = 3
"""Clocks that both laws need at least: as many as that of power has coefficients."""


def time_terms(clock_mhz: Floats) -> Floats:
    """Terms of the law of time; shape (clocks,) to (clocks, 2)."""
    return np.column_stack([1 / clock_mhz, np.ones_like(clock_mhz)])


def power_terms(clock_mhz: Floats) -> Floats:
    """Terms of the law of power; shape (clocks,) to (clocks, 3)."""
    return np.column_stack([np.ones_like(clock_mhz), clock_mhz, clock_mhz**4])


@dataclass(frozen=True)
class ClockLaw:
    """A law for each of many operations, and what it misses at the clocks that were measured.

    Attributes
    ----------
    terms
        `time_terms` or `power_terms`.
    coefficients
        Shape (operations, coefficients).
    clocks_mhz
        Measured, ascending; shape (clocks,).
    log_residuals
        log(measured / law) there; shape (operations, clocks).
    """

    terms: Callable[[Floats], Floats]
    coefficients: Floats
    clocks_mhz: Floats
    log_residuals: Floats

    @classmethod
    def fit(cls, terms: Callable[[Floats], Floats], clocks_mhz: Floats, values: Floats) -> Self:
        """Fit positive values at ascending clocks; shapes (clocks,) and (operations, clocks).

        Raises
        ------
        ValueError
            If there are fewer clocks than the law has coefficients.
        """
        coefficients = fit_law(terms(clocks_mhz), values)
        return cls(terms, coefficients, clocks_mhz, np.log(values / evaluate_law(coefficients, terms(clocks_mhz))))

    def at(self, clock_mhz: float) -> Floats:
        """Values at one clock; shape (operations,).

        At a measured clock what was measured; between two the law, times what it misses there, interpolated over the
        logarithm of the clock; outside, times what it misses at the nearest.
        """
        position = np.interp(np.log(clock_mhz), np.log(self.clocks_mhz), np.arange(len(self.clocks_mhz)))
        below = min(int(position), len(self.clocks_mhz) - 2)
        share = position - below
        missed = (1 - share) * self.log_residuals[:, below] + share * self.log_residuals[:, below + 1]
        law = evaluate_law(self.coefficients, self.terms(np.array([float(clock_mhz)])))[:, 0]
        values: Floats = law * np.exp(missed)
        return values


def fit_law(terms: Floats, values: Floats) -> Floats:
    """Non-negative coefficients with the least sum of squared relative errors.

    With two or three coefficients the active set of the non-negative least-squares problem (Lawson and Hanson, Solving
    Least Squares Problems, 1974) is found by trying all of them, for all operations at once.

    Parameters
    ----------
    terms
        Of the law at each clock; shape (clocks, coefficients).
    values
        Positive, of each operation at each clock; shape (operations, clocks).

    Returns
    -------
    numpy.ndarray
        Shape (operations, coefficients).

    Raises
    ------
    ValueError
        If there are fewer clocks than coefficients.
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
    """Values of laws; shapes (operations, coefficients) and (clocks, coefficients) to (operations, clocks)."""
    values: Floats = coefficients @ terms.T
    return values
