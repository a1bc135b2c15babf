"""Predict what was left out of learning: groups of like operations in turn, operations of one origin, or networks.

From that follow the errors of operations and networks never measured, and whether more measurements would make them
smaller.
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
"""Each measured operation with the prediction of a predictor that never saw its group."""


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
        pa.field("unseen", pa.bool_()),  # False: another network calls it too, so its measurement was learnt from
        pa.field("learnt", pa.bool_()),  # False: excluded from fitting and from the metrics
        *(pa.field(name, pa.float64()) for name in CORRECTED),
        *(pa.field(BY_CORRECTED[name].predicted, pa.float64()) for name in CORRECTED),
        *(pa.field(BY_CORRECTED[name].spread, pa.float64()) for name in CORRECTED),
    ],
    metadata={"kind": "networks left out"},
)
"""Each operation of each network left out, measured or not, with its prediction and how far the trees disagree."""

FOLDS_AT_MOST = 10
"""More networks than this are left out several at a time, which bounds the time of a fit; then those that share fewest
operations."""


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
        rows = data.rows[["pass", "point", "execution", "operation_id", OPERATION_CLASS, *TARGETS]]
        predicted = {BY_CORRECTED[target].predicted: self.predictions[target] for target in TARGETS}
        rows = rows.assign(gpu=gpu, virtual=virtual, predictor=predictor, fold=self.fold, learnt=data.usable)
        return pa.Table.from_pandas(rows.assign(**predicted), CROSSVAL_SCHEMA, preserve_index=False)


def predict_left_out(
    make: Make, data: TrainingData, parts: Sequence[tuple[Mask, Mask]]
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Predict what is left out, with a predictor fitted to the rest.

    One forest's encoding and predicting leave all cores but one idle, so each part has a thread of its own as far as
    there are enough.

    Parameters
    ----------
    parts
        Which cells a predictor learns from, and which it then predicts; shape (cells,) each.

    Yields
    ------
    predictions, spread
        Of the cells of `data`, for each part; shape (cells, targets). Missing for other cells, and for all if nothing
        is left to learn from. The spread is that of the trees, see `CostPredictor.predict_with_spread`.
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
    """Of each cell no prediction."""
    return pd.DataFrame(np.nan, index=data.targets.index, columns=data.targets.columns)


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
    predictions, spread = _nothing(data), _nothing(data)
    parts = [(data.learnt & (fold != number), fold == number) for number in range(fold.max(initial=-1) + 1)]
    for found in predict_left_out(make, data, parts):
        predictions, spread = (kept.fillna(own) for kept, own in zip((predictions, spread), found, strict=True))
    return LeftOutPredictions(predictions, spread, fold)


def grouped_folds(groups: pd.Series, folds: int, seed: int) -> NDArray[np.int64]:
    """Deal groups out to folds of nearly equal size: the largest first, each to the smallest fold.

    From the group of each row to its fold; shape (rows,) each. There are fewer folds if there are fewer groups; `seed`
    decides between groups of equal size.
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

    A network is left out with all its inputs and dtypes. An operation that only it calls is not learnt from; one that
    another network calls too stays among the data, as it would had this network never been measured; it is predicted
    all the same here, though whoever asks for a network finds it looked up. Operations that no network calls stay too.

    Parameters
    ----------
    data
        What was measured in one pass, and what is to be predicted beside it (`training_data.with_unmeasured`).
    called
        Name of every network of the catalogue to the operations it calls in this pass.
    names
        Those to leave out, one after another; more than `FOLDS_AT_MOST` are dealt out to so many folds: an operation
        that two networks of a fold have alone would be missed by both. `seed` decides that deal.

    Returns
    -------
    pandas.DataFrame
        Columns of `LEFT_OUT_SCHEMA` but `gpu` and `virtual`; a row for each network, operation and operating point.
        Empty where a single network leaves nothing to learn from.
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
    """Networks in as many folds, each in the one with which it shares fewest operations, the emptiest of those."""
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
