"""The predictors of the cost of an operation that a campaign can choose from.

`RooflinePredictor` learns how far an operation is from a physical estimate, `XgboostPredictor` the same by boosting,
`BaselinePredictor` one factor for each class; `ForestPredictor` learns the cost itself, as the thesis that this project
goes back to did. Only fitting imports scikit-learn.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.errors import ClockwattError
from clockwatt.io.rounding import to_bits
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.features.points import POWER_LIMIT, ROOFLINE_TIME
from clockwatt.predict.models.neural_ensemble import LEAST_ROWS, Perceptrons
from clockwatt.predict.models.power import with_energies
from clockwatt.predict.models.trees import Trees, shortened
from clockwatt.schema.costs import (
    CORRECTED,
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_EAGER_CORRECTED,
    TIME_HOST_CORRECTED,
)
from clockwatt.threads import usable_threads

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]

TARGETS = CORRECTED
"""What is predicted for an operation; per call."""

ROWS_PER_TREE = 20_000
"""Larger data are sampled for each tree anew, which bounds the time of a fit and the size of a forest."""

_VALUE_BITS = 12

_FLOOR_QUANTILE = 0.01
_STEPS = np.float32(1024)
"""Steps of 1 in which logarithms are told: a mean over trees is off by less than half of one, 0.05 %."""

_OF_PERCEPTRONS = 0.75
"""Weight of perceptrons beside the forest, on logarithms of device time …"""
_FARTHEST_APART = 1.0
"""… and how far apart the two may be: of what neither saw, a perceptron may say anything."""

LEFT_TO_TREES = frozenset({"SGD", "div"})
"""Classes that perceptrons tell worse than the forest, where a fifth of the shipped data was held out, or of which too
little was held out to say (`div`)."""

_BOOSTING = {"objective": "reg:squarederror", "tree_method": "hist", "eta": 0.15, "max_depth": 8, "subsample": 0.8}


class MissingLibraryError(ClockwattError):
    """A library that is installed on demand is not there."""


class CostPredictor:
    """What all predictors share: encoding of the features, sampling, and the trees as plain arrays.

    Parameters
    ----------
    trees, seed
        Number of trees, and the seed of the forest.
    max_features
        Share of features tried at each split.
    jobs
        Threads for fitting, None for as many as `usable_threads` says; the result does not depend on it.
    leaf
        Fewest rows in a leaf, where scikit-learn grows the trees.

    Attributes
    ----------
    targets_, classes_
        Columns that `predict` gives, and operation classes seen.
    columns_
        Numeric features in use; those that do not vary in the training data are left out.
    scales_
        Fitted numbers that the targets are scaled with.
    trees_, perceptrons_
        The forest, and what is told of device time beside it, if anything is.
    """

    requires: ClassVar[str] = ""
    """Library that fitting needs beyond what is always installed; empty for none."""

    shares_splits: ClassVar[bool] = True
    """Whether a tree gives several targets, so that one that is known too helps to choose the splits for others."""

    takes_perceptrons: ClassVar[bool] = False
    """Whether perceptrons may tell device time beside the trees."""

    perceptrons_: Perceptrons | None = None

    def __init__(
        self, trees: int = 200, max_features: float = 0.5, seed: int = 0, jobs: int | None = None, leaf: int = 1
    ) -> None:
        self.trees = trees
        self.max_features = max_features
        self.leaf = leaf
        self.seed = seed
        self.jobs = jobs

    def get_params(self) -> dict[str, Any]:
        """Parameters by name."""
        return {name: value for name, value in vars(self).items() if not name.endswith("_")}

    def fit(
        self,
        X: pd.DataFrame,  # noqa: N803  # scikit-learn's name
        y: pd.DataFrame,
        beside: tuple[pd.DataFrame, pd.DataFrame] | None = None,  # noqa: ARG002  # for perceptrons
    ) -> Self:
        """Fit on operations at operating points.

        Parameters
        ----------
        X
            From `features.points.features_at`; shape (rows, features).
        y
            Columns of `TARGETS`; the roofline predictor needs them positive. Each is learnt from the rows where it is
            not missing; one that is missing everywhere is not learnt. Shape (rows, targets).
        beside
            The same of operations in the other pass, from which perceptrons learn too, and no tree does.
        """
        y = self._completed(X, y.loc[:, y.notna().any()])
        self.targets_ = list(y.columns)
        numeric = X.drop(columns=[OPERATION_CLASS])
        self.columns_ = list(numeric.columns[(numeric.min() < numeric.max()).to_numpy()])
        self.classes_ = sorted(X[OPERATION_CLASS].unique())
        self.scales_ = self._fit_scales(X, y)
        matrix, learnt = self._encode(X), self._link(y.to_numpy(float) / self._estimates(X))
        parts = [
            (columns, self._grow_for(columns, matrix[rows], learnt[rows]))
            for rows, columns in _known_together(np.isfinite(learnt))
        ]
        trees = Trees.side_by_side(parts, outputs=len(self.targets_))
        self.trees_ = replace(shortened(trees, matrix), value=self._rounded(trees.value))
        return self

    def predict(self, X: pd.DataFrame) -> pd.DataFrame:  # noqa: N803  # scikit-learn's name
        """Predict every target that was learnt; shape (rows, targets), in the units of the targets' names."""
        return self.predict_with_spread(X)[0]

    def predict_with_spread(self, X: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:  # noqa: N803
        """Predict, with how far the trees disagree: the standard deviation of the logarithm; shape (rows, targets)."""
        matrix = self._encode(X)
        mean, spread = self.trees_.mean_and_spread(matrix)
        values = self._inverse_link(self._told(matrix, mean)) * self._estimates(X)
        predicted, spreads = (
            pd.DataFrame(table, index=X.index, columns=self.targets_)
            for table in (values, self._relative_spread(mean, spread))
        )
        return predicted, spreads

    def _told(self, matrix: Matrix, learnt: Floats) -> Floats:  # noqa: ARG002  # for what is beside trees
        """What trees tell, with what else was learnt of the same encoded features."""
        return learnt

    def _relative_spread(self, mean: Floats, spread: Floats) -> Floats:  # noqa: ARG002  # for what learns the cost
        """Standard deviation of the logarithm of a cost, from mean and standard deviation of what trees give."""
        return spread

    def _encode(self, features: pd.DataFrame) -> Matrix:
        classes = features[OPERATION_CLASS].to_numpy()[:, None] == np.array(self.classes_, dtype=object)[None, :]
        numbers = features[self.columns_].to_numpy(np.float32)
        return np.hstack([numbers, classes.astype(np.float32)])

    @property
    def _jobs(self) -> int:
        return self.jobs or usable_threads()

    def _completed(self, features: pd.DataFrame, targets: pd.DataFrame) -> pd.DataFrame:  # noqa: ARG002  # for those who estimate
        """Targets with what can be told of those that were not measured."""
        return targets

    def _fit_scales(self, features: pd.DataFrame, targets: pd.DataFrame) -> dict[str, float]:
        """What `_estimates` needs to know of the training data."""
        raise NotImplementedError

    def _estimates(self, features: pd.DataFrame) -> Floats:
        """What the targets are divided by; shape (rows, targets)."""
        raise NotImplementedError

    def _grow_for(self, columns: NDArray[np.intp], matrix: Matrix, learnt: Floats) -> Trees:
        """Trees that give some of the targets, their splits chosen with an eye to all that these rows have."""
        known = np.flatnonzero(np.isfinite(learnt).all(axis=0)) if self.shares_splits else columns
        trees = self._grow(matrix, learnt[:, known])
        return replace(trees, value=trees.value[:, np.searchsorted(known, columns)])

    def _grow(self, matrix: Matrix, learnt: Floats) -> Trees:
        """Trees fitted on encoded features and on what is learnt of each target; shape (rows, targets)."""
        forest = self._forest(len(matrix))
        # scikit-learn wants a single target flat
        forest.fit(matrix, learnt[:, 0] if learnt.shape[1] == 1 else learnt)
        return Trees.from_forest(forest)

    def _forest(self, rows: int) -> Any:
        """An unfitted forest for so many rows."""
        raise NotImplementedError

    @property
    def _settings(self) -> dict[str, Any]:
        """What scikit-learn is told of any forest."""
        return {
            "max_features": self.max_features, "min_samples_leaf": self.leaf, "random_state": self.seed,
            "n_jobs": self._jobs,
        }  # fmt: skip

    def _link(self, ratios: Floats) -> Floats:
        """What the forest learns of the ratio of targets to estimates."""
        return ratios

    def _inverse_link(self, learnt: Floats) -> Floats:
        return learnt

    def _rounded(self, value: Matrix) -> Matrix:
        """Values of leaves with no more digits than are needed; other digits would not compress."""
        return to_bits(value, _VALUE_BITS)


def _known_together(known: NDArray[np.bool_]) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows and columns of the targets that the same rows have: these share a forest; `known` of shape (rows, targets).

    Targets that share their causes are best learnt by one forest, which also takes a fifth of the time of five.
    """
    together: dict[bytes, list[int]] = {}
    for column in range(known.shape[1]):
        together.setdefault(known[:, column].tobytes(), []).append(column)
    return [(np.flatnonzero(known[:, columns[0]]), np.array(columns)) for columns in together.values()]


class RooflinePredictor(CostPredictor):
    """Extremely randomised trees (Geurts, Ernst and Wehenkel, Mach. Learn. 63, 2006) on log(cost / physical estimate).

    The estimate of device and eager time is the roofline without overlap plus a floor, the time of the shortest
    operations; of host time the median; of power the power limit; of dynamic energy the power limit over the estimated
    time. The ratio spans a small range where cost spans six orders of magnitude, and clocks and sizes never seen scale
    as physics has it.

    Parameters
    ----------
    perceptrons
        How many multilayer perceptrons tell device time beside the forest, three parts to one, where there are rows
        enough to teach them (`perceptrons.LEAST_ROWS`); dynamic energy goes with the time. Spreads are the forest's.
    """

    takes_perceptrons: ClassVar[bool] = True

    def __init__(
        self, trees: int = 200, max_features: float = 0.5, seed: int = 0, jobs: int | None = None, leaf: int = 1,
        perceptrons: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(trees, max_features, seed, jobs, leaf)
        self.perceptrons = perceptrons

    def fit(
        self,
        X: pd.DataFrame,  # noqa: N803  # scikit-learn's name
        y: pd.DataFrame,
        beside: tuple[pd.DataFrame, pd.DataFrame] | None = None,
    ) -> Self:
        """See `CostPredictor.fit`."""
        super().fit(X, y)
        self.perceptrons_ = None
        if self.takes_perceptrons and self.perceptrons and TIME_DEVICE_CORRECTED in self.targets_:
            matrix, learnt = self._to_teach(X, y)
            if len(learnt) >= LEAST_ROWS:
                kindred = self._to_teach(*beside) if beside is not None else None
                self.perceptrons_ = Perceptrons.fit(
                    matrix, learnt, self.perceptrons, seed=self.seed, jobs=self._jobs, beside=kindred
                )
        return self

    def _to_teach(self, features: pd.DataFrame, targets: pd.DataFrame) -> tuple[Matrix, Floats]:
        """What perceptrons learn from rows whose device time is known, of classes that were seen."""
        known = targets[TIME_DEVICE_CORRECTED].notna() & features[OPERATION_CLASS].isin(self.classes_)
        features, seconds = features.loc[known], targets.loc[known, TIME_DEVICE_CORRECTED].to_numpy(float)
        estimates = self._estimates(features)[:, self.targets_.index(TIME_DEVICE_CORRECTED)]
        return self._encode(features), self._link(seconds / estimates)

    def _told(self, matrix: Matrix, learnt: Floats) -> Floats:
        if self.perceptrons_ is None:
            return learnt
        column = self.targets_.index(TIME_DEVICE_CORRECTED)
        beside = self.perceptrons_.predict(matrix) - learnt[:, column]
        moved = _OF_PERCEPTRONS * np.clip(beside, -_FARTHEST_APART, _FARTHEST_APART)
        left = [len(self.columns_) + place for place, name in enumerate(self.classes_) if name in LEFT_TO_TREES]
        moved[matrix[:, left].any(axis=1)] = 0.0
        goes_along = np.isin(self.targets_, (TIME_DEVICE_CORRECTED, ENERGY_DYNAMIC_CORRECTED))
        told: Floats = learnt + moved[:, None] * goes_along
        return told

    def _completed(self, features: pd.DataFrame, targets: pd.DataFrame) -> pd.DataFrame:
        return with_energies(features, targets, self.seed)

    def _fit_scales(self, features: pd.DataFrame, targets: pd.DataFrame) -> dict[str, float]:
        scales = {}
        for name in self.targets_:
            if name == TIME_HOST_CORRECTED:
                scales[name] = float(targets[name].median())
            elif name in (TIME_DEVICE_CORRECTED, TIME_EAGER_CORRECTED):
                scales[name] = float(targets[name].quantile(_FLOOR_QUANTILE))
        if ENERGY_DYNAMIC_CORRECTED in self.targets_:
            power = targets[ENERGY_DYNAMIC_CORRECTED] / features[POWER_LIMIT].to_numpy()
            scales[ENERGY_DYNAMIC_CORRECTED] = float(power.quantile(_FLOOR_QUANTILE))
        return scales

    def _forest(self, rows: int) -> Any:
        from sklearn.ensemble import ExtraTreesRegressor

        sampling = {"bootstrap": True, "max_samples": ROWS_PER_TREE} if rows > ROWS_PER_TREE else {}
        return ExtraTreesRegressor(self.trees, **self._settings, **sampling)

    def _estimates(self, features: pd.DataFrame) -> Floats:
        roofline_s = features[ROOFLINE_TIME].to_numpy(float)
        limit_w = features[POWER_LIMIT].to_numpy(float)
        estimates = {
            TIME_HOST_CORRECTED: np.full(len(features), self.scales_.get(TIME_HOST_CORRECTED, 1.0)),
            POWER_CORRECTED: limit_w,
            ENERGY_DYNAMIC_CORRECTED: limit_w * (roofline_s + self.scales_.get(ENERGY_DYNAMIC_CORRECTED, 0.0)),
        }
        columns = [estimates[name] if name in estimates else roofline_s + self.scales_[name] for name in self.targets_]
        return np.column_stack(columns)

    def _link(self, ratios: Floats) -> Floats:
        return np.log(ratios)

    def _inverse_link(self, learnt: Floats) -> Floats:
        return np.exp(learnt)

    def _rounded(self, value: Matrix) -> Matrix:
        steps: Matrix = np.rint(value * _STEPS) / _STEPS
        return steps


class ForestPredictor(CostPredictor):
    """Random forest (Breiman, Mach. Learn. 45, 2001) on the costs themselves, each scaled by its standard deviation."""

    def _fit_scales(self, features: pd.DataFrame, targets: pd.DataFrame) -> dict[str, float]:  # noqa: ARG002
        return {name: float(targets[name].std(ddof=0)) or 1.0 for name in self.targets_}

    def _forest(self, rows: int) -> Any:
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(self.trees, max_samples=min(rows, ROWS_PER_TREE), **self._settings)

    def _relative_spread(self, mean: Floats, spread: Floats) -> Floats:
        return spread / np.maximum(np.abs(mean), 1e-9)

    def _estimates(self, features: pd.DataFrame) -> Floats:
        scales = np.array([self.scales_[name] for name in self.targets_])
        return np.broadcast_to(scales, (len(features), len(scales)))


class BaselinePredictor(RooflinePredictor):
    """The physical estimate times one factor for each class and target: what the others have to beat.

    The factor is the geometric mean of measured over estimated; a class never learnt from has that of one that was.
    """

    takes_perceptrons: ClassVar[bool] = False

    def _grow(self, matrix: Matrix, learnt: Floats) -> Trees:
        from sklearn.ensemble import RandomForestRegressor

        classes_only = matrix.copy()
        classes_only[:, : len(self.columns_)] = 0
        one_tree = RandomForestRegressor(1, bootstrap=False, random_state=self.seed, n_jobs=1)
        one_tree.fit(classes_only, learnt[:, 0] if learnt.shape[1] == 1 else learnt)
        return Trees.from_forest(one_tree)


class XgboostPredictor(RooflinePredictor):
    """Gradient boosting by XGBoost (Chen and Guestrin, KDD 2016) on log(cost / physical estimate).

    `trees` are grown for each target, and `max_features` is tried at each split. XGBoost fits only: its trees become
    plain arrays, so neither predicting nor reading a predictor needs it.
    """

    requires = "xgboost"
    shares_splits = False
    takes_perceptrons: ClassVar[bool] = False

    def _relative_spread(self, mean: Floats, spread: Floats) -> Floats:  # noqa: ARG002  # trees add up: no spread
        return np.zeros_like(mean)

    def _grow(self, matrix: Matrix, learnt: Floats) -> Trees:
        import xgboost

        # one thread each: sums of histograms depend on the number of threads, targets do not depend on each other
        settings = {
            **_BOOSTING, "colsample_bynode": self.max_features, "seed": self.seed, "nthread": 1, "base_score": 0.0
        }  # fmt: skip
        centre = learnt.mean(axis=0)

        def boosted(column: int) -> Any:
            data = xgboost.DMatrix(matrix, learnt[:, column] - centre[column], nthread=1)
            return xgboost.train(settings, data, num_boost_round=self.trees)

        with ThreadPoolExecutor(self._jobs) as pool:
            boosters = list(pool.map(boosted, range(learnt.shape[1])))
        return Trees.from_boosters(boosters, centre)


PREDICTORS: dict[str, type[CostPredictor]] = {
    "roofline": RooflinePredictor,
    "forest": ForestPredictor,
    "xgboost": XgboostPredictor,
    "baseline": BaselinePredictor,
}
"""Predictors by their name in a configuration."""


def check_installed(names: Iterable[str]) -> None:
    """Refuse predictors whose library is missing, before work is begun.

    MissingLibraryError names the predictor and how its library is installed.
    """
    for name in names:
        library = PREDICTORS[name].requires
        if library and importlib.util.find_spec(library) is None:
            raise MissingLibraryError(
                f"fit.predictors: {name} needs the library {library}, which is not installed. "
                f"Run `pip install 'clockwatt[{library}]'`, or take {name} off the list in config.yaml."
            )
