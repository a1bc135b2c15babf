"""A card of which little was measured, from another one: the other's time of each operation, carried over.

Times are not the same on both: `log(own / other's)` is taken to be a share of the log of the ratio of both rooflines,
and a factor of the operation's class. Both begin at what is known without any measurement and move as far as operations
measured on the new card say: Bayesian linear regression, its two variances by empirical Bayes, so that a class with few
operations of its own is drawn to all of them, and without any nothing is learnt. What is left over follows from sizes
and settings: a small forest learns it from some tens of operations, as far as that proves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FLOOR_S = 4e-6
"""What a kernel takes on any card, however little it does: added to rooflines, so that short ones are alike."""

PRIOR_SHARE = 0.5
"""Share of the rooflines' ratio that cards differ by where nothing was measured on the new one."""
_SHARE_DEVIATION, _OVERALL_DEVIATION = 0.5, 0.2
_CLASS_DEVIATIONS = (0.02, 0.05, 0.1, 0.2, 0.4)
_NOISES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Of factors of classes, and of operations about their class; in logs. The likeliest pair is taken."""
_UNKNOWN = (0.2, 0.2)
"""Both, without operations of its own."""
_HEAVY = 2.0
"""So many deviations off an operation weighs less: kernels of two cards may be different ones altogether."""
_ROUNDS = 5
_FOREST_FROM, _TREES, _LEAF = 30, 50, 3
"""Operations of its own that it takes to learn what is left over; trees, and fewest operations in a leaf."""
_NORMAL_90 = 1.645


@dataclass
class ClassFactors:
    """What times on one card are over times on another, by class and by the ratio of the rooflines.

    Attributes
    ----------
    class_deviation_, noise_
        Standard deviations in logs of classes, and of operations about their class.
    forest_, worth_
        Tells what these leave over from features of the operations, None without features or with few operations; and
        what share of that is taken.
    """

    class_deviation_: float = _UNKNOWN[0]
    noise_: float = _UNKNOWN[1]
    forest_: Any = None
    worth_: float = 0.0
    _classes: list[str] = field(default_factory=list)
    _mean: Floats = field(default_factory=lambda: np.array([0.0, PRIOR_SHARE]))
    _covariance: Floats = field(default_factory=lambda: np.diag([_OVERALL_DEVIATION**2, _SHARE_DEVIATION**2]))

    def fit(
        self, classes: NDArray[np.object_], log_rooflines: Floats, log_times: Floats, features: Floats | None = None
    ) -> Self:
        """Learn from operations measured on both cards, or predicted on the other.

        Parameters
        ----------
        classes
            Operation classes; shape (operations,).
        log_rooflines, log_times
            Logs of the new card's over the other's rooflines and times; shape (operations,).
        features
            Numbers of each operation; shape (operations, numbers).
        """
        if not len(log_times):
            return self
        self._classes = sorted({str(name) for name in classes})
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
            self._fit_forest(features, log_times - design @ self._mean, weights)
        return self

    def _fit_forest(self, features: Floats, left_over: Floats, weights: Floats) -> None:
        """Learn what is left over; its worth is how far the trees tell it of operations that they did not see."""
        from sklearn.ensemble import ExtraTreesRegressor

        self.forest_ = ExtraTreesRegressor(
            _TREES, max_features=0.5, min_samples_leaf=_LEAF, bootstrap=True, oob_score=True, random_state=0, n_jobs=1
        ).fit(features, left_over)
        told = self.forest_.oob_prediction_
        worth = np.sum(weights * told * left_over) / max(np.sum(weights * told**2), 1e-12)
        self.worth_ = float(np.clip(worth, 0.0, 1.0))

    def predict(
        self, classes: NDArray[np.object_], log_rooflines: Floats, features: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Logs of the ratio of the times, and their standard deviations; shape (operations,) each."""
        design = self._design(classes, log_rooflines)
        unseen = ~np.isin(classes.astype(str), self._classes)
        of_fit = np.einsum("ij,jk,ik->i", design, self._covariance, design)
        variance = of_fit + self.noise_**2 + np.where(unseen, self.class_deviation_**2, 0.0)
        told = 0.0 if self.forest_ is None or not len(classes) else self.worth_ * self.forest_.predict(features)
        return design @ self._mean + told, np.sqrt(variance)

    def _design(self, classes: NDArray[np.object_], log_rooflines: Floats) -> Floats:
        members = classes.astype(str)[:, None] == np.array(self._classes, dtype=str)[None, :]
        return np.column_stack([np.ones(len(log_rooflines)), log_rooflines, members.astype(float)])


@dataclass(frozen=True)
class OtherCard:
    """Operations on the card that a new one is told from.

    Attributes
    ----------
    times_s, rooflines_s
        What they take there, measured or predicted, and their rooflines there; shape (operations,).
    """

    times_s: Floats
    rooflines_s: Floats

    def log_rooflines(self, rooflines_s: Floats) -> Floats:
        """Logs of the new card's rooflines over this one's, each with what any kernel takes; shape (operations,)."""
        ratio: Floats = np.log((rooflines_s + FLOOR_S) / (self.rooflines_s + FLOOR_S))
        return ratio

    def among(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> OtherCard:
        """Some of the operations."""
        return OtherCard(self.times_s[rows], self.rooflines_s[rows])


@dataclass
class Transfer:
    """Times of operations on a new card from those on another.

    What was measured on the other card and what its predictor says leave over different things: each needs a transfer
    of its own.
    """

    factors_: ClassFactors = field(default_factory=ClassFactors)

    def fit(
        self, classes: NDArray[np.object_], other: OtherCard, rooflines_s: Floats, own_s: Floats,
        features: Floats | None = None,
    ) -> Self:  # fmt: skip
        """Learn from operations that were measured on the new card.

        Parameters
        ----------
        classes
            Operation classes; shape (operations,).
        other
            The same operations on the other card.
        rooflines_s, own_s
            On the new card; shape (operations,).
        features
            Numbers of each operation there; shape (operations, numbers).
        """
        logs, rooflines = np.log(own_s / other.times_s), other.log_rooflines(rooflines_s)
        self.factors_.fit(classes, rooflines, logs, _numbers(features, other, rooflines))
        return self

    def predict(
        self, classes: NDArray[np.object_], other: OtherCard, rooflines_s: Floats, features: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Times on the new card in s, shape (operations,), and the ends of their 90 % intervals, (operations, 2)."""
        rooflines = other.log_rooflines(rooflines_s)
        logs, deviations = self.factors_.predict(classes, rooflines, _numbers(features, other, rooflines))
        expected = other.times_s * np.exp(logs)
        widths = np.exp(_NORMAL_90 * deviations)
        return expected, np.column_stack([expected / widths, expected * widths])


def _numbers(features: Floats | None, other: OtherCard, log_rooflines: Floats) -> Floats | None:
    """Features of operations, with what both cards' times go by; shape (operations, numbers)."""
    return None if features is None else np.column_stack([features, np.log(other.times_s), log_rooflines])


def _prior(design: Floats, class_deviation: float) -> tuple[Floats, Floats]:
    """Mean and variances of the coefficients before anything is seen; shape (coefficients,) each."""
    classes = design.shape[1] - 2
    deviations = np.array([_OVERALL_DEVIATION, _SHARE_DEVIATION, *[class_deviation] * classes])
    return np.array([0.0, PRIOR_SHARE, *[0.0] * classes]), deviations**2


def _posterior(
    design: Floats, values: Floats, weights: Floats, class_deviation: float, noise: float
) -> tuple[Floats, Floats]:
    """Mean and covariance of the coefficients."""
    mean, variances = _prior(design, class_deviation)
    precision = weights / noise**2
    precisions = np.diag(1 / variances) + (design.T * precision) @ design
    covariance = np.asarray(np.linalg.inv(precisions), dtype=np.float64)
    return mean + covariance @ (design.T @ (precision * (values - design @ mean))), covariance


def _log_evidence(design: Floats, values: Floats, weights: Floats, class_deviation: float, noise: float) -> float:
    """Log of how likely the values are, coefficients integrated out, but for a constant."""
    mean, variances = _prior(design, class_deviation)
    _, covariance = _posterior(design, values, weights, class_deviation, noise)
    left = values - design @ mean
    precision = weights / noise**2
    projected = design.T @ (precision * left)
    squares = float(left @ (precision * left) - projected @ covariance @ projected)
    log_determinant = -np.linalg.slogdet(covariance)[1] + np.log(variances).sum() - np.log(precision).sum()
    return -0.5 * (squares + float(log_determinant))
