"""Leave something out and predict it: groups of like operations in turn, or whole networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.gpu.specs import GpuSpec
from clockwatt.predict.evaluation.tables import LEFT_OUT_SCHEMA
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.predictors import TARGETS, CostPredictor
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED
from clockwatt.threads import usable_threads

Mask = NDArray[np.bool_]

FOLDS_AT_MOST = 10
"""More networks than this are left out several at a time, which bounds the time of a fit; then those that share fewest
operations."""


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


def leave_networks_out(
    make: Callable[[], CostPredictor],
    data: TrainingData,
    spec: GpuSpec,
    called: Mapping[str, frozenset[str]],
    names: list[str],
    *,
    seed: int,
) -> pd.DataFrame:
    """Predict every operation of each network with a predictor fitted without that network.

    A network is left out with all its inputs and dtypes. An operation that only it calls is not learnt from; one that
    another network calls too stays among the data, as it would had this network never been measured; it is predicted
    all the same here, though whoever asks for a network finds it looked up. Operations that no network calls stay too.

    Parameters
    ----------
    make
        Gives a fresh predictor.
    data
        What was measured in one pass, and what is to be predicted beside it (`training_data.with_unmeasured`).
    spec
        The GPU.
    called
        Name of every network of the catalogue to the operations it calls in this pass.
    names
        Those to leave out, one after another; more than `FOLDS_AT_MOST` are dealt out to so many folds: an operation
        that two networks of a fold have alone would be missed by both.
    seed
        Of that deal.

    Returns
    -------
    pandas.DataFrame
        Columns of `LEFT_OUT_SCHEMA` but `gpu` and `virtual`; a row for each network, operation and operating point.
        Empty where a single network leaves nothing to learn from.
    """
    ids = data.cells["operation_id"]
    together, only_there, parts = _dealt(names, called, FOLDS_AT_MOST, seed), [], []
    for left_out in together:
        own, others = _called_by(left_out, called), _called_by(set(called) - left_out, called)
        only_there.append(own - others)
        training = data.learnt & ~ids.isin(only_there[-1]).to_numpy(bool)
        parts.append(LeftOut(training, ids.isin(own).to_numpy(bool)))
    found = []
    for left_out, unseen, (at_cells, spread) in zip(
        together, only_there, predict_left_out(make, data.features, data.targets, parts), strict=True
    ):
        if at_cells.notna().any(axis=None):
            at_rows = (data.at_rows(at_cells, spec), data.spread_at_rows(spread))
            found += [_of_network(data, *at_rows, name, called[name], unseen) for name in sorted(left_out)]
    columns = [name for name in LEFT_OUT_SCHEMA.names if name not in ("gpu", "virtual")]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def _called_by(names: set[str], called: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(called[name] for name in names))


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


def _of_network(
    data: TrainingData,
    predictions: pd.DataFrame,
    spread: pd.DataFrame,
    name: str,
    ids: frozenset[str],
    unseen: frozenset[str],
) -> pd.DataFrame:
    own = data.rows["operation_id"].isin(ids).to_numpy(bool)
    rows = data.rows.loc[own, ["pass", "point", "tf32", "operation_id", OPERATION_CLASS, *TARGETS]]
    return rows.assign(
        network=name,
        unseen=rows["operation_id"].isin(unseen),
        learnt=data.usable[own],
        **{BY_CORRECTED[target].predicted: predictions.loc[own, target] for target in TARGETS},
        **{BY_CORRECTED[target].spread: spread.loc[own, target] for target in TARGETS},
    )
