"""How far predictions are from what was measured, intervals that follow from it, and the regret of choices.

There is one type of interval: two factors on a prediction. What differs is for whom it is made: for one more operation
of a class (`class_intervals`), or for a row of a new group, such as a network never measured (`grouped_interval`).
Residuals are log(measured / predicted). Where rows are known to err unequally, residuals divided by each row's scale
give an interval for a scale of 1, and `Interval.factors` takes the scale of the row that is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.schema.execution import ExecutionSettings

Floats = NDArray[np.float64]

COVERAGE = 0.9
"""Share of measurements that an interval is to contain."""
NORMAL_90 = 1.645
"""Standard deviations from the mean within which so many lie, where errors are normal."""

GROUPS_OF_A_CLASS = 40
"""Groups from which on an operation class has an interval of its own: two lie beyond each end. Rows of one group, at
several clocks, err alike and do not count for more."""

ANY_CLASS = ""
"""Stands for all classes without an entry of their own."""

CONFORMAL = "conformal"
STUDENT_T = "student_t"

SPREAD_FLOOR = 0.02
"""Added to the spread of a forest's trees: where they agree, measuring and cards still differ."""

_ROUNDING = 1e-12


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


@dataclass(frozen=True)
class Interval:
    """Factors on a prediction between which the measured value lies with probability `COVERAGE`.

    Attributes
    ----------
    lower, upper
        The factors, for a scale of 1.
    method
        `conformal`, or `student_t` where the groups are too few for it.
    groups
        How many it was made from.
    """

    lower: float
    upper: float
    method: str = CONFORMAL
    groups: int = 0

    def factors(self, scale: float | Floats = 1.0) -> tuple[Any, Any]:
        """Lower and upper factor for rows that err by so much, relative to those the interval was made from."""
        return self.lower**scale, self.upper**scale

    def around(self, value: float, scale: float = 1.0) -> tuple[float, float]:
        """Ends of the interval around a prediction, for a scale."""
        lower, upper = self.factors(scale)
        return float(value * lower), float(value * upper)


Intervals = Mapping[str, Interval]
"""Operation class to interval, `ANY_CLASS` for those without one of their own."""


def conformal_interval(log_residuals: Floats, groups: int = 0) -> Interval:
    """Interval from residuals of held-out groups (Vovk, Ann. Math. Artif. Intell. 74, 2015: cross-conformal).

    The (1 − coverage)/2 quantiles on both sides with the finite-sample correction; the extremes where rows are few.
    `log_residuals` are of predictions by folds that did not see the row; shape (rows,), at least one row.
    """
    ordered = np.sort(log_residuals)
    count = ordered.size
    below = math.floor(round((count + 1) * (1 - COVERAGE) / 2, 9))  # 5, where floating point has 4.999…
    low, high = max(below, 1) - 1, min(count + 1 - below, count) - 1
    return Interval(float(np.exp(ordered[low])), float(np.exp(ordered[high])), CONFORMAL, groups)


def class_intervals(log_residuals: Floats, classes: NDArray[np.object_], groups: NDArray[Any]) -> dict[str, Interval]:
    """Interval of each class with at least `GROUPS_OF_A_CLASS` groups, and under `ANY_CLASS` that of the other classes.

    All are of the same rows, at least one; shape (rows,).
    """
    names = classes.astype(str)
    counts = pd.Series(groups).groupby(names).nunique()
    own = [str(name) for name in counts.index[counts >= GROUPS_OF_A_CLASS]]
    rest = ~np.isin(names, own)
    if not rest.any():
        rest = np.ones(len(names), dtype=bool)
    found = {name: conformal_interval(log_residuals[names == name], int(counts[name])) for name in own}
    return found | {ANY_CLASS: conformal_interval(log_residuals[rest], int(pd.Series(groups[rest]).nunique()))}


def grouped_interval(log_residuals: Floats, groups: NDArray[np.object_]) -> Interval:
    """Interval for one row of a new group; `lower` is 1 / `upper`.

    Rows of one group err for the same reasons and are not counted as independent: each group has one vote, shared by
    its rows, and the new group has one at infinity (Lee, Barber and Willett, "Distribution-free inference with
    hierarchical data", J. R. Stat. Soc. B 87, 2025). Fewer than 9 groups leave the quantile of 90 % at infinity. Then
    errors of groups are taken as normal around zero, their variance as the mean of the groups' mean squares: Student's
    t with as many degrees of freedom as groups, and never less than the largest error seen.

    `log_residuals` are of predictions without the row's group; shape (rows,) each, at least one row.
    """
    errors = np.abs(log_residuals)
    _, member, sizes = np.unique(groups.astype(str), return_inverse=True, return_counts=True)
    order = np.argsort(errors, kind="stable")
    votes = np.cumsum(1 / sizes[member[order]]) / (len(sizes) + 1)
    reached = np.flatnonzero(votes >= COVERAGE - 1e-9)
    if reached.size:
        return _symmetric(float(errors[order[reached[0]]]), CONFORMAL, len(sizes))
    # slow to import, and of no use where a model only predicts; `scipy.stats`, which says the same, is thrice as slow
    from scipy.special import stdtrit

    mean_squares = np.bincount(member, weights=errors**2) / sizes
    half_width = float(stdtrit(len(sizes), (1 + COVERAGE) / 2) * np.sqrt(mean_squares.mean()))
    return _symmetric(max(half_width, float(errors.max())), STUDENT_T, len(sizes))


def scale_of(spread: Floats) -> Floats:
    """How much rows err, relative to each other, from the spread of the logarithms that trees give; same shape."""
    return np.hypot(spread, SPREAD_FLOOR)


def interval_score(residuals: Floats, lower: Floats, upper: Floats) -> float:
    """Mean interval score (Gneiting and Raftery, J. Am. Stat. Assoc. 102, 2007) of logarithms: small is good.

    The width, and for each residual outside 2 / (1 − coverage) times how far it lies outside. Shape (rows,) each.
    """
    outside = np.maximum(lower - residuals, 0.0) + np.maximum(residuals - upper, 0.0)
    return float(np.mean(upper - lower + 2 / (1 - COVERAGE) * outside))


def log_ends(intervals: Intervals, classes: NDArray[Any]) -> tuple[Floats, Floats]:
    """Logarithms of the ends of the interval of each row's class, for a scale of 1; shape (rows,) each."""
    rest = intervals[ANY_CLASS]
    chosen = [intervals.get(name, rest) for name in classes.astype(str).tolist()]
    return np.log([one.lower for one in chosen]), np.log([one.upper for one in chosen])


def left_out_inside(
    log_residuals: Floats,
    left_out: NDArray[Any],
    intervals_of: Callable[[NDArray[np.bool_]], Intervals],
    classes: NDArray[np.object_] | None = None,
) -> Floats:
    """Whether each row lies in the interval that the rows not left out with it give: 1, 0, or nan without others.

    Parameters
    ----------
    log_residuals
        Shape (rows,).
    left_out
        Rows with the same value are left out together: a fold, or a group; shape (rows,).
    intervals_of
        Intervals made from some of the rows.
    classes
        Operation class of each row; None where all have the interval of `ANY_CLASS`.
    """
    inside = np.full(log_residuals.size, np.nan)
    names = np.full(log_residuals.size, ANY_CLASS) if classes is None else classes
    together = pd.factorize(left_out)[0]
    for number in range(together.max(initial=-1) + 1):
        own = together == number
        if not own.all():
            lower, upper = log_ends(intervals_of(~own), names[own])
            residuals = log_residuals[own]
            inside[own] = (residuals >= lower - _ROUNDING) & (residuals <= upper + _ROUNDING)
    return inside


def left_out_coverage(
    log_residuals: Floats, groups: NDArray[np.object_], interval_of: Callable[[Floats, NDArray[np.object_]], Interval]
) -> float | None:
    """Share of rows inside the interval that the other groups give; None where there is one group."""

    def of_others(rows: NDArray[np.bool_]) -> Intervals:
        return {ANY_CLASS: interval_of(log_residuals[rows], groups[rows])}

    inside = left_out_inside(log_residuals, groups, of_others)
    return None if np.isnan(inside).all() else float(np.nanmean(inside))


def _symmetric(half_width: float, method: str, groups: int) -> Interval:
    return Interval(float(np.exp(-half_width)), float(np.exp(half_width)), method, groups)


OBJECTIVES = ("time", "energy", "edp")


def objective_of(objective: str, time_s: Any, energy_j: Any) -> Any:
    """Value to be made small: time in s, energy in J, or their product (EDP) in J·s.

    ValueError if there is no such objective.
    """
    match objective:
        case "time":
            return time_s
        case "energy":
            return energy_j
        case "edp":
            return time_s * energy_j
    raise ValueError(f"objective {objective!r}: choose {', '.join(OBJECTIVES)}")


@dataclass(frozen=True)
class Regrets:
    """Of one GPU's networks in one pass under one execution setting, for one objective.

    Attributes
    ----------
    pass_, execution, objective
        Of what.
    at_points
        What a network's objective is over the least measured one, minus one: networks by operating points.
    predicted
        Position of the operating point that prediction chooses; shape (networks,).
    """

    pass_: str
    execution: ExecutionSettings
    objective: str
    at_points: pd.DataFrame
    predicted: NDArray[np.intp]

    @property
    def fixed(self) -> int:
        """Position of the operating point that is best for all networks alike: of least mean regret."""
        return int(self.at_points.to_numpy(float).mean(axis=0).argmin())

    def of(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Regret of each network at the position chosen for it; both of shape (networks,)."""
        return np.take_along_axis(self.at_points.to_numpy(np.float64), chosen[:, None], axis=1)[:, 0]


def regrets(rows: pd.DataFrame) -> Iterator[Regrets]:
    """Regrets of each pass, execution setting and objective with at least two operating points.

    Parameters
    ----------
    rows
        One GPU's compositions from predicted operations, with the measured values beside them, see
        `networks.VALIDATION_SCHEMA`. Networks that lack one of the operating points do not count.
    """
    for (pass_, execution), group in rows.groupby(["pass", "execution"]):
        for objective in OBJECTIVES:
            measured, predicted = (
                group.assign(value=objective_of(objective, *(group[name] for name in names)))
                .pivot_table(index="network_id", columns="point", values="value", dropna=False)
                for names in (("measured_time_s", "measured_energy_j"), ("time_s", "energy_j"))
            )  # fmt: skip
            # an objective may be missing at a point, as energy is where the time alone was measured
            points = measured.notna().any() & predicted.notna().any()
            measured, predicted = measured.loc[:, points], predicted.loc[:, points]
            complete = measured.notna().all(axis=1) & predicted.notna().all(axis=1)
            if not complete.any() or measured.shape[1] < 2:
                continue
            measured = measured[complete]
            at_points = measured.div(measured.min(axis=1), axis=0) - 1
            chosen = predicted[complete].to_numpy(float).argmin(axis=1)
            yield Regrets(str(pass_), ExecutionSettings(str(execution)), objective, at_points, chosen)
