"""Predict what was left out of learning: groups of like operations in turn, or operations of one origin.

From that follow the errors of operations never measured, and whether more measurements would make them smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from clockwatt.predict.evaluation.metrics import metrics
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.cost_predictor import TARGETS, CostPredictor
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED, CORRECTED
from clockwatt.threads import usable_threads

Mask = NDArray[np.bool_]
Make = Callable[[], CostPredictor]
"""Gives a fresh predictor."""

SHARES = (1 / 8, 1 / 4, 1 / 2)
"""Of what the cross-validation learns from, which is the last point of the learning curve."""
_JUDGED = 0.2
_ROWS_AT_LEAST = 100

CROSSVAL_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("predictor", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        pa.field("operation_id", pa.string()),
        pa.field("operation_class", pa.string()),
        pa.field("fold", pa.int64()),
        pa.field("learnt", pa.bool_()),  # False: predicted, but excluded from fitting and from the metrics
        *(pa.field(name, pa.float64()) for name in CORRECTED),
        *(pa.field(BY_CORRECTED[name].predicted, pa.float64()) for name in CORRECTED),
    ],
    metadata={"kind": "cross-validation"},
)
"""Each measured operation with the prediction of a predictor that never saw its group."""


@dataclass(frozen=True)
class LeftOut:
    """Which cells a predictor learns from, and which it then predicts; shape (cells,) each."""

    training: Mask
    predicted: Mask


@dataclass(frozen=True)
class LeftOutPredictions:
    """Predictions of each row by a predictor that never saw its group.

    Attributes
    ----------
    predictions
        One column per target; shape (rows, targets). Missing for rows without a training fold.
    spread
        How far the trees disagree; likewise.
    fold
        What was left out together with each row, counted from 0; shape (rows,).
    """

    predictions: pd.DataFrame
    spread: pd.DataFrame
    fold: NDArray[np.int64]

    @property
    def folds(self) -> int:
        """How many parts were left out one after another."""
        return int(self.fold.max(initial=-1)) + 1

    def at_rows(self, data: TrainingData) -> LeftOutPredictions:
        """The same for every measured row of `data`, from predictions for its cells."""
        fold_of = dict(zip(data.cells["operation_id"], self.fold, strict=True))
        return LeftOutPredictions(
            data.at_rows(self.predictions),
            data.spread_at_rows(self.spread),
            data.rows["operation_id"].map(fold_of).to_numpy(np.int64),
        )

    def table(self, data: TrainingData, *, gpu: str, virtual: bool, predictor: str) -> pa.Table:
        """By `CROSSVAL_SCHEMA`, from predictions of the rows of `data`."""
        rows = data.rows[["pass", "point", "tf32", "operation_id", OPERATION_CLASS, *TARGETS]]
        predicted = {BY_CORRECTED[target].predicted: self.predictions[target] for target in TARGETS}
        rows = rows.assign(gpu=gpu, virtual=virtual, predictor=predictor, fold=self.fold, learnt=data.usable)
        return pa.Table.from_pandas(rows.assign(**predicted), CROSSVAL_SCHEMA, preserve_index=False)


def predict_left_out(
    make: Make, data: TrainingData, parts: Sequence[LeftOut]
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Predict what is left out, with a predictor fitted to the rest.

    One forest's encoding and predicting leave all cores but one idle, so each part has a thread of its own as far as
    there are enough.

    Yields
    ------
    predictions, spread
        Of the cells of `data`, for each part; shape (cells, targets). Missing for other cells, and for all if nothing
        is left to learn from. The spread is that of the trees, see `CostPredictor.predict_with_spread`.
    """
    features, targets = data.features.copy(), data.targets.copy()  # lays columns together: threads only read
    threads = usable_threads()

    def predicted(part: LeftOut) -> tuple[pd.DataFrame, pd.DataFrame]:
        predictions = pd.DataFrame(np.nan, index=features.index, columns=targets.columns)
        spread = predictions.copy()
        if part.training.any() and part.predicted.any():
            predictor = make().set_params(jobs=max(1, threads // len(parts)))
            predictor.fit(features[part.training], targets[part.training])
            found = predictor.predict_with_spread(features[part.predicted])
            for kept, of_part in zip((predictions, spread), found, strict=True):
                kept.iloc[np.flatnonzero(part.predicted)] = of_part.reindex(columns=targets.columns).to_numpy()
        return predictions, spread

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(predicted, parts)


def cross_validate(make: Make, data: TrainingData, *, folds: int, seed: int) -> LeftOutPredictions:
    """Predict the cells of each fold by a predictor fitted to the others; groups of like operations stay together."""
    return _each_left_out(make, data, grouped_folds(data.groups, folds, seed))


def predict_elsewhere(make: Make, data: TrainingData) -> LeftOutPredictions | None:
    """Predict what was designed by a predictor fitted to what networks call, and the other way round.

    The two are drawn differently: intervals calibrated so hold for what is drawn differently again. None where there is
    only one of the two. The fold is 0 for what networks call.
    """
    designed = data.designed
    return _each_left_out(make, data, designed.astype(np.int64)) if len(set(designed)) > 1 else None


def _each_left_out(make: Make, data: TrainingData, fold: NDArray[np.int64]) -> LeftOutPredictions:
    """Predict the cells of each fold with a predictor fitted to those of the others that may be learnt from."""
    predictions = pd.DataFrame(np.nan, index=data.targets.index, columns=data.targets.columns)
    spread = predictions.copy()
    parts = [LeftOut(data.learnt & (fold != number), fold == number) for number in range(fold.max(initial=-1) + 1)]
    for part, found in zip(parts, predict_left_out(make, data, parts), strict=True):
        for kept, of_part in zip((predictions, spread), found, strict=True):
            kept.iloc[np.flatnonzero(part.predicted)] = of_part[part.predicted].to_numpy()
    return LeftOutPredictions(predictions, spread, fold)


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


def learning_curve(
    make: Make, data: TrainingData, validation: LeftOutPredictions, *, seed: int
) -> list[dict[str, Any]]:
    """Errors on the same operations, learnt from ever more of the others.

    The first folds of the cross-validation `validation` of `data`, a fifth of all, are judged; groups of the others are
    drawn at random.

    Returns
    -------
    list of dict
        `operations` that were learnt from, and `targets`: target to `metrics`. Empty where there are too few rows, or
        too few folds, to tell.
    """
    folds = max(1, round(_JUDGED * validation.folds))
    judged = data.learnt & data.own & (validation.fold < folds)
    rest = data.learnt & ~judged
    if validation.folds < 2 or min(judged.sum(), SHARES[0] * rest.sum()) < _ROWS_AT_LEAST:
        return []
    names = data.groups[rest].unique()
    order = dict(zip(np.random.default_rng(seed).permutation(names), np.arange(len(names)) / len(names), strict=True))
    place = data.groups.map(order).to_numpy(float)  # missing where only judged: never below a share
    parts = [LeftOut(rest & (place < share), judged) for share in SHARES]
    learnt_from = [_operations(data, part.training) for part in parts]
    learnt_from.append(round(_operations(data, data.learnt) * (1 - 1 / validation.folds)))
    found = [predictions for predictions, _ in predict_left_out(make, data, parts)]
    return [
        {"operations": operations, "targets": _errors(data, predictions, judged)}
        for operations, predictions in zip(learnt_from, [*found, validation.predictions], strict=True)
    ]


def _operations(data: TrainingData, cells: Mask) -> int:
    return int(data.cells.loc[cells, "operation_id"].nunique())


def _errors(data: TrainingData, predictions: pd.DataFrame, judged: Mask) -> dict[str, Any]:
    measured, predicted = data.targets[judged], predictions[judged]
    return {name: metrics(measured[name].to_numpy(float), predicted[name].to_numpy(float)) for name in TARGETS}
