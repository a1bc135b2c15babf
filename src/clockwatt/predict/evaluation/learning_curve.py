"""Whether more measurements would make predictions better: errors over how many operations were learnt from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.evaluation.leave_out import LeftOut, LeftOutPredictions, predict_left_out
from clockwatt.predict.evaluation.metrics import metrics
from clockwatt.predict.models.predictors import TARGETS, CostPredictor
from clockwatt.predict.models.training_data import TrainingData

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
