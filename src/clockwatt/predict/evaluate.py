"""What held-out predictions say of a predictor: errors, and intervals with the share of rows that they contain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.crossval import ANY_CLASS, Interval, class_intervals, held_out_inside
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.metrics import metrics, metrics_by
from clockwatt.predict.predictors import TARGETS
from clockwatt.predict.problem import Problem


@dataclass(frozen=True)
class Held:
    """Predictions of every measured row by a predictor that never saw its group.

    Attributes
    ----------
    predictions
        Columns `TARGETS`; shape (rows, targets). Missing for rows without a training fold.
    fold
        Fold of each row; shape (rows,).
    """

    predictions: pd.DataFrame
    fold: NDArray[np.int64]


def evaluate(problem: Problem, held: Held) -> tuple[dict[str, dict[str, Interval]], dict[str, Any]]:
    """Judge predictions on the rows that may be learnt from.

    Returns
    -------
    intervals
        Target to operation class to interval; `ANY_CLASS` for classes with few rows.
    report
        Errors of each target, over all and by class, and its intervals with their coverage of held-out groups.
    """
    intervals: dict[str, dict[str, Interval]] = {}
    report: dict[str, Any] = {"targets": {}, "classes": {}, "intervals": {}}
    judged = problem.usable & held.predictions.notna().all(axis=1).to_numpy(bool)
    classes = problem.rows.loc[judged, OPERATION_CLASS]
    names, groups = classes.to_numpy(object), problem.rows.loc[judged, "group"].to_numpy(object)
    for target in TARGETS:
        measured = problem.rows.loc[judged, target].to_numpy(float)
        predicted = held.predictions.loc[judged, target].to_numpy(float)
        report["targets"][target] = metrics(measured, predicted)
        report["classes"][target] = metrics_by(classes, measured, predicted)
        if judged.any():
            residuals = np.log(measured / predicted)
            intervals[target] = class_intervals(residuals, names, groups)
            inside = pd.Series(held_out_inside(residuals, names, groups, held.fold[judged]))
            report["intervals"][target] = {
                **_described(intervals[target][ANY_CLASS], inside),
                "classes": {
                    str(name): _described(intervals[target].get(str(name), intervals[target][ANY_CLASS]), own)
                    for name, own in inside.groupby(names)
                },
            }
    return intervals, report


def _described(interval: Interval, inside: pd.Series) -> dict[str, float | None]:
    coverage = None if inside.isna().all() else float(inside.mean())
    return {"lower": interval.lower, "upper": interval.upper, "held_out_coverage": coverage}
