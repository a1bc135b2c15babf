"""Transfer from another GPU: training data for a GPU on which few operations were measured.

Operations measured on the other GPU alone get an estimate of their time on this one. It is fitted to operations
measured on both; without any, it follows from the rooflines. Only forests are trained on these estimates. Errors and
intervals come from the GPU's own operations, and an estimate never counts as measured.

The model of `log(own / other's)` is a share of the log of the ratio of both rooflines, plus a term for the operation's
class. It is fitted by Bayesian linear regression, with its two variances by empirical Bayes. The prior needs no
measurement. A class with few operations is shrunk towards the mean of all; without any operation the prior stays. The
residuals depend on sizes and settings: a small forest is fitted to them if there are some tens of operations, and
weighted by how well it predicts unseen ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.predict.features import OPERATION_CLASS, ROOFLINE_TIME, features_of, operation_features
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.models.training_data import CELL, Samples, TrainingData, groups_of, keys_of
from clockwatt.schema import layout, tables
from clockwatt.schema.costs import CORRECTED

Floats = NDArray[np.float64]

_DEVICE, _HOST, _EAGER, _DYNAMIC, _POWER = CORRECTED

_LEAST_SHARED = 10
"""Fewest operations measured on both GPUs to compare their hosts or powers."""
FLOOR_S = 4e-6
"""Shortest time of a kernel on any card. It is added to rooflines, so that short kernels take nearly the same on
all."""

PRIOR_SHARE = 0.5
"""Prior share of the rooflines' ratio by which cards differ."""
_SHARE_DEVIATION, _OVERALL_DEVIATION = 0.5, 0.2
_CLASS_DEVIATIONS = (0.02, 0.05, 0.1, 0.2, 0.4)
_NOISES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Candidates for the standard deviations of class factors, and of operations about their class, in logs. The pair with
the highest likelihood is used."""
_UNKNOWN = (0.2, 0.2)
"""Both standard deviations if no operation was measured on the new card."""
_HEAVY = 2.0
"""Residual in standard deviations from which an operation has less weight: two cards may run different kernels."""
_ROUNDS = 5
_FOREST_FROM, _TREES, _LEAF = 30, 50, 3
"""Fewest operations on the new card to fit a forest to the residuals; its trees, and fewest operations in a leaf."""
_NORMAL_90 = 1.645


def transfer_sources(dataset_dir: Path, gpus: list[str]) -> dict[str, str]:
    """Return for each GPU the other one with the most operations that it lacks; virtual and measured never mix.

    DataFileError if the dataset is missing or damaged.
    """
    table = files.read_table(
        dataset_dir / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA, ["gpu", "virtual", "subject_id", "pass"]
    )
    measured = {
        str(gpu): (bool(part["virtual"].iloc[0]), set(zip(part["subject_id"], part["pass"], strict=True)))
        for gpu, part in table.to_pandas().groupby("gpu")
    }
    sources = {}
    for gpu in gpus:
        virtual, own = measured[gpu]
        lacking = {
            other: len(operations - own)
            for other, (kind, operations) in measured.items()
            if other in gpus and kind == virtual
        }
        most = max(lacking, key=lambda other: lacking[other])
        if lacking[most]:
            sources[gpu] = most
    return sources


def with_borrowed(data: TrainingData, other: Samples) -> TrainingData:
    """Add cells of operations measured on another GPU alone; rows, on which predictors are evaluated, do not change.

    Nothing is transferred where one of the two has back-to-back times alone.
    """
    theirs = other.learnt(data.pass_)
    theirs = theirs[theirs["point"].isin(data.cells["point"]) & theirs[_DEVICE].notna()]
    theirs = theirs.sort_values(CELL, ignore_index=True)
    described = other.operations[other.operations["pass"] == data.pass_]
    if theirs.empty or data.targets[_DEVICE].isna().all():
        return data
    operations = operation_features(described[described["operation_id"].isin(theirs["operation_id"])])
    here, there = (features_of(theirs[CELL], operations, one) for one in (data.spec, find_spec(other.gpu_name)))
    own = data.targets.set_index(keys_of(data.cells))[data.learnt]
    own = own.reindex(keys_of(theirs)).reset_index(drop=True)
    carried = _carried(theirs, own, here, there)
    lacking = ~keys_of(theirs).isin(keys_of(data.cells))
    groups = groups_of(operations, described)
    blocks = described.loc[described["block"].notna(), "operation_id"]

    def both(mine: pd.DataFrame, borrowed: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([mine, borrowed[lacking][mine.columns]], ignore_index=True)

    return replace(
        data,
        cells=both(data.cells, theirs),
        features=both(data.features, here),
        targets=both(data.targets, carried),
        groups=pd.concat([data.groups, theirs.loc[lacking, "operation_id"].map(groups)], ignore_index=True),
        learnt=np.concatenate([data.learnt, np.ones(int(lacking.sum()), dtype=bool)]),
        blocks=data.blocks | frozenset(blocks),
        borrowed=int(lacking.sum()),
    )


def _carried(theirs: pd.DataFrame, own: pd.DataFrame, here: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    """Return costs of the other GPU's operations on this one; `own` has those measured here, in the same order."""
    their_s, own_s = (rows[_DEVICE].to_numpy(float) for rows in (theirs, own))
    classes = here[OPERATION_CLASS].to_numpy(object)
    other = OtherCard(their_s, there[ROOFLINE_TIME].to_numpy(float))
    rooflines_s = here[ROOFLINE_TIME].to_numpy(float)
    shared = np.isfinite(own_s) & (own_s > 0)
    numbers = here.drop(columns=[OPERATION_CLASS]).to_numpy(float)
    transfer = Transfer().fit(classes[shared], other.among(shared), rooflines_s[shared], own_s[shared], numbers[shared])
    device_s, _ = transfer.predict(classes, other, rooflines_s, numbers)
    longer = device_s / their_s
    limits = (here["power_limit_w"] / there["power_limit_w"]).to_numpy(float)
    host_s = theirs[_HOST].to_numpy(float) * _ratio(own[_HOST], theirs[_HOST])
    drawn = _ratio(own[_DYNAMIC] / own_s, theirs[_DYNAMIC] / their_s, limits)
    found = {
        _DEVICE: device_s,
        _HOST: host_s,
        _EAGER: np.fmax(theirs[_EAGER].to_numpy(float) * longer, host_s + 0 * theirs[_EAGER].to_numpy(float)),
        _POWER: theirs[_POWER].to_numpy(float) * limits,
        _DYNAMIC: theirs[_DYNAMIC].to_numpy(float) * longer * drawn,
    }
    return pd.DataFrame({name: found[name] for name in TARGETS}, index=theirs.index)


def _ratio(own: pd.Series, theirs: pd.Series, otherwise: np.ndarray | float = 1.0) -> np.ndarray | float:
    """Return the median ratio of costs here to there of shared operations; `otherwise` where few are shared."""
    logs = np.log(own.to_numpy(float) / theirs.to_numpy(float))
    known = logs[np.isfinite(logs)]
    return float(np.exp(np.median(known))) if len(known) >= _LEAST_SHARED else otherwise


@dataclass(frozen=True)
class OtherCard:
    """Operations on the card that times are transferred from.

    Attributes
    ----------
    times_s, rooflines_s
        Times there, measured or predicted, and rooflines there; shape (operations,).
    """

    times_s: Floats
    rooflines_s: Floats

    def log_rooflines(self, rooflines_s: Floats) -> Floats:
        """Return logs of the new card's rooflines over this one's, each plus `FLOOR_S`; shape (operations,)."""
        ratio: Floats = np.log((rooflines_s + FLOOR_S) / (self.rooflines_s + FLOOR_S))
        return ratio

    def among(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> OtherCard:
        """Return some of the operations."""
        return OtherCard(self.times_s[rows], self.rooflines_s[rows])


@dataclass
class Transfer:
    """Estimate times of operations on a new card from those on another.

    Times measured on the other card and times predicted there have different residuals: each needs its own transfer.

    Attributes
    ----------
    class_deviation_, noise_
        Standard deviations in logs of classes, and of operations about their class.
    forest_, worth_
        Forest that predicts the residuals from features of the operations, None without features or with few
        operations; and the weight of its predictions.
    """

    class_deviation_: float = _UNKNOWN[0]
    noise_: float = _UNKNOWN[1]
    forest_: Any = None
    worth_: float = 0.0
    _classes: list[str] = field(default_factory=list)
    _mean: Floats = field(default_factory=lambda: np.array([0.0, PRIOR_SHARE]))
    _covariance: Floats = field(default_factory=lambda: np.diag([_OVERALL_DEVIATION**2, _SHARE_DEVIATION**2]))

    def fit(
        self, classes: NDArray[np.object_], other: OtherCard, rooflines_s: Floats, own_s: Floats,
        features: Floats | None = None,
    ) -> Self:  # fmt: skip
        """Fit to operations measured on the new card.

        Parameters
        ----------
        classes
            Operation classes; shape (operations,).
        other
            The same operations on the other card.
        rooflines_s, own_s
            On the new card; shape (operations,).
        features
            Features of each operation on the new card; shape (operations, features).
        """
        if not len(own_s):
            return self
        self._classes = sorted({str(name) for name in classes})
        log_times, log_rooflines = np.log(own_s / other.times_s), other.log_rooflines(rooflines_s)
        design = self._design(classes, log_rooflines)
        weights = np.ones(len(log_times))
        for _ in range(_ROUNDS):
            self.class_deviation_, self.noise_ = max(
                product(_CLASS_DEVIATIONS, _NOISES), key=lambda pair: _log_evidence(design, log_times, weights, *pair)
            )
            self._mean, self._covariance = _posterior(design, log_times, weights, self.class_deviation_, self.noise_)
            off = np.abs(log_times - design @ self._mean) / self.noise_
            weights = np.minimum(1.0, _HEAVY / np.maximum(off, 1e-9))
        if features is not None and len(log_times) >= _FOREST_FROM:
            numbers = _numbers(features, other, log_rooflines)
            self._fit_forest(numbers, log_times - design @ self._mean, weights)
        return self

    def _fit_forest(self, features: Floats, left_over: Floats, weights: Floats) -> None:
        """Fit the forest to the residuals; its weight follows from its predictions of held-out operations."""
        from sklearn.ensemble import ExtraTreesRegressor

        self.forest_ = ExtraTreesRegressor(
            _TREES, max_features=0.5, min_samples_leaf=_LEAF, bootstrap=True, oob_score=True, random_state=0, n_jobs=1
        ).fit(features, left_over)
        told = self.forest_.oob_prediction_
        worth = np.sum(weights * told * left_over) / max(np.sum(weights * told**2), 1e-12)
        self.worth_ = float(np.clip(worth, 0.0, 1.0))

    def predict(
        self, classes: NDArray[np.object_], other: OtherCard, rooflines_s: Floats, features: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return times on the new card in s, shape (operations,), and ends of their 90 % intervals, (operations, 2)."""
        log_rooflines = other.log_rooflines(rooflines_s)
        design = self._design(classes, log_rooflines)
        unseen = ~np.isin(classes.astype(str), self._classes)
        of_fit = np.einsum("ij,jk,ik->i", design, self._covariance, design)
        deviations = np.sqrt(of_fit + self.noise_**2 + np.where(unseen, self.class_deviation_**2, 0.0))
        logs = design @ self._mean
        if self.forest_ is not None and features is not None and len(classes):
            logs = logs + self.worth_ * self.forest_.predict(_numbers(features, other, log_rooflines))
        expected, widths = other.times_s * np.exp(logs), np.exp(_NORMAL_90 * deviations)
        return expected, np.column_stack([expected / widths, expected * widths])

    def _design(self, classes: NDArray[np.object_], log_rooflines: Floats) -> Floats:
        members = classes.astype(str)[:, None] == np.array(self._classes, dtype=str)[None, :]
        return np.column_stack([np.ones(len(log_rooflines)), log_rooflines, members.astype(float)])


def _numbers(features: Floats, other: OtherCard, log_rooflines: Floats) -> Floats:
    """Return features of operations, with the inputs of the linear model; shape (operations, features)."""
    return np.column_stack([features, np.log(other.times_s), log_rooflines])


def _prior(design: Floats, class_deviation: float) -> tuple[Floats, Floats]:
    """Return the prior mean and variances of the coefficients; shape (coefficients,) each."""
    classes = design.shape[1] - 2
    deviations = np.array([_OVERALL_DEVIATION, _SHARE_DEVIATION, *[class_deviation] * classes])
    return np.array([0.0, PRIOR_SHARE, *[0.0] * classes]), deviations**2


def _posterior(
    design: Floats, values: Floats, weights: Floats, class_deviation: float, noise: float
) -> tuple[Floats, Floats]:
    """Return the posterior mean and covariance of the coefficients."""
    mean, variances = _prior(design, class_deviation)
    precision = weights / noise**2
    precisions = np.diag(1 / variances) + (design.T * precision) @ design
    covariance = np.asarray(np.linalg.inv(precisions), dtype=np.float64)
    return mean + covariance @ (design.T @ (precision * (values - design @ mean))), covariance


def _log_evidence(design: Floats, values: Floats, weights: Floats, class_deviation: float, noise: float) -> float:
    """Return the log marginal likelihood of the values, up to a constant."""
    mean, variances = _prior(design, class_deviation)
    _, covariance = _posterior(design, values, weights, class_deviation, noise)
    left = values - design @ mean
    precision = weights / noise**2
    projected = design.T @ (precision * left)
    squares = float(left @ (precision * left) - projected @ covariance @ projected)
    log_determinant = -np.linalg.slogdet(covariance)[1] + np.log(variances).sum() - np.log(precision).sum()
    return -0.5 * (squares + float(log_determinant))
