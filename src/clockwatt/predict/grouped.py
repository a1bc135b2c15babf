"""Intervals for a new group, such as a network that was never measured, from the residuals of other groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clockwatt.predict.crossval import COVERAGE

CONFORMAL = "conformal"
STUDENT_T = "student_t"


@dataclass(frozen=True)
class GroupedInterval:
    """Factors on a prediction between which the measured value of a new group lies with probability `COVERAGE`.

    Attributes
    ----------
    lower, upper
        The factors; `lower` is 1 / `upper`.
    method
        `conformal`, or `student_t` where the groups are too few for it.
    groups
        How many there were.
    """

    lower: float
    upper: float
    method: str
    groups: int


def grouped_interval(log_residuals: NDArray[np.float64], groups: NDArray[np.object_]) -> GroupedInterval:
    """Interval for one row of a new group.

    Rows of one group err for the same reasons and are not counted as independent: each group has one vote, shared by
    its rows, and the new group has one at infinity (Lee, Barber and Willett, "Distribution-free inference with
    hierarchical data", J. R. Stat. Soc. B 87, 2025). Fewer than 9 groups leave the quantile of 90 % at infinity. Then
    errors of groups are taken as normal around zero, their variance as the mean of the groups' mean squares: Student's
    t with as many degrees of freedom as groups, and never less than the largest error seen.

    Parameters
    ----------
    log_residuals
        log(measured / predicted), each predicted without its group; shape (rows,), at least one row.
    groups
        Group of each row; shape (rows,).
    """
    errors = np.abs(log_residuals)
    _, member, sizes = np.unique(groups.astype(str), return_inverse=True, return_counts=True)
    half_width = _conformal(errors, member, sizes)
    if half_width is not None:
        return _symmetric(half_width, CONFORMAL, len(sizes))
    # slow to import, and of no use where a model only predicts
    from scipy.stats import t

    mean_squares = np.bincount(member, weights=errors**2) / sizes
    half_width = float(t.ppf((1 + COVERAGE) / 2, len(sizes)) * np.sqrt(mean_squares.mean()))
    return _symmetric(max(half_width, float(errors.max())), STUDENT_T, len(sizes))


def left_out_inside(log_residuals: NDArray[np.float64], groups: NDArray[np.object_]) -> NDArray[np.float64]:
    """Whether each row lies in the interval that the other groups give: 1, 0, or nan where there is no other group.

    Parameters
    ----------
    log_residuals, groups
        See `grouped_interval`; shape (rows,).
    """
    inside = np.full(log_residuals.size, np.nan)
    for group in sorted({str(name) for name in groups}):
        own = groups.astype(str) == group
        if not own.all():
            interval = grouped_interval(log_residuals[~own], groups[~own])
            inside[own] = np.abs(log_residuals[own]) <= np.log(interval.upper) + 1e-12
    return inside


def _conformal(errors: NDArray[np.float64], member: NDArray[np.intp], sizes: NDArray[np.intp]) -> float | None:
    """The error at which groups, with one vote each and one for the new group, reach 90 %; None if they never do."""
    order = np.argsort(errors, kind="stable")
    votes = np.cumsum(1 / sizes[member[order]]) / (len(sizes) + 1)
    reached = np.flatnonzero(votes >= COVERAGE - 1e-9)
    return float(errors[order[reached[0]]]) if reached.size else None


def _symmetric(half_width: float, method: str, groups: int) -> GroupedInterval:
    return GroupedInterval(float(np.exp(-half_width)), float(np.exp(half_width)), method, groups)
