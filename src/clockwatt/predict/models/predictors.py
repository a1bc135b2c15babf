"""The predictors of the cost of an operation that a campaign can choose from.

`RooflinePredictor` learns how far an operation is from a physical estimate, `XgboostPredictor` the same by boosting,
`BaselinePredictor` one factor for each class; `ForestPredictor` learns the cost itself, as the thesis that this project
goes back to did. Only fitting imports scikit-learn. On disk they are plain arrays and JSON text in one .npz file:
loading one never runs code from it.
"""

from __future__ import annotations

import importlib.util
import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.io.files import written_aside
from clockwatt.io.rounding import to_bits
from clockwatt.predict.features import OPERATION_CLASS, POWER_LIMIT, ROOFLINE_TIME
from clockwatt.predict.models.neural_ensemble import LEAST_ROWS, MalformedPerceptronsError, Perceptrons
from clockwatt.predict.models.trees import MalformedTreesError, Trees, shortened
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
"""Steps per unit in which logarithms are stored: rounding moves a mean over trees by less than half a step, 0.05 %."""

_TIME, _ENERGY = TIME_DEVICE_CORRECTED, ENERGY_DYNAMIC_CORRECTED
FEWEST_ENERGIES = 20
"""Fewest operations with energy to estimate that of others."""
_POWER_TREES = 25
_LEAST_SHARE = 1e-4

_OF_PERCEPTRONS = 0.75
"""Weight of the neural network ensemble in its mean with the forest, of logarithms of device time."""
_FARTHEST_APART = 1.0
"""Largest difference allowed between the two: outside the training data an MLP may predict any value."""

FOREST_ONLY_CLASSES = frozenset({"SGD", "div"})
"""Forest-only classes: the MLPs predict them worse than the forest when a fifth of the shipped data is held out. For
`div`, too little was held out to decide."""

_BOOSTING = {"objective": "reg:squarederror", "tree_method": "hist", "eta": 0.15, "max_depth": 8, "subsample": 0.8}


class MissingLibraryError(ClockwattError):
    """An optional library is not installed."""


class CostPredictor:
    """Base class of all predictors: it encodes features, samples rows and stores trees as plain arrays.

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
        Numeric features in use: those that vary in the training data.
    scales_
        Fitted numbers that the targets are scaled with.
    trees_, perceptrons_
        The forest, and the neural network ensemble for device time; None without one.
    """

    requires: ClassVar[str] = ""
    """Library that fitting needs beyond what is always installed; empty for none."""

    shares_splits: ClassVar[bool] = True
    """Whether one tree predicts several targets, so that each target helps to choose the splits for the others."""

    takes_perceptrons: ClassVar[bool] = False
    """Whether MLPs may predict device time together with the trees."""

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
        beside: tuple[pd.DataFrame, pd.DataFrame] | None = None,  # noqa: ARG002  # for MLPs
    ) -> Self:
        """Fit on operations at operating points.

        Parameters
        ----------
        X
            From `features.features_at`; shape (rows, features).
        y
            Columns of `TARGETS`; the roofline predictor needs them positive. Each target is fitted to the rows that
            have it; a target that no row has is not fitted. Shape (rows, targets).
        beside
            `X` and `y` of the other pass. Only MLPs are trained on them too, not the trees.
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
        """Predict every fitted target; shape (rows, targets), in the units of the targets' names."""
        return self.predict_with_spread(X)[0]

    def predict_with_spread(self, X: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:  # noqa: N803
        """Predict, and return the standard deviation over trees of the logarithm too; shape (rows, targets)."""
        matrix = self._encode(X)
        mean, spread = self.trees_.mean_and_spread(matrix)
        values = self._inverse_link(self._told(matrix, mean)) * self._estimates(X)
        predicted, spreads = (
            pd.DataFrame(table, index=X.index, columns=self.targets_)
            for table in (values, self._relative_spread(mean, spread))
        )
        return predicted, spreads

    def _told(self, matrix: Matrix, learnt: Floats) -> Floats:  # noqa: ARG002  # for subclasses with MLPs
        """Combine the predictions of the trees with those of other models on the same encoded features."""
        return learnt

    def _relative_spread(self, mean: Floats, spread: Floats) -> Floats:  # noqa: ARG002  # for subclasses that fit the cost
        """Return the standard deviation of a cost's logarithm, from mean and standard deviation over trees."""
        return spread

    def _encode(self, features: pd.DataFrame) -> Matrix:
        classes = features[OPERATION_CLASS].to_numpy()[:, None] == np.array(self.classes_, dtype=object)[None, :]
        numbers = features[self.columns_].to_numpy(np.float32)
        return np.hstack([numbers, classes.astype(np.float32)])

    @property
    def _jobs(self) -> int:
        return self.jobs or usable_threads()

    def _completed(self, features: pd.DataFrame, targets: pd.DataFrame) -> pd.DataFrame:  # noqa: ARG002  # see subclasses
        """Return the targets, with estimates of missing ones where the predictor can make them."""
        return targets

    def _fit_scales(self, features: pd.DataFrame, targets: pd.DataFrame) -> dict[str, float]:
        """Return the numbers of the training data that `_estimates` needs."""
        raise NotImplementedError

    def _estimates(self, features: pd.DataFrame) -> Floats:
        """Return the divisors of the targets; shape (rows, targets)."""
        raise NotImplementedError

    def _grow_for(self, columns: NDArray[np.intp], matrix: Matrix, learnt: Floats) -> Trees:
        """Fit trees for some of the targets; all targets that these rows have take part in choosing the splits."""
        known = np.flatnonzero(np.isfinite(learnt).all(axis=0)) if self.shares_splits else columns
        trees = self._grow(matrix, learnt[:, known])
        return replace(trees, value=trees.value[:, np.searchsorted(known, columns)])

    def _grow(self, matrix: Matrix, learnt: Floats) -> Trees:
        """Fit trees to encoded features and transformed targets; shape (rows, targets)."""
        forest = self._forest(len(matrix))
        # scikit-learn wants a single target flat
        forest.fit(matrix, learnt[:, 0] if learnt.shape[1] == 1 else learnt)
        return Trees.from_forest(forest)

    def _forest(self, rows: int) -> Any:
        """An unfitted forest for so many rows."""
        raise NotImplementedError

    @property
    def _settings(self) -> dict[str, Any]:
        """Return the scikit-learn settings that all forests share."""
        return {
            "max_features": self.max_features, "min_samples_leaf": self.leaf, "random_state": self.seed,
            "n_jobs": self._jobs,
        }  # fmt: skip

    def _link(self, ratios: Floats) -> Floats:
        """Transform the ratio of targets to estimates into what the forest is fitted to."""
        return ratios

    def _inverse_link(self, learnt: Floats) -> Floats:
        return learnt

    def _rounded(self, value: Matrix) -> Matrix:
        """Round the values of leaves to the digits that are needed, so that they compress well."""
        return to_bits(value, _VALUE_BITS)


def _known_together(known: NDArray[np.bool_]) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Group targets that are known in the same rows, since these share a forest; `known` has shape (rows, targets).

    One forest for related targets is more accurate than one per target, and faster to fit.
    """
    together: dict[bytes, list[int]] = {}
    for column in range(known.shape[1]):
        together.setdefault(known[:, column].tobytes(), []).append(column)
    return [(np.flatnonzero(known[:, columns[0]]), np.array(columns)) for columns in together.values()]


class RooflinePredictor(CostPredictor):
    """Extremely randomised trees (Geurts, Ernst and Wehenkel, Mach. Learn. 63, 2006) on log(cost / physical estimate).

    The estimate of device and eager time is the roofline without overlap plus a floor, the time of the shortest
    operations; of host time the median; of power the power limit; of dynamic energy the power limit over the estimated
    time. The ratio varies far less than the cost does, and the estimate scales unseen clocks and sizes as physics
    predicts.

    Parameters
    ----------
    perceptrons
        Number of MLPs that predict device time together with the forest. They have three quarters of the weight, and
        are used only with enough rows to train them (`neural_ensemble.LEAST_ROWS`). Dynamic energy scales with the
        time. Spreads are the forest's.
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
        """Select what MLPs are trained on: rows with a device time, of classes in the training data."""
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
        left = [len(self.columns_) + place for place, name in enumerate(self.classes_) if name in FOREST_ONLY_CLASSES]
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
    """Baseline for the other predictors: the physical estimate times one factor for each class and target.

    The factor is the geometric mean of measured over estimated. A class without training rows takes another class's
    factor.
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
"""Configuration name to predictor class."""


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


FORMAT = 3
_DESCRIPTION = "description"
_MOST_BYTES = 2_000_000_000
_DAMAGED = (
    OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, AttributeError, MemoryError,
    RuntimeError,
)  # fmt: skip
"""Exceptions from reading a file that `save_predictor` did not write."""
_FITTED = ("targets_", "columns_", "classes_", "scales_")


def save_predictor(predictor: CostPredictor, path: Path) -> None:
    """Write a fitted predictor; the same predictor gives the same bytes.

    OutputError if it cannot be written.
    """
    (name,) = (name for name, kind in PREDICTORS.items() if type(predictor) is kind)
    description = {
        "format": FORMAT,
        "predictor": name,
        "parameters": predictor.get_params(),
        **{attribute: getattr(predictor, attribute) for attribute in _FITTED},
    }
    text = np.frombuffer(json.dumps(description, sort_keys=True).encode(), dtype=np.uint8)
    arrays = predictor.trees_.arrays()
    if predictor.perceptrons_ is not None:
        arrays |= predictor.perceptrons_.arrays()
    buffer = io.BytesIO()
    # not compressed: loading would take longer in each answer
    np.savez(buffer, allow_pickle=False, **{_DESCRIPTION: text, **arrays})
    with written_aside(path) as aside:
        aside.write_bytes(buffer.getvalue())


def load_predictor(path: Path) -> CostPredictor:
    """Read a fitted predictor.

    DataFileError if the file is missing, or is not a predictor that `save_predictor` wrote; nothing in it is ever
    executed.
    """
    try:
        return _predictor(_read(path))
    except FileNotFoundError:
        raise DataFileError(f"{path}: no such file. Run `clockwatt fit` first.") from None
    except _DAMAGED as error:
        raise DataFileError(
            f"{path}: not a predictor of this version of clockwatt ({error}). Delete it and run `clockwatt fit` again."
        ) from error


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an untrusted file; refuse any larger than a predictor's."""
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES:,} bytes")
        # read whole before parsing, so that zipfile checks the checksum, which NumPy alone does not
        contents = {name.removesuffix(".npy"): io.BytesIO(archive.read(name)) for name in archive.namelist()}
    return {name: np.lib.format.read_array(content, allow_pickle=False) for name, content in contents.items()}


def _predictor(arrays: dict[str, NDArray[Any]]) -> CostPredictor:
    description = json.loads(arrays[_DESCRIPTION].tobytes())
    if description["format"] != FORMAT:
        raise ValueError(f"format {description['format']}, not {FORMAT}")
    predictor = PREDICTORS[description["predictor"]](**description["parameters"])
    for attribute in _FITTED:
        setattr(predictor, attribute, description[attribute])
    _check(predictor)
    features = len(predictor.columns_) + len(predictor.classes_)
    predictor.trees_ = Trees.from_arrays(arrays, features=features)
    if predictor.trees_.value.shape[1] != len(predictor.targets_):
        raise MalformedTreesError("the trees give another number of targets")
    perceptrons = Perceptrons.from_arrays(arrays, features=features)
    if perceptrons is not None:
        if not predictor.takes_perceptrons or TIME_DEVICE_CORRECTED not in predictor.targets_:
            raise MalformedPerceptronsError("there is no device time for the MLPs to predict")
        predictor.perceptrons_ = perceptrons
    return predictor


def _check(predictor: CostPredictor) -> None:
    for names in (predictor.targets_, predictor.columns_, predictor.classes_):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("a list of names is something else")
    targets = predictor.targets_
    if not targets or not set(targets) <= set(TARGETS) or len(set(targets)) < len(targets):
        raise ValueError(f"targets {targets}")
    scales = predictor.scales_
    if not isinstance(scales, dict) or not all(isinstance(value, float) for value in scales.values()):
        raise TypeError("scales are not numbers")
    if not all(math.isfinite(value) and value > 0 for value in scales.values()):
        raise ValueError("a scale is no number above 0")


def with_energies(features: pd.DataFrame, targets: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return targets with dynamic energies added where only the device time was measured.

    The power of a kernel depends on its use of arithmetic units and memory, far more than on the operation. So a forest
    predicts power from the shares of peak and bandwidth that an operation reaches in its measured time.

    Parameters
    ----------
    features
        From `features.features_at`; shape (rows, features).
    targets
        Columns of `TARGETS`, in their units; shape (rows, targets).
    seed
        Of the forest.

    Returns
    -------
    pandas.DataFrame
        The targets, unchanged if none lacks energy or too few have it.
    """
    if _ENERGY not in targets or _TIME not in targets:
        return targets
    time_s, energy_j = (targets[name].to_numpy(float, copy=True) for name in (_TIME, _ENERGY))
    known = (energy_j > 0) & (time_s > 0)
    lacking = np.isnan(energy_j) & (time_s > 0)
    if not lacking.any() or known.sum() < FEWEST_ENERGIES:
        return targets
    from sklearn.ensemble import ExtraTreesRegressor

    limit_w = features[POWER_LIMIT].to_numpy(float)
    matrix = utilisation(features, time_s)
    forest = ExtraTreesRegressor(_POWER_TREES, max_features=0.5, min_samples_leaf=2, random_state=seed, n_jobs=1)
    forest.fit(matrix[known], np.log(energy_j[known] / time_s[known] / limit_w[known]))
    energy_j[lacking] = np.exp(forest.predict(matrix[lacking])) * limit_w[lacking] * time_s[lacking]
    return targets.assign(**{_ENERGY: energy_j})


def utilisation(features: pd.DataFrame, time_s: Floats) -> NDArray[np.float32]:
    """Return features of operations, and the shares of peak and bandwidth that they reach; shape (rows, features)."""
    reached = [np.exp2(features[name].to_numpy(float)) / time_s for name in ("log_compute_time", "log_memory_time")]
    shares = [np.log2(share + _LEAST_SHARE) for share in reached]
    of_roofline = np.log2(features[ROOFLINE_TIME].to_numpy(float) / time_s)
    numbers = features.drop(columns=[OPERATION_CLASS]).to_numpy(np.float32)
    found: NDArray[np.float32] = np.column_stack([numbers, *shares, of_roofline, np.log2(time_s * 1e6)]).astype(
        np.float32
    )
    return np.nan_to_num(found, posinf=0.0, neginf=0.0)
