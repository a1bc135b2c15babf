"""What held-out predictions say of a predictor: errors, and intervals with the share of rows that they contain."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.evaluation.intervals import (
    ANY_CLASS,
    Interval,
    class_intervals,
    grouped_interval,
    left_out_inside,
)
from clockwatt.predict.evaluation.metrics import metrics, metrics_by
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED, MEASURED_WHOLE

WHOLE_QUANTITIES = ("time_s", "energy_j", "power_w")
"""What whole networks have an interval of, each from its own residuals."""


@dataclass(frozen=True)
class LeftOutPredictions:
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


def judge_operations(
    data: TrainingData, left_out: LeftOutPredictions
) -> tuple[dict[str, dict[str, Interval]], dict[str, Any]]:
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
    for target in TARGETS:
        known = left_out.predictions[target].notna() & data.rows[target].notna()
        judged = data.usable & known.to_numpy(bool)
        classes = data.rows.loc[judged, OPERATION_CLASS]
        names, groups = classes.to_numpy(object), pd.factorize(data.rows.loc[judged, "group"])[0]
        measured = data.rows.loc[judged, target].to_numpy(float)
        predicted = left_out.predictions.loc[judged, target].to_numpy(float)
        report["targets"][target] = metrics(measured, predicted)
        report["classes"][target] = metrics_by(classes, measured, predicted)
        if judged.any():
            residuals = np.log(measured / predicted)
            intervals[target] = class_intervals(residuals, names, groups)
            made = functools.partial(_class_intervals_of, residuals, names, groups)
            inside = pd.Series(left_out_inside(residuals, left_out.fold[judged], made, names))
            report["intervals"][target] = {
                **_described(intervals[target][ANY_CLASS], inside),
                "classes": {
                    str(name): _described(intervals[target].get(str(name), intervals[target][ANY_CLASS]), own)
                    for name, own in inside.groupby(names)
                },
            }
    return intervals, report


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
            made = functools.partial(_network_interval_of, residuals, networks)
            inside = left_out_inside(residuals, networks, made)
            intervals[name] = grouped_interval(residuals, networks)
            coverage = None if np.isnan(inside).all() else float(np.nanmean(inside))
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
    """Errors on operations that only the network left out calls; `rows` of `leave_out.LEFT_OUT_SCHEMA`, one pass."""
    unseen = rows[rows["unseen"].astype(bool) & rows["learnt"].astype(bool)]
    report: dict[str, Any] = {"networks": sorted(set(rows["network"])), "targets": {}, "classes": {}}
    for target in TARGETS:
        measured, predicted = (unseen[name].to_numpy(float) for name in (target, BY_CORRECTED[target].predicted))
        report["targets"][target] = metrics(measured, predicted)
        report["classes"][target] = metrics_by(unseen[OPERATION_CLASS], measured, predicted)
    return report


def _class_intervals_of(
    residuals: NDArray[np.float64], classes: NDArray[np.object_], groups: NDArray[np.intp], rows: NDArray[np.bool_]
) -> dict[str, Interval]:
    return class_intervals(residuals[rows], classes[rows], groups[rows])


def _network_interval_of(
    residuals: NDArray[np.float64], networks: NDArray[np.object_], rows: NDArray[np.bool_]
) -> dict[str, Interval]:
    return {ANY_CLASS: grouped_interval(residuals[rows], networks[rows])}


def _described(interval: Interval, inside: pd.Series) -> dict[str, float | None]:
    coverage = None if inside.isna().all() else float(inside.mean())
    return {"lower": interval.lower, "upper": interval.upper, "held_out_coverage": coverage}
