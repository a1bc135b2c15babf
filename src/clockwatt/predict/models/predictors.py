"""The predictors that a campaign can choose from.

`RooflinePredictor` learns how far an operation is from a physical estimate, `XgboostPredictor` the same by boosting,
`BaselinePredictor` one factor for each class; `ForestPredictor` learns the cost itself, as the thesis that this project
goes back to did.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.errors import ClockwattError
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.features.points import POWER_LIMIT, ROOFLINE_TIME
from clockwatt.predict.models.cost_predictor import (
    ROWS_PER_TREE,
    CostPredictor,
    Floats,
)
from clockwatt.predict.models.perceptrons import LEAST_ROWS, Perceptrons
from clockwatt.predict.models.power import with_energies
from clockwatt.predict.models.trees import Trees
from clockwatt.schema.costs import (
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_EAGER_CORRECTED,
    TIME_HOST_CORRECTED,
)

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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {**super().get_params(deep), "perceptrons": self.perceptrons}

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

    def _to_teach(self, features: pd.DataFrame, targets: pd.DataFrame) -> tuple[NDArray[np.float32], Floats]:
        """What perceptrons learn from rows whose device time is known, of classes that were seen."""
        known = targets[TIME_DEVICE_CORRECTED].notna() & features[OPERATION_CLASS].isin(self.classes_)
        features, seconds = features.loc[known], targets.loc[known, TIME_DEVICE_CORRECTED].to_numpy(float)
        estimates = self._estimates(features)[:, self.targets_.index(TIME_DEVICE_CORRECTED)]
        return self._encode(features), self._link(seconds / estimates)

    def _told(self, matrix: NDArray[np.float32], learnt: Floats) -> Floats:
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

        sampling = self._sampling(rows) if rows > ROWS_PER_TREE else {}
        return ExtraTreesRegressor(
            self.trees, max_features=self.max_features, min_samples_leaf=self.leaf, random_state=self.seed,
            n_jobs=self._jobs, **sampling,
        )  # fmt: skip

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

    def _rounded(self, value: NDArray[np.float32]) -> NDArray[np.float32]:
        steps: NDArray[np.float32] = np.rint(value * _STEPS) / _STEPS
        return steps


class ForestPredictor(CostPredictor):
    """Random forest (Breiman, Mach. Learn. 45, 2001) on the costs themselves, each scaled by its standard deviation."""

    def _fit_scales(self, features: pd.DataFrame, targets: pd.DataFrame) -> dict[str, float]:  # noqa: ARG002
        return {name: float(targets[name].std(ddof=0)) or 1.0 for name in self.targets_}

    def _forest(self, rows: int) -> Any:
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(
            self.trees,
            max_features=self.max_features,
            min_samples_leaf=self.leaf,
            random_state=self.seed,
            n_jobs=self._jobs,
            **self._sampling(rows),
        )

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

    def _grow(self, matrix: NDArray[np.float32], learnt: Floats) -> Trees:
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

    def _grow(self, matrix: NDArray[np.float32], learnt: Floats) -> Trees:
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

    Raises
    ------
    MissingLibraryError
        Naming the predictor and how its library is installed.
    """
    for name in names:
        library = PREDICTORS[name].requires
        if library and importlib.util.find_spec(library) is None:
            raise MissingLibraryError(
                f"fit.predictors: {name} needs the library {library}, which is not installed. "
                f"Run `pip install 'clockwatt[{library}]'`, or take {name} off the list in config.yaml."
            )
