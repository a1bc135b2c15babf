"""Evaluate a predictor on held-out predictions: errors, intervals and their coverage.

All functions but `judge_perceptrons` evaluate the forest alone, since training MLPs takes much longer. MLPs are trained
once more without a fifth of the groups. Their gain in accuracy there gives the factor by which the forest's intervals
of device time are too wide for both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.predict.evaluation.errors import (
    ANY_CLASS,
    COVERAGE,
    GROUPS_OF_A_CLASS,
    Floats,
    Interval,
    class_intervals,
    grouped_interval,
    interval_score,
    left_out_coverage,
    left_out_inside,
    log_ends,
    metrics,
    metrics_by,
    scale_of,
)
from clockwatt.predict.evaluation.leave_out import LeftOutPredictions, Make, Mask
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.predictors import LEFT_TO_TREES, TARGETS
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED, MEASURED_WHOLE, TIME_DEVICE_CORRECTED

WHOLE_QUANTITIES = ("time_s", "energy_j", "power_w")
"""Quantities of whole networks with an interval, each from its own residuals."""
_HELD_OUT = 0.2
"""Share of the groups held out to evaluate MLPs."""
_NARROWEST, _WIDEST = 0.5, 2.0
"""Bounds of `width`, since it is estimated from one random draw of groups."""


def judge_operations(
    data: TrainingData, left_out: LeftOutPredictions, elsewhere: LeftOutPredictions | None = None
) -> tuple[dict[str, dict[str, Interval]], dict[str, Any]]:
    """Evaluate predictions on the rows that may be trained on.

    Parameters
    ----------
    data
        Rows.
    left_out
        Predictions of each row without its group.
    elsewhere
        Predictions of each row by a predictor trained on operations of the other origin alone. Intervals of a cost are
        calibrated on these where each origin has enough groups with it, else on `left_out`.

    Returns
    -------
    intervals
        Target to operation class to interval for a scale of 1, see `errors.scale_of`; `ANY_CLASS` for classes with
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
    rows: Mask,
    elsewhere: dict[str, Interval] | None,
) -> tuple[dict[str, Interval], dict[str, Any]]:
    """Return intervals of a target, from `elsewhere` or else from held-out rows, and their quality."""
    residuals, scale = _residuals(data, left_out, target, rows)
    standard, names = residuals / scale, data.rows.loc[rows, OPERATION_CLASS].to_numpy(object)
    groups = pd.factorize(data.rows.loc[rows, "group"])[0]

    def made(chosen: Mask) -> dict[str, Interval]:
        return elsewhere or class_intervals(standard[chosen], names[chosen], groups[chosen])

    everywhere = np.ones(len(names), dtype=bool)
    intervals = made(everywhere)
    inside = left_out_inside(standard, left_out.fold[rows], made, names)
    lower, upper = (ends * scale for ends in log_ends(intervals, names))

    def described(chosen: Mask) -> dict[str, Any]:
        known = inside[chosen][~np.isnan(inside[chosen])]
        return {
            "lower": float(np.exp(np.median(lower[chosen]))),
            "upper": float(np.exp(np.median(upper[chosen]))),
            "held_out_coverage": float(known.mean()) if known.size else None,
            "median_half_width": float(np.median(np.expm1((upper[chosen] - lower[chosen]) / 2))),
            "interval_score": interval_score(residuals[chosen], lower[chosen], upper[chosen]),
        }

    return intervals, {
        "calibrated_on": "held out groups" if elsewhere is None else "operations of another origin",
        **described(everywhere),
        "classes": {str(name): described(names == name) for name in np.unique(names.astype(str))},
    }


def _residuals(data: TrainingData, predicted: LeftOutPredictions, target: str, rows: Mask) -> tuple[Floats, Floats]:
    """Return logarithms of measured over predicted, and their scales; shape (rows,) each."""
    measured, said, spread = (
        table.loc[rows, target].to_numpy(float) for table in (data.rows, predicted.predictions, predicted.spread)
    )
    return np.log(measured / said), scale_of(spread)


def _judged(data: TrainingData, left_out: LeftOutPredictions, target: str) -> Mask:
    """Return the rows on which predictions of a target can be evaluated; shape (rows,)."""
    known = left_out.predictions[target].notna() & data.rows[target].notna()
    judged: Mask = data.usable & known.to_numpy(bool)
    return judged


def _calibrated_elsewhere(data: TrainingData, elsewhere: LeftOutPredictions, target: str) -> dict[str, Interval] | None:
    """Return intervals of a target from predictions across origins; None where an origin has few groups.

    Classes of one origin alone are excluded: the predictor in use is trained on them. The intervals are symmetric,
    since the sign of an error depends on the training data.
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


def network_intervals(rows: pd.DataFrame) -> tuple[dict[str, Interval], dict[str, Any]]:
    """Return intervals of whole networks from their residuals; a network with all inputs and dtypes is one group.

    Parameters
    ----------
    rows
        Complete compositions of one GPU, pass and source, see `networks.VALIDATION_SCHEMA`.

    Returns
    -------
    intervals
        Each of `WHOLE_QUANTITIES` that is known of any row.
    report
        The same, with the coverage of intervals made from the other networks.
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
    """Return errors of compositions, by the pipeline and as plain sums; those that lack a cost are excluded."""
    complete = rows[rows["calls_without_cost"] == 0]
    found = {}
    for name in ("time_s", "plain_time_s", "energy_j", "plain_energy_j"):
        measured = complete[MEASURED_WHOLE[name.removeprefix("plain_")]]
        found[name] = metrics(measured.to_numpy(float), complete[name].to_numpy(float))
    return found


def judge_left_out(rows: pd.DataFrame) -> dict[str, Any]:
    """Return errors on operations that only the held-out network calls; `rows` of one pass, by `LEFT_OUT_SCHEMA`."""
    unseen = rows[rows["unseen"].astype(bool) & rows["learnt"].astype(bool)]
    report: dict[str, Any] = {"networks": sorted(set(rows["network"])), "targets": {}, "classes": {}}
    for target in TARGETS:
        measured, predicted = (unseen[name].to_numpy(float) for name in (target, BY_CORRECTED[target].predicted))
        report["targets"][target] = metrics(measured, predicted)
        report["classes"][target] = metrics_by(unseen[OPERATION_CLASS], measured, predicted)
    return report


def judge_perceptrons(
    make: Make, data: TrainingData, other: TrainingData | None, *, seed: int
) -> dict[str, Any] | None:
    """Return errors of device time of held-out operations, with MLPs and without.

    Parameters
    ----------
    make
        Make an unfitted predictor that trains MLPs.
    other
        Training data of the other pass, if there are any; the same groups are held out of it. `seed` decides which.

    Returns
    -------
    dict
        `rows`, the number of held-out rows that MLPs predict; `forest_median` and `forest_percentile_90`, of the
        relative error without MLPs; `median` and `percentile_90`, of that with them; and `width`, the exponent of the
        forest's interval factors that keeps their coverage, 1 with too few held-out groups. None where too few rows are
        left to train MLPs.
    """
    names = sorted(set(data.groups) | set(() if other is None else other.groups))
    drawn = np.random.default_rng(seed).random(len(names)) < _HELD_OUT
    out = frozenset(name for name, chosen in zip(names, drawn, strict=True) if chosen)
    known = data.learnt & data.targets[TIME_DEVICE_CORRECTED].notna().to_numpy()
    taught = known & ~data.groups.isin(out).to_numpy()
    left = data.features[OPERATION_CLASS].isin(LEFT_TO_TREES).to_numpy()
    held = known & ~taught & ~left & data.own
    if not taught.any() or not held.any():
        return None
    beside = None if other is None else _rows(other, other.learnt & ~other.groups.isin(out).to_numpy())
    predictor = make().fit(*_rows(data, taught), beside)
    if predictor.perceptrons_ is None:
        return None
    features, targets = _rows(data, held)
    told = predictor.predict(features)[TIME_DEVICE_CORRECTED].to_numpy()
    predictor.perceptrons_ = None
    of_forest, spread = (table[TIME_DEVICE_CORRECTED].to_numpy() for table in predictor.predict_with_spread(features))
    measured, scale = targets[TIME_DEVICE_CORRECTED].to_numpy(float), scale_of(spread)
    wide, both = (_high(np.abs(np.log(measured / one)) / scale) for one in (of_forest, told))
    told_by_enough = data.groups[held].nunique() >= GROUPS_OF_A_CLASS
    without, beside_it = (np.abs(one / measured - 1) for one in (of_forest, told))
    return {
        "rows": int(held.sum()),
        "forest_median": float(np.median(without)),
        "forest_percentile_90": _high(without),
        "median": float(np.median(beside_it)),
        "percentile_90": _high(beside_it),
        "width": float(np.clip(both / max(wide, 1e-9), _NARROWEST, _WIDEST)) if told_by_enough else 1.0,
    }


def as_wide_as(intervals: Mapping[str, Interval], width: float) -> dict[str, Interval]:
    """Raise intervals of device time to the power of `width`, except those of forest-only classes."""
    rest = intervals[ANY_CLASS]
    kept = {name: intervals.get(name, rest) for name in sorted(LEFT_TO_TREES)}
    found = {name: replace(one, lower=one.lower**width, upper=one.upper**width) for name, one in intervals.items()}
    return found | kept


def _rows(data: TrainingData, chosen: Mask) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return features and device times of some cells."""
    return data.features[chosen], data.targets.loc[chosen, [TIME_DEVICE_CORRECTED]]


def _high(values: Floats) -> float:
    return float(np.quantile(values, COVERAGE))
