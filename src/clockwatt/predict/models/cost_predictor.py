"""What predictors of the cost of an operation share, with the interface of scikit-learn, which only fitting imports.

All targets are learnt by one forest: they share their causes, and one fit takes a fifth of the time of five.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.io.rounding import to_bits
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.perceptrons import Perceptrons
from clockwatt.predict.models.trees import Trees, shortened
from clockwatt.schema.costs import CORRECTED
from clockwatt.threads import usable_threads

Floats = NDArray[np.float64]

TARGETS = CORRECTED
"""What is predicted for an operation; per call."""

ROWS_PER_TREE = 20_000
"""Larger data are sampled for each tree anew, which bounds the time of a fit and the size of a forest."""

_VALUE_BITS = 12


class CostPredictor:
    """What all predictors share: encoding of the features, sampling, and the trees as plain arrays.

    Parameters
    ----------
    trees
        Number of trees.
    max_features
        Share of features tried at each split.
    seed
        Of the forest.
    jobs
        Threads for fitting, None for as many as `usable_threads` says; the result does not depend on it.
    leaf
        Fewest rows in a leaf, where scikit-learn grows the trees.

    Attributes
    ----------
    targets_ : list of str
        Columns that `predict` gives.
    columns_ : list of str
        Numeric features in use; those that do not vary in the training data are left out.
    classes_ : list of str
        Operation classes seen.
    scales_ : dict
        Fitted numbers that the targets are scaled with.
    trees_ : Trees
        The forest.
    perceptrons_ : Perceptrons or None
        What is told of device time beside it, if anything is.
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002  # scikit-learn's signature
        """Parameters by name."""
        names = ("trees", "max_features", "seed", "jobs", "leaf")
        return {name: getattr(self, name) for name in names}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name."""
        unknown = sorted(set(parameters) - set(self.get_params()))
        if unknown:
            raise ValueError(f"no parameter {unknown[0]!r}; there are {', '.join(self.get_params())}")
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

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
        trees = Trees.side_by_side(
            [
                (columns, self._grow_for(columns, matrix[rows], learnt[rows]))
                for rows, columns in _known_together(np.isfinite(learnt))
            ],
            outputs=len(self.targets_),
        )
        self.trees_ = replace(shortened(trees, matrix), value=self._rounded(trees.value))
        return self

    def predict(self, X: pd.DataFrame) -> pd.DataFrame:  # noqa: N803  # scikit-learn's name
        """Predict every target that was learnt; shape (rows, targets), in the units of the targets' names."""
        matrix = self._encode(X)
        values = self._inverse_link(self._told(matrix, self.trees_.predict(matrix))) * self._estimates(X)
        return pd.DataFrame(values, index=X.index, columns=self.targets_)

    def predict_with_spread(self, X: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:  # noqa: N803
        """Predict, with how far the trees disagree: the standard deviation of the logarithm; shape (rows, targets)."""
        matrix = self._encode(X)
        mean, spread = self.trees_.mean_and_spread(matrix)
        values = self._inverse_link(self._told(matrix, mean)) * self._estimates(X)
        spreads = self._relative_spread(mean, spread)
        return (
            pd.DataFrame(values, index=X.index, columns=self.targets_),
            pd.DataFrame(spreads, index=X.index, columns=self.targets_),
        )

    def _told(self, matrix: NDArray[np.float32], learnt: Floats) -> Floats:  # noqa: ARG002  # for what is beside trees
        """What trees tell, with what else was learnt of the same encoded features."""
        return learnt

    def _relative_spread(self, mean: Floats, spread: Floats) -> Floats:  # noqa: ARG002  # for what learns the cost
        """Standard deviation of the logarithm of a cost, from mean and standard deviation of what trees give."""
        return spread

    def _encode(self, features: pd.DataFrame) -> NDArray[np.float32]:
        classes = features[OPERATION_CLASS].to_numpy()[:, None] == np.array(self.classes_, dtype=object)[None, :]
        numbers = features[self.columns_].to_numpy(np.float32)
        return np.hstack([numbers, classes.astype(np.float32)])

    @property
    def _jobs(self) -> int:
        return self.jobs or usable_threads()

    def _sampling(self, rows: int) -> dict[str, Any]:
        return {"bootstrap": True, "max_samples": min(rows, ROWS_PER_TREE)}

    def _completed(self, features: pd.DataFrame, targets: pd.DataFrame) -> pd.DataFrame:  # noqa: ARG002  # for those who estimate
        """Targets with what can be told of those that were not measured."""
        return targets

    def _fit_scales(self, features: pd.DataFrame, targets: pd.DataFrame) -> dict[str, float]:
        """What `_estimates` needs to know of the training data."""
        raise NotImplementedError

    def _estimates(self, features: pd.DataFrame) -> Floats:
        """What the targets are divided by; shape (rows, targets)."""
        raise NotImplementedError

    def _grow_for(self, columns: NDArray[np.intp], matrix: NDArray[np.float32], learnt: Floats) -> Trees:
        """Trees that give some of the targets, their splits chosen with an eye to all that these rows have."""
        known = np.flatnonzero(np.isfinite(learnt).all(axis=0)) if self.shares_splits else columns
        trees = self._grow(matrix, learnt[:, known])
        return trees.giving(np.searchsorted(known, columns))

    def _grow(self, matrix: NDArray[np.float32], learnt: Floats) -> Trees:
        """Trees fitted on encoded features and on what is learnt of each target; shape (rows, targets)."""
        forest = self._forest(len(matrix))
        # scikit-learn wants a single target flat
        forest.fit(matrix, learnt[:, 0] if learnt.shape[1] == 1 else learnt)
        return Trees.from_forest(forest)

    def _forest(self, rows: int) -> Any:
        """An unfitted forest for so many rows."""
        raise NotImplementedError

    def _link(self, ratios: Floats) -> Floats:
        """What the forest learns of the ratio of targets to estimates."""
        return ratios

    def _inverse_link(self, learnt: Floats) -> Floats:
        return learnt

    def _rounded(self, value: NDArray[np.float32]) -> NDArray[np.float32]:
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
