"""What held-out predictions say of a predictor: errors, and intervals with the share of rows that they contain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.crossval import ANY_CLASS, Interval, class_intervals, held_out_inside
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.grouped import GroupedInterval, grouped_interval, left_out_inside
from clockwatt.predict.metrics import metrics, metrics_by
from clockwatt.predict.predictors import TARGETS
from clockwatt.predict.problem import Problem
from clockwatt.schema.costs import BY_CORRECTED

WHOLE_QUANTITIES = ("time_s", "energy_j", "power_w")
"""What whole networks have an interval of, each from its own residuals."""


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


def network_intervals(rows: pd.DataFrame) -> tuple[dict[str, GroupedInterval], dict[str, Any]]:
    """Intervals of whole networks from their own residuals, a group being a network with all its inputs and dtypes.

    Parameters
    ----------
    rows
        Complete compositions of one GPU, pass and source, see `wholes.VALIDATION_SCHEMA`.

    Returns
    -------
    intervals
        Each of `WHOLE_QUANTITIES` that is known of any row.
    report
        The same, with the share of rows inside the interval that the other networks give.
    """
    intervals: dict[str, GroupedInterval] = {}
    report: dict[str, Any] = {}
    for name in WHOLE_QUANTITIES:
        measured, composed = rows[f"measured_{name}"].to_numpy(float), rows[name].to_numpy(float)
        known = (measured > 0) & (composed > 0)
        if known.any():
            residuals = np.log(measured[known] / composed[known])
            networks = rows.loc[known, "network"].to_numpy(object)
            inside = left_out_inside(residuals, networks)
            intervals[name] = grouped_interval(residuals, networks)
            coverage = None if np.isnan(inside).all() else float(np.nanmean(inside))
            report[name] = {**asdict(intervals[name]), "left_out_coverage": coverage}
    return intervals, report


def network_errors(rows: pd.DataFrame) -> dict[str, Any]:
    """Errors of compositions, by the pipeline and as plain sums; those that lack a cost do not count."""
    complete = rows[rows["calls_without_cost"] == 0]
    return {
        name: metrics(complete[f"measured_{quantity}"].to_numpy(float), complete[name].to_numpy(float))
        for name, quantity in (
            ("time_s", "time_s"),
            ("plain_time_s", "time_s"),
            ("energy_j", "energy_j"),
            ("plain_energy_j", "energy_j"),
        )
    }


def judge_left_out(rows: pd.DataFrame) -> dict[str, Any]:
    """Errors on operations that only the network left out calls; `rows` of `leaveout.LEFT_OUT_SCHEMA`, one pass."""
    unseen = rows[rows["unseen"].astype(bool) & rows["learnt"].astype(bool)]
    report: dict[str, Any] = {"networks": sorted(set(rows["network"])), "targets": {}, "classes": {}}
    for target in TARGETS:
        measured, predicted = (unseen[name].to_numpy(float) for name in (target, BY_CORRECTED[target].predicted))
        report["targets"][target] = metrics(measured, predicted)
        report["classes"][target] = metrics_by(unseen[OPERATION_CLASS], measured, predicted)
    return report


def _described(interval: Interval, inside: pd.Series) -> dict[str, float | None]:
    coverage = None if inside.isna().all() else float(inside.mean())
    return {"lower": interval.lower, "upper": interval.upper, "held_out_coverage": coverage}
