"""Leave something out and predict it: groups of like operations in turn, or whole networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from clockwatt.gpu.specs import GpuSpec
from clockwatt.predict.evaluation.metrics import metrics
from clockwatt.predict.models.cost_predictor import TARGETS, CostPredictor
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED, CORRECTED
from clockwatt.threads import usable_threads

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LeftOut:
    """Which rows a predictor learns from, and which it then predicts.

    Attributes
    ----------
    training, predicted
        Shape (rows,).
    """

    training: Mask
    predicted: Mask


def predict_left_out(
    make: Callable[[], CostPredictor], features: pd.DataFrame, targets: pd.DataFrame, parts: Sequence[LeftOut]
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Predict what is left out, with a predictor fitted to the rest; parts share the usable threads.

    One forest's encoding and predicting leave all cores but one idle: so each has a thread of its own as far as there
    are parts enough.

    Parameters
    ----------
    make
        Gives a fresh predictor.
    features
        From `features.points.features_at`; shape (rows, features).
    targets
        Shape (rows, targets); each is learnt from where it is not missing.
    parts
        What is left out together.

    Yields
    ------
    predictions, spread
        In the form of `targets`, for each part; missing for other rows, and for all if nothing is left to learn from.
        The spread is that of the trees, see `CostPredictor.predict_with_spread`.
    """
    features, targets = features.copy(), targets.copy()  # which lays columns together, so that threads only read
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

    def at_rows(self, data: TrainingData, spec: GpuSpec) -> LeftOutPredictions:
        """The same for every measured row of `data`, from predictions for its cells, on the GPU of `spec`."""
        fold_of = dict(zip(data.cells["operation_id"], self.fold, strict=True))
        return LeftOutPredictions(
            data.at_rows(self.predictions, spec),
            data.spread_at_rows(self.spread),
            data.rows["operation_id"].map(fold_of).to_numpy(np.int64),
        )


def cross_validate(
    make: Callable[[], CostPredictor],
    features: pd.DataFrame,
    targets: pd.DataFrame,
    groups: pd.Series,
    usable: Mask,
    *,
    folds: int,
    seed: int,
) -> LeftOutPredictions:
    """Predict every row with a predictor fitted on the usable rows of the other folds.

    Parameters
    ----------
    make, features, targets
        See `predict_left_out`.
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
    return _each_left_out(make, features, targets, fold, usable)


def predict_elsewhere(
    make: Callable[[], CostPredictor],
    features: pd.DataFrame,
    targets: pd.DataFrame,
    origin: NDArray[np.object_],
    usable: Mask,
) -> LeftOutPredictions:
    """Predict the rows of each origin with a predictor fitted to those of the others alone.

    What networks call and what was designed are drawn differently: intervals calibrated so hold for what is drawn
    differently again.

    Parameters
    ----------
    make, features, targets
        See `predict_left_out`.
    origin
        Where each row is from; shape (rows,).
    usable
        Which rows may be learnt from; all are predicted. Shape (rows,).

    Returns
    -------
    LeftOutPredictions
        Missing where the other origins have nothing to learn from. The fold is the origin, in the order of its name.
    """
    fold = np.unique(origin, return_inverse=True)[1].astype(np.int64)
    return _each_left_out(make, features, targets, fold, usable)


def _each_left_out(
    make: Callable[[], CostPredictor],
    features: pd.DataFrame,
    targets: pd.DataFrame,
    fold: NDArray[np.int64],
    usable: Mask,
) -> LeftOutPredictions:
    """Predict the rows of each fold with a predictor fitted on the usable rows of the others."""
    predictions = pd.DataFrame(np.nan, index=targets.index, columns=targets.columns)
    spread = predictions.copy()
    parts = [LeftOut(usable & (fold != number), fold == number) for number in range(int(fold.max(initial=-1)) + 1)]
    for part, of_part in zip(parts, predict_left_out(make, features, targets, parts), strict=True):
        for kept, own in zip((predictions, spread), of_part, strict=True):
            kept.iloc[np.flatnonzero(part.predicted)] = own[part.predicted].to_numpy()
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


SHARES = (1 / 8, 1 / 4, 1 / 2)
"""Of what the cross-validation learns from, which is the last point of the curve."""
_JUDGED = 0.2
_ROWS_AT_LEAST = 100


def learning_curve(
    make: Callable[[], CostPredictor], data: TrainingData, validation: LeftOutPredictions, *, seed: int
) -> list[dict[str, Any]]:
    """Errors on the same operations, learnt from ever more of the others.

    The cross-validation's first folds, a fifth of all, are judged; groups of the others are drawn at random.

    Parameters
    ----------
    make
        Gives a fresh predictor.
    data
        Of one pass.
    validation
        Its cross-validation, by cells.
    seed
        Of the draw.

    Returns
    -------
    list of dict
        `operations` that were learnt from, and `targets`: target to `metrics`. Empty where there are too few rows, or
        too few folds, to tell.
    """
    folds = max(1, round(_JUDGED * validation.folds))
    cell = ["operation_id", "point", "tf32"]
    own = pd.MultiIndex.from_frame(data.cells[cell]).isin(pd.MultiIndex.from_frame(data.rows[cell]))  # none is borrowed
    judged = data.learnt & own & (validation.fold < folds)
    rest = data.learnt & ~judged
    if validation.folds < 2 or min(judged.sum(), SHARES[0] * rest.sum()) < _ROWS_AT_LEAST:
        return []
    names = data.groups[rest].unique()
    order = dict(zip(np.random.default_rng(seed).permutation(names), np.arange(len(names)) / len(names), strict=True))
    place = data.groups.map(order).to_numpy(float)  # missing where only judged: never below a share
    parts = [LeftOut(rest & (place < share), judged) for share in SHARES]
    found = [predictions for predictions, _ in predict_left_out(make, data.features, data.targets, parts)]
    curve = [
        {"operations": _operations(data, part.training), "targets": _errors(data, predictions, judged)}
        for part, predictions in zip(parts, found, strict=True)
    ]
    learnt_from = _operations(data, data.learnt) * (1 - 1 / validation.folds)
    return [*curve, {"operations": round(learnt_from), "targets": _errors(data, validation.predictions, judged)}]


def _operations(data: TrainingData, rows: NDArray[np.bool_]) -> int:
    return int(data.cells.loc[rows, "operation_id"].nunique())


def _errors(data: TrainingData, predictions: pd.DataFrame, judged: NDArray[np.bool_]) -> dict[str, Any]:
    both = ((data.targets.loc[judged, name], predictions.loc[judged, name]) for name in TARGETS)
    return {
        name: metrics(*(values.to_numpy(float) for values in pair)) for name, pair in zip(TARGETS, both, strict=True)
    }


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
