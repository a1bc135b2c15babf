"""A forest of regression trees as plain arrays: predicts without scikit-learn, stores without pickle.

Summing over trees happens in one fixed order, so predictions have the same bytes in every run, which scikit-learn's
threaded sum does not give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAF = -1
_WALKS_AT_ONCE = 1 << 19  # of a row down a tree; bounds memory
_KINDS = {
    "roots": "int32",
    "feature": "int16",
    "threshold": "float32",
    "left": "int32",
    "right": "int32",
    "value": "float32",
}


class MalformedTreesError(ValueError):
    """Arrays that are not a forest."""


@dataclass(frozen=True)
class Trees:
    """All trees' nodes, one after another.

    Attributes
    ----------
    roots
        Node of each tree's root; shape (trees,).
    feature
        Feature that a node splits on, -1 in a leaf; shape (nodes,).
    threshold
        Rows with a value up to this go left; shape (nodes,).
    left, right
        Children, each after its parent; shape (nodes,).
    value
        Prediction of a leaf; shape (nodes, outputs).
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    @classmethod
    def from_forest(cls, forest: Any) -> Trees:
        """Take the trees out of a fitted scikit-learn forest of regressors."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
        leaf = np.concatenate([tree.children_left < 0 for tree in trees])
        shift = np.repeat(roots, [tree.node_count for tree in trees])
        return cls(
            roots=roots.astype(np.int32),
            feature=np.where(leaf, _LEAF, np.concatenate([tree.feature for tree in trees])).astype(np.int16),
            threshold=_rounded_down(np.where(leaf, 0.0, np.concatenate([tree.threshold for tree in trees]))),
            left=np.where(leaf, 0, np.concatenate([tree.children_left for tree in trees]) + shift).astype(np.int32),
            right=np.where(leaf, 0, np.concatenate([tree.children_right for tree in trees]) + shift).astype(np.int32),
            value=np.concatenate([tree.value[:, :, 0] for tree in trees]).astype(np.float32),
        )

    @classmethod
    def from_boosters(cls, boosters: Sequence[Any], centre: NDArray[np.float64]) -> Trees:
        """Take the trees out of one fitted XGBoost model for each output, out of the JSON that it stores itself as.

        Parameters
        ----------
        boosters
            `xgboost.Booster` of each output, fitted with a base score of 0 on single-precision features.
        centre
            What each booster's sum is added to; shape (outputs,).
        """
        outputs = [
            (column, tree)
            for column, booster in enumerate(boosters)
            for tree in json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
        ]
        sizes = [len(tree["left_children"]) for _, tree in outputs]
        roots = np.cumsum([0, *sizes[:-1]])
        shift = np.repeat(roots, sizes)
        left, right, feature, condition = (
            np.concatenate([np.asarray(tree[name], dtype=kind) for _, tree in outputs])
            for name, kind in (
                ("left_children", np.int64), ("right_children", np.int64), ("split_indices", np.int64),
                ("split_conditions", np.float32),
            )
        )  # fmt: skip
        leaf = left < 0
        value = np.tile(centre, (len(leaf), 1))
        column = np.repeat([column for column, _ in outputs], sizes)
        # a leaf holds its condition's place; the mean over all trees is to be the sum over an output's own
        value[np.flatnonzero(leaf), column[leaf]] += condition[leaf].astype(float) * len(outputs)
        return cls(
            roots=roots.astype(np.int32),
            feature=np.where(leaf, _LEAF, feature).astype(np.int16),
            # XGBoost goes left below a threshold, we up to it
            threshold=np.where(leaf, np.float32(0), np.nextafter(condition, np.float32(-np.inf))),
            left=np.where(leaf, 0, left + shift).astype(np.int32),
            right=np.where(leaf, 0, right + shift).astype(np.int32),
            value=value.astype(np.float32),
        )

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Mean over trees.

        Parameters
        ----------
        matrix
            Shape (rows, features).

        Returns
        -------
        numpy.ndarray
            Shape (rows, outputs).
        """
        at_once = max(1, _WALKS_AT_ONCE // len(self.roots))
        chunks = [self._predict(matrix[start : start + at_once]) for start in range(0, len(matrix), at_once)]
        return np.concatenate(chunks) if chunks else np.empty((0, self.value.shape[1]))

    def _predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        total = np.zeros((len(matrix), self.value.shape[1]))
        for leaves in self._leaves(matrix):
            total += self.value[leaves]
        return total / len(self.roots)

    def _leaves(self, matrix: NDArray[np.float32]) -> NDArray[np.int32]:
        """Leaf of each row in each tree; shape (trees, rows). All of them walk down together, a level at a time."""
        nodes = np.repeat(self.roots, len(matrix))
        row_of = np.tile(np.arange(len(matrix), dtype=np.int32), len(self.roots))
        walking = np.arange(nodes.size)
        while walking.size:
            here = nodes[walking]
            inner = self.feature[here] != _LEAF
            walking, here = walking[inner], here[inner]
            goes_left = matrix[row_of[walking], self.feature[here]] <= self.threshold[here]
            nodes[walking] = np.where(goes_left, self.left[here], self.right[here])
        return nodes.reshape(len(self.roots), len(matrix))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], features: int) -> Trees:
        """Check arrays from a file and make a forest of them.

        Raises
        ------
        MalformedTreesError
            If one is missing, of another type or shape, or a node leads outside the forest or back to where it was.
        """
        for name, kind in _KINDS.items():
            if name not in arrays:
                raise MalformedTreesError(f"array {name!r} is missing")
            if arrays[name].dtype != np.dtype(kind):
                raise MalformedTreesError(f"array {name!r} is of type {arrays[name].dtype}, not {kind}")
        trees = cls(**{name: arrays[name] for name in _KINDS})
        trees._check(features)
        return trees

    def _check(self, features: int) -> None:
        nodes = len(self.feature)
        flat = (self.feature, self.threshold, self.left, self.right)
        if any(array.shape != (nodes,) for array in flat) or self.value.ndim != 2 or len(self.value) != nodes:
            raise MalformedTreesError("the arrays of nodes differ in shape")
        if self.roots.ndim != 1 or not self.roots.size or np.any((self.roots < 0) | (self.roots >= nodes)):
            raise MalformedTreesError("there is no tree, or a root lies outside the forest")
        if np.any((self.feature < _LEAF) | (self.feature >= features)):
            raise MalformedTreesError("a node splits on a feature that does not exist")
        parents = np.flatnonzero(self.feature != _LEAF)
        for children in (self.left[parents], self.right[parents]):
            # a child comes after its parent, so every walk ends
            if np.any((children <= parents) | (children >= nodes)):
                raise MalformedTreesError("a node leads outside the forest or backwards")


def _rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Largest float32 up to each threshold: for float32 features the comparison comes out the same."""
    rounded = thresholds.astype(np.float32)
    return np.where(rounded > thresholds, np.nextafter(rounded, np.float32(-np.inf)), rounded)
