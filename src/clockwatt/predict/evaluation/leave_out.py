"""Predict held-out data: groups of similar operations in turn, operations of one origin, or networks.

These predictions estimate the errors on unseen operations and networks, the intervals and their coverage, and whether
more measurements would reduce them. All but `judge_perceptrons` evaluate the forest alone, since training MLPs takes
much longer. MLPs are trained once more without a fifth of the groups. Their gain in accuracy there gives the factor by
which the forest's intervals of device time are too wide for both together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

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
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.models.predictors import FOREST_ONLY_CLASSES, TARGETS, CostPredictor
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED, CORRECTED, MEASURED_WHOLE, TIME_DEVICE_CORRECTED
from clockwatt.threads import usable_threads

Mask = NDArray[np.bool_]
Make = Callable[[], CostPredictor]
"""Make an unfitted predictor."""

SHARES = (1 / 8, 1 / 4, 1 / 2)
"""Shares of the training data of the cross-validation, which is the last point of the learning curve."""
_JUDGED = 0.2
_ROWS_AT_LEAST = 100

CROSSVAL_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("predictor", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("point", pa.string()),
        pa.field("execution", pa.string()),
        pa.field("operation_id", pa.string()),
        pa.field("operation_class", pa.string()),
        pa.field("fold", pa.int64()),
        pa.field("learnt", pa.bool_()),  # False: predicted, but excluded from fitting and from the metrics
        *(pa.field(name, pa.float64()) for name in CORRECTED),
        *(pa.field(BY_CORRECTED[name].predicted, pa.float64()) for name in CORRECTED),
    ],
    metadata={"kind": "cross-validation"},
)
"""Each measured operation with its prediction by a predictor that held out its group."""


LEFT_OUT_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("pass", pa.string()),
        pa.field("network", pa.string()),
        pa.field("point", pa.string()),
        pa.field("execution", pa.string()),
        pa.field("operation_id", pa.string()),
        pa.field("operation_class", pa.string()),
        pa.field("unseen", pa.bool_()),  # False: another network calls it too, so its measurement was trained on
        pa.field("learnt", pa.bool_()),  # False: excluded from fitting and from the metrics
        *(pa.field(name, pa.float64()) for name in CORRECTED),
        *(pa.field(BY_CORRECTED[name].predicted, pa.float64()) for name in CORRECTED),
        *(pa.field(BY_CORRECTED[name].spread, pa.float64()) for name in CORRECTED),
    ],
    metadata={"kind": "networks left out"},
)
"""Each operation of each held-out network, measured or not, with its prediction and the spread of the trees."""

FOLDS_AT_MOST = 10
"""If there are more networks, several are held out at a time, those that share fewest operations. This bounds the time
of a fit."""


@dataclass(frozen=True)
class LeftOutPredictions:
    """Predictions of each row by a predictor that held out its group.

    Attributes
    ----------
    predictions
        One column per target; shape (rows, targets). Missing for rows without a training fold.
    spread
        Spread of the trees; likewise.
    fold
        Number of the fold of each row, counted from 0; shape (rows,).
    """

    predictions: pd.DataFrame
    spread: pd.DataFrame
    fold: NDArray[np.int64]

    @property
    def folds(self) -> int:
        """Number of folds."""
        return int(self.fold.max(initial=-1)) + 1

    def at_rows(self, data: TrainingData) -> LeftOutPredictions:
        """Convert predictions for the cells of `data` to every measured row."""
        fold_of = dict(zip(data.cells["operation_id"], self.fold, strict=True))
        return LeftOutPredictions(
            data.at_rows(self.predictions),
            data.spread_at_rows(self.spread),
            data.rows["operation_id"].map(fold_of).to_numpy(np.int64),
        )

    def table(self, data: TrainingData, *, gpu: str, virtual: bool, predictor: str) -> pa.Table:
        """Return a table of `CROSSVAL_SCHEMA`, from predictions of the rows of `data`."""
        rows = data.rows[["pass", "point", "execution", "operation_id", OPERATION_CLASS, *TARGETS]]
        predicted = {BY_CORRECTED[target].predicted: self.predictions[target] for target in TARGETS}
        rows = rows.assign(gpu=gpu, virtual=virtual, predictor=predictor, fold=self.fold, learnt=data.usable)
        return pa.Table.from_pandas(rows.assign(**predicted), CROSSVAL_SCHEMA, preserve_index=False)


def predict_left_out(
    make: Make, data: TrainingData, parts: Sequence[tuple[Mask, Mask]]
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Predict held-out cells with a predictor fitted to the rest.

    Encoding and prediction use one core, so each part runs in its own thread, up to the number of cores.

    Parameters
    ----------
    parts
        Cells to train on, and cells to predict then; shape (cells,) each.

    Yields
    ------
    predictions, spread
        Of the cells of `data`, for each part; shape (cells, targets). Missing for other cells, and for all if nothing
        is left to train on. The spread is that of the trees, see `CostPredictor.predict_with_spread`.
    """
    features, targets = data.features.copy(), data.targets.copy()  # lays columns together: threads only read
    threads = usable_threads()

    def predicted(part: tuple[Mask, Mask]) -> tuple[pd.DataFrame, pd.DataFrame]:
        training, asked = part
        predictions, spread = _nothing(data), _nothing(data)
        if training.any() and asked.any():
            predictor = make()
            predictor.jobs = max(1, threads // len(parts))
            predictor.fit(features[training], targets[training])
            found = predictor.predict_with_spread(features[asked])
            for kept, of_part in zip((predictions, spread), found, strict=True):
                kept.iloc[np.flatnonzero(asked)] = of_part.reindex(columns=targets.columns).to_numpy()
        return predictions, spread

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(predicted, parts)


def _nothing(data: TrainingData) -> pd.DataFrame:
    """Return missing predictions for all cells."""
    return pd.DataFrame(np.nan, index=data.targets.index, columns=data.targets.columns)


def cross_validate(make: Make, data: TrainingData, *, folds: int, seed: int) -> LeftOutPredictions:
    """Predict the cells of each fold with a predictor fitted to the others; groups are not split."""
    return _each_left_out(make, data, grouped_folds(data.groups, folds, seed))


def predict_elsewhere(make: Make, data: TrainingData) -> LeftOutPredictions | None:
    """Predict designed operations with a predictor fitted to those that networks call, and vice versa.

    The two have different distributions, so intervals calibrated this way cover other distributions too. None where
    there is only one of the two. The fold is 0 for operations that networks call.
    """
    designed = data.designed
    return _each_left_out(make, data, designed.astype(np.int64)) if len(set(designed)) > 1 else None


def _each_left_out(make: Make, data: TrainingData, fold: NDArray[np.int64]) -> LeftOutPredictions:
    """Predict the cells of each fold with a predictor fitted to cells of the others that may be trained on."""
    predictions, spread = _nothing(data), _nothing(data)
    parts = [(data.learnt & (fold != number), fold == number) for number in range(fold.max(initial=-1) + 1)]
    for found in predict_left_out(make, data, parts):
        predictions, spread = (kept.fillna(own) for kept, own in zip((predictions, spread), found, strict=True))
    return LeftOutPredictions(predictions, spread, fold)


def grouped_folds(groups: pd.Series, folds: int, seed: int) -> NDArray[np.int64]:
    """Assign groups to folds of nearly equal size: the largest first, each to the smallest fold.

    Takes the group of each row, returns its fold; shape (rows,) each. There are fewer folds if there are fewer groups;
    `seed` decides between groups of equal size.
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


def learning_curve(
    make: Make, data: TrainingData, validation: LeftOutPredictions, *, seed: int
) -> list[dict[str, Any]]:
    """Return the learning curve: errors on the same operations, trained on growing shares of the others.

    Evaluate the first folds, a fifth of all, of the cross-validation `validation` of `data`; draw groups of the others
    at random.

    Returns
    -------
    list of dict
        `operations`, the number trained on, and `targets`: target to `metrics`. Empty with too few rows or folds.
    """
    folds = max(1, round(_JUDGED * validation.folds))
    judged = data.learnt & data.own & (validation.fold < folds)
    rest = data.learnt & ~judged
    if validation.folds < 2 or min(judged.sum(), SHARES[0] * rest.sum()) < _ROWS_AT_LEAST:
        return []
    names = data.groups[rest].unique()
    order = dict(zip(np.random.default_rng(seed).permutation(names), np.arange(len(names)) / len(names), strict=True))
    place = data.groups.map(order).to_numpy(float)  # missing where only evaluated: never below a share
    parts = [(rest & (place < share), judged) for share in SHARES]

    def operations(cells: Mask) -> int:
        return int(data.cells.loc[cells, "operation_id"].nunique())

    def errors(predictions: pd.DataFrame) -> dict[str, Any]:
        both = (data.targets[judged], predictions[judged])
        return {name: metrics(*(table[name].to_numpy(float) for table in both)) for name in TARGETS}

    learnt_from = [operations(training) for training, _ in parts]
    learnt_from.append(round(operations(data.learnt) * (1 - 1 / validation.folds)))
    found = [predictions for predictions, _ in predict_left_out(make, data, parts)]
    return [
        {"operations": count, "targets": errors(predictions)}
        for count, predictions in zip(learnt_from, [*found, validation.predictions], strict=True)
    ]


def leave_networks_out(
    make: Make, data: TrainingData, called: Mapping[str, frozenset[str]], names: list[str], *, seed: int
) -> pd.DataFrame:
    """Predict every operation of each network with a predictor fitted without that network.

    A network is held out with all its inputs and dtypes. Operations that only it calls are not trained on. Operations
    that another network calls too stay in the training data, as if this network had never been measured. They are
    predicted here too, although `predict` would use their measurements. Operations that no network calls stay too.

    Parameters
    ----------
    data
        Measured data of one pass, and what else to predict (`training_data.with_unmeasured`).
    called
        Name of every network of the catalogue to the operations it calls in this pass.
    names
        Networks to hold out, one after another. More than `FOLDS_AT_MOST` are assigned to so many folds: operations
        that only networks of one fold call are then held out of both. `seed` decides the assignment.

    Returns
    -------
    pandas.DataFrame
        Columns of `LEFT_OUT_SCHEMA` but `gpu` and `virtual`; a row for each network, operation and operating point.
        Empty where a single network leaves nothing to train on.
    """

    def calls(networks: set[str]) -> frozenset[str]:
        return frozenset().union(*(called[name] for name in networks))

    ids = data.cells["operation_id"]
    together = _dealt(names, called, FOLDS_AT_MOST, seed)
    only_there = [calls(left_out) - calls(set(called) - left_out) for left_out in together]
    parts = [
        (data.learnt & ~ids.isin(unseen).to_numpy(bool), ids.isin(calls(left_out)).to_numpy(bool))
        for left_out, unseen in zip(together, only_there, strict=True)
    ]
    found = []
    for left_out, unseen, (at_cells, spread) in zip(
        together, only_there, predict_left_out(make, data, parts), strict=True
    ):
        if at_cells.notna().any(axis=None):
            rows = data.rows[["pass", "point", "execution", "operation_id", OPERATION_CLASS, *TARGETS]]
            rows = rows.assign(unseen=rows["operation_id"].isin(unseen), learnt=data.usable)
            rows[[BY_CORRECTED[target].predicted for target in TARGETS]] = data.at_rows(at_cells)[list(TARGETS)]
            rows[[BY_CORRECTED[target].spread for target in TARGETS]] = data.spread_at_rows(spread)[list(TARGETS)]
            found += [rows[rows["operation_id"].isin(called[name])].assign(network=name) for name in sorted(left_out)]
    columns = [name for name in LEFT_OUT_SCHEMA.names if name not in ("gpu", "virtual")]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def _dealt(names: list[str], called: Mapping[str, frozenset[str]], folds: int, seed: int) -> list[set[str]]:
    """Assign networks to folds, each to the one with which it shares fewest operations; ties go to the emptiest."""
    dealt: list[set[str]] = [set() for _ in range(min(folds, len(names)))]
    of_fold: list[set[str]] = [set() for _ in dealt]
    at_most = -(-len(names) // len(dealt)) if dealt else 0
    for position in np.random.default_rng(seed).permutation(len(names)):
        name = names[position]
        open_ = [number for number, fold in enumerate(dealt) if len(fold) < at_most]
        chosen = min(open_, key=lambda number: (len(of_fold[number] & called[name]), len(dealt[number])))
        dealt[chosen].add(name)
        of_fold[chosen] |= called[name]
    return dealt


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
    left = data.features[OPERATION_CLASS].isin(FOREST_ONLY_CLASSES).to_numpy()
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
    kept = {name: intervals.get(name, rest) for name in sorted(FOREST_ONLY_CLASSES)}
    found = {name: replace(one, lower=one.lower**width, upper=one.upper**width) for name, one in intervals.items()}
    return found | kept


def _rows(data: TrainingData, chosen: Mask) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return features and device times of some cells."""
    return data.features[chosen], data.targets.loc[chosen, [TIME_DEVICE_CORRECTED]]


def _high(values: Floats) -> float:
    return float(np.quantile(values, COVERAGE))
