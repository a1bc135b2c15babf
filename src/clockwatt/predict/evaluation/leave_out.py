"""Predict held-out data: groups of similar operations in turn, operations of one origin, or networks.

These predictions estimate the errors on unseen operations and networks, and whether more measurements would reduce
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from clockwatt.predict.evaluation.errors import metrics
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.predictors import TARGETS, CostPredictor
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED, CORRECTED
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
