"""Cross-validation with grouped folds, and intervals from its residuals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.predictors import CostPredictor

COVERAGE = 0.9
"""Share of measurements that an interval is to contain."""

GROUPS_OF_A_CLASS = 40
"""Groups from which on an operation class has an interval of its own: two lie beyond each end. Rows of one group, at
several clocks, err alike and do not count for more."""

ANY_CLASS = ""
"""Stands for all classes without an entry of their own."""


@dataclass(frozen=True)
class CrossValidation:
    """Predictions of each row by a predictor that never saw its group.

    Attributes
    ----------
    predictions
        One column per target; shape (rows, targets). Missing for rows without a training fold.
    fold
        Fold of each row; shape (rows,).
    folds
        How many there are.
    """

    predictions: pd.DataFrame
    fold: NDArray[np.int64]
    folds: int


def grouped_folds(groups: pd.Series, folds: int, seed: int) -> NDArray[np.int64]:
    """Deal groups out to folds of nearly equal size.

    Parameters
    ----------
    groups
        Group of each row; shape (rows,).
    folds
        How many; fewer if there are fewer groups.
    seed
        Decides between groups of equal size.

    Returns
    -------
    numpy.ndarray
        Fold of each row; shape (rows,). The largest groups are dealt first, each to the smallest fold.
    """
    sizes = groups.value_counts(sort=False).sort_index()
    shuffled = sizes.iloc[np.random.default_rng(seed).permutation(len(sizes))]
    ordered = shuffled.sort_values(ascending=False, kind="stable")
    load = np.zeros(min(folds, len(sizes)))
    fold_of = {}
    for group, size in ordered.items():
        fold_of[group] = int(np.argmin(load))
        load[fold_of[group]] += size
    return np.array([fold_of[group] for group in groups], dtype=np.int64)


def cross_validate(
    make: Callable[[], CostPredictor],
    features: pd.DataFrame,
    targets: pd.DataFrame,
    groups: pd.Series,
    usable: NDArray[np.bool_],
    *,
    folds: int,
    seed: int,
) -> CrossValidation:
    """Predict every row with a predictor fitted on the usable rows of the other folds.

    Parameters
    ----------
    make
        Gives a fresh predictor.
    features
        From `features.features_at`; shape (rows, features).
    targets
        Shape (rows, targets); finite where usable.
    groups
        Rows of one group stay in one fold; shape (rows,).
    usable
        Which rows may be learnt from; all are predicted. Shape (rows,).
    folds
        How many, fewer if there are fewer groups.
    seed
        Of the folds.
    """
    fold = grouped_folds(groups, folds, seed)
    predictions = pd.DataFrame(np.nan, index=features.index, columns=targets.columns)
    count = int(fold.max()) + 1 if len(fold) else 0
    for number in range(count):
        held_out = fold == number
        training = usable & ~held_out
        if training.any():
            predictor = make().fit(features[training], targets[training])
            predictions.iloc[held_out] = predictor.predict(features[held_out]).to_numpy()
    return CrossValidation(predictions, fold, count)


@dataclass(frozen=True)
class Interval:
    """Factors on a prediction between which the measured value lies with probability `COVERAGE`."""

    lower: float
    upper: float


def conformal_interval(log_residuals: NDArray[np.float64]) -> Interval:
    """Interval from residuals of held-out groups (Vovk, Ann. Math. Artif. Intell. 74, 2015: cross-conformal).

    Parameters
    ----------
    log_residuals
        log(measured / predicted) of predictions by folds that did not see the row; shape (rows,), at least one row.

    Returns
    -------
    Interval
        The (1 − coverage)/2 quantiles on both sides with the finite-sample correction; the extremes where rows are few.
    """
    ordered = np.sort(log_residuals)
    count = ordered.size
    below = math.floor(round((count + 1) * (1 - COVERAGE) / 2, 9))  # 5, where floating point has 4.999…
    low, high = max(below, 1) - 1, min(count + 1 - below, count) - 1
    return Interval(float(np.exp(ordered[low])), float(np.exp(ordered[high])))


def class_intervals(
    log_residuals: NDArray[np.float64], classes: NDArray[np.object_], groups: NDArray[Any]
) -> dict[str, Interval]:
    """Interval of each class with at least `GROUPS_OF_A_CLASS` groups, and under `ANY_CLASS` that of the other classes.

    Parameters
    ----------
    log_residuals, classes, groups
        Of the same rows, at least one; shape (rows,).
    """
    counts = pd.Series(groups).groupby(classes).nunique()
    own = sorted(str(name) for name in counts.index[counts >= GROUPS_OF_A_CLASS])
    rest = ~np.isin(classes.astype(str), own)
    found = {name: conformal_interval(log_residuals[classes == name]) for name in own}
    return found | {ANY_CLASS: conformal_interval(log_residuals[rest] if rest.any() else log_residuals)}


def held_out_inside(
    log_residuals: NDArray[np.float64],
    classes: NDArray[np.object_],
    groups: NDArray[np.object_],
    fold: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Whether each row lies in the interval that the other folds give its class: 1, 0, or nan without other folds.

    Parameters
    ----------
    log_residuals, classes, groups, fold
        Of the same rows; shape (rows,).
    """
    inside = np.full(log_residuals.size, np.nan)
    numbers = pd.factorize(groups)[0]  # counted many times faster than names
    for number in np.unique(fold):
        own = np.flatnonzero(fold == number)
        others = fold != number
        if others.any():
            intervals = class_intervals(log_residuals[others], classes[others], numbers[others])
            bounds = [intervals.get(str(name), intervals[ANY_CLASS]) for name in classes[own]]
            lower, upper = (np.log([getattr(bound, side) for bound in bounds]) for side in ("lower", "upper"))
            inside[own] = (log_residuals[own] >= lower) & (log_residuals[own] <= upper)
    return inside
