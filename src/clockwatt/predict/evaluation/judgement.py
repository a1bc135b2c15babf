"""What held-out predictions say of a predictor: errors, and intervals with the share of rows that they contain."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.evaluation.intervals import (
    ANY_CLASS,
    GROUPS_OF_A_CLASS,
    Interval,
    class_intervals,
    grouped_interval,
    interval_score,
    left_out_coverage,
    left_out_inside,
    scale_of,
)
from clockwatt.predict.evaluation.leave_out import LeftOutPredictions
from clockwatt.predict.evaluation.metrics import metrics, metrics_by
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.cost_predictor import TARGETS
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED, MEASURED_WHOLE

WHOLE_QUANTITIES = ("time_s", "energy_j", "power_w")
"""What whole networks have an interval of, each from its own residuals."""


def judge_operations(
    data: TrainingData, left_out: LeftOutPredictions, elsewhere: LeftOutPredictions | None = None
) -> tuple[dict[str, dict[str, Interval]], dict[str, Any]]:
    """Judge predictions on the rows that may be learnt from.

    Parameters
    ----------
    data
        Rows.
    left_out
        Each predicted without its group.
    elsewhere
        Each predicted from operations of another origin alone. Intervals of a cost are calibrated on these where each
        origin has enough groups with it, else on the former.

    Returns
    -------
    intervals
        Target to operation class to interval for a scale of 1, see `intervals.scale_of`; `ANY_CLASS` for classes with
        few rows.
    report
        Errors of each target, over all and by class, and its intervals with their coverage of held-out groups, median
        half-width and interval score.
    """
    intervals: dict[str, dict[str, Interval]] = {}
    report: dict[str, Any] = {"targets": {}, "classes": {}, "intervals": {}}
    for target in TARGETS:
        rows = _judged(data, left_out, target)
        measured, predicted = (table.loc[rows, target].to_numpy(float) for table in (data.rows, left_out.predictions))
        report["targets"][target] = metrics(measured, predicted)
        report["classes"][target] = metrics_by(data.rows.loc[rows, OPERATION_CLASS], measured, predicted)
        if rows.any():
            calibrated = None if elsewhere is None else _calibrated_elsewhere(data, elsewhere, target)
            intervals[target], report["intervals"][target] = _calibrated(data, left_out, target, rows, calibrated)
    return intervals, report


def _calibrated(
    data: TrainingData,
    left_out: LeftOutPredictions,
    target: str,
    rows: NDArray[np.bool_],
    elsewhere: dict[str, Interval] | None,
) -> tuple[dict[str, Interval], dict[str, Any]]:
    """Intervals of a target from rows that were left out, if there are none from `elsewhere`, and how good they are."""
    residuals, scale = _residuals(data, left_out, target, rows)
    standard, names = residuals / scale, data.rows.loc[rows, OPERATION_CLASS].to_numpy(object)
    groups = pd.factorize(data.rows.loc[rows, "group"])[0]

    def made(chosen: NDArray[np.bool_]) -> dict[str, Interval]:
        return elsewhere or class_intervals(standard[chosen], names[chosen], groups[chosen])

    intervals = made(np.ones(len(names), dtype=bool))
    inside = left_out_inside(standard, left_out.fold[rows], made, names)
    on = "held out groups" if elsewhere is None else "operations of another origin"
    return intervals, {"calibrated_on": on, **_intervals_judged(intervals, residuals, scale, inside, names)}


def _residuals(
    data: TrainingData, predicted: LeftOutPredictions, target: str, rows: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of measured over predicted, and their scales; shape (rows,) each."""
    measured, said, spread = (
        table.loc[rows, target].to_numpy(float) for table in (data.rows, predicted.predictions, predicted.spread)
    )
    return np.log(measured / said), scale_of(spread)


def _judged(data: TrainingData, left_out: LeftOutPredictions, target: str) -> NDArray[np.bool_]:
    """Rows that a prediction of a target can be judged by; shape (rows,)."""
    known = left_out.predictions[target].notna() & data.rows[target].notna()
    judged: NDArray[np.bool_] = data.usable & known.to_numpy(bool)
    return judged


def _calibrated_elsewhere(data: TrainingData, elsewhere: LeftOutPredictions, target: str) -> dict[str, Interval] | None:
    """Intervals of a target from predictions by operations of another origin; None where an origin has few groups.

    Classes that one origin alone has do not count: the predictor in use has seen them. Nor does to which side it was
    off, since that depends on what it learnt from: the intervals are symmetric.
    """
    judged = _judged(data, elsewhere, target)
    of_origin = data.rows[judged].groupby(elsewhere.fold[judged])[OPERATION_CLASS].agg(set)
    shared: set[str] = set.intersection(*of_origin) if len(of_origin) else set()
    judged &= data.rows[OPERATION_CLASS].isin(shared).to_numpy(bool)
    rows = data.rows[judged]
    groups = rows["group"].groupby(elsewhere.fold[judged]).nunique()
    if len(groups) < len(set(elsewhere.fold)) or len(groups) < 2 or groups.min() < GROUPS_OF_A_CLASS:
        return None
    residuals, scale = _residuals(data, elsewhere, target, judged)
    standard, classes = residuals / scale, rows[OPERATION_CLASS].to_numpy(object)
    both = (np.concatenate([one, one]) for one in (classes, pd.factorize(rows["group"])[0]))
    return class_intervals(np.concatenate([standard, -standard]), *both)


def _intervals_judged(
    intervals: dict[str, Interval],
    residuals: NDArray[np.float64],
    scale: NDArray[np.float64],
    inside: NDArray[np.float64],
    classes: NDArray[np.object_],
) -> dict[str, Any]:
    """What intervals are worth over all rows, and within each class."""
    chosen = [intervals.get(str(name), intervals[ANY_CLASS]) for name in classes]
    lower, upper = (
        np.log([getattr(one, side) for one in chosen]) * scale for side in ("lower", "upper")
    )  # fmt: skip

    def described(rows: NDArray[np.bool_]) -> dict[str, Any]:
        known = inside[rows][~np.isnan(inside[rows])]
        return {
            "lower": float(np.exp(np.median(lower[rows]))),
            "upper": float(np.exp(np.median(upper[rows]))),
            "held_out_coverage": float(known.mean()) if known.size else None,
            "median_half_width": float(np.median(np.expm1((upper[rows] - lower[rows]) / 2))),
            "interval_score": interval_score(residuals[rows], lower[rows], upper[rows]),
        }

    names = classes.astype(str)
    of_classes = {str(name): described(names == name) for name in np.unique(names)}
    return {**described(np.ones(len(names), dtype=bool)), "classes": of_classes}


def network_intervals(rows: pd.DataFrame) -> tuple[dict[str, Interval], dict[str, Any]]:
    """Intervals of whole networks from their own residuals, a group being a network with all its inputs and dtypes.

    Parameters
    ----------
    rows
        Complete compositions of one GPU, pass and source, see `networks.VALIDATION_SCHEMA`.

    Returns
    -------
    intervals
        Each of `WHOLE_QUANTITIES` that is known of any row.
    report
        The same, with the share of rows inside the interval that the other networks give.
    """
    intervals: dict[str, Interval] = {}
    report: dict[str, Any] = {}
    for name in WHOLE_QUANTITIES:
        measured, composed = rows[MEASURED_WHOLE[name]].to_numpy(float), rows[name].to_numpy(float)
        known = (measured > 0) & (composed > 0)
        if known.any():
            residuals = np.log(measured[known] / composed[known])
            networks = rows.loc[known, "network"].to_numpy(object)
            intervals[name] = grouped_interval(residuals, networks)
            coverage = left_out_coverage(residuals, networks, grouped_interval)
            report[name] = {**asdict(intervals[name]), "left_out_coverage": coverage}
    return intervals, report


def network_errors(rows: pd.DataFrame) -> dict[str, Any]:
    """Errors of compositions, by the pipeline and as plain sums; those that lack a cost do not count."""
    complete = rows[rows["calls_without_cost"] == 0]
    return {
        name: metrics(complete[MEASURED_WHOLE[quantity]].to_numpy(float), complete[name].to_numpy(float))
        for name, quantity in (
            ("time_s", "time_s"),
            ("plain_time_s", "time_s"),
            ("energy_j", "energy_j"),
            ("plain_energy_j", "energy_j"),
        )
    }


def judge_left_out(rows: pd.DataFrame) -> dict[str, Any]:
    """Errors on operations that only the network left out calls; `rows` of one pass, by `LEFT_OUT_SCHEMA`."""
    unseen = rows[rows["unseen"].astype(bool) & rows["learnt"].astype(bool)]
    report: dict[str, Any] = {"networks": sorted(set(rows["network"])), "targets": {}, "classes": {}}
    for target in TARGETS:
        measured, predicted = (unseen[name].to_numpy(float) for name in (target, BY_CORRECTED[target].predicted))
        report["targets"][target] = metrics(measured, predicted)
        report["classes"][target] = metrics_by(unseen[OPERATION_CLASS], measured, predicted)
    return report
