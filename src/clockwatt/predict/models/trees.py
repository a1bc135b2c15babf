"""A forest of regression trees as plain arrays: predicts without scikit-learn, stores without pickle.

Summing over trees happens in one fixed order, so predictions have the same bytes in every run, which scikit-learn's
threaded sum does not give.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.io.rounding import to_bits
from clockwatt.predict.models import stored_trees
from clockwatt.predict.models.stored_trees import LEAF, preorder
from clockwatt.predict.models.stored_trees import MalformedTreesError as MalformedTreesError

_WALKS_AT_ONCE = 1 << 19  # of a row down a tree; bounds memory
_KINDS = {"roots": "int32", "feature": "int16", "threshold": "float32", "right": "int32", "value": "float32"}

Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Trees:
    """All trees' nodes, one tree after another; each node is followed by those on its left, then those on its right.

    So the left child of a node is the next one: it needs no array, and is mostly in the cache when it is asked for.

    Attributes
    ----------
    roots
        Node of each tree's root; shape (trees,).
    feature
        Feature that a node splits on, -1 in a leaf; shape (nodes,).
    threshold
        Rows with a value up to this go left; shape (nodes,).
    right
        Right child of a node, of a leaf its row of `value`; shape (nodes,).
    value
        Predictions of the leaves; shape (leaves, outputs).
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    @classmethod
    def from_forest(cls, forest: Any) -> Trees:
        """Take the trees out of a fitted scikit-learn forest of regressors."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        return cls._from_nodes(
            [tree.node_count for tree in trees],
            feature=np.concatenate([tree.feature for tree in trees]),
            threshold=_rounded_down(np.concatenate([tree.threshold for tree in trees])),
            left=np.concatenate([tree.children_left for tree in trees]),
            right=np.concatenate([tree.children_right for tree in trees]),
            value=np.concatenate([tree.value[:, :, 0] for tree in trees]),
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
        # XGBoost goes left below a threshold, we up to it
        below = np.nextafter(condition, np.float32(-np.inf))
        return cls._from_nodes(sizes, feature=feature, threshold=below, left=left, right=right, value=value)

    def giving(self, outputs: Ints) -> Trees:
        """The same trees with some of the outputs alone."""
        return replace(self, value=self.value[:, outputs])

    @classmethod
    def side_by_side(cls, parts: Sequence[tuple[Ints, Trees]], outputs: int) -> Trees:
        """One forest of several, each of which gives some of the outputs.

        Parameters
        ----------
        parts
            Forests, and which columns theirs are.
        outputs
            How many columns there are in all; each belongs to one forest.
        """
        if len(parts) == 1:
            return parts[0][1]
        trees, nodes, leaves = sum(len(part.roots) for _, part in parts), 0, 0
        arrays: dict[str, list[NDArray[Any]]] = {name: [] for name in _KINDS}
        for columns, part in parts:
            # the mean over all trees is to be that over a part's own
            value = np.zeros((len(part.value), outputs), dtype=np.float32)
            value[:, columns] = part.value * (trees / len(part.roots))
            arrays["roots"].append(part.roots + nodes)
            arrays["feature"].append(part.feature)
            arrays["threshold"].append(part.threshold)
            arrays["right"].append(part.right + np.where(part.feature == LEAF, leaves, nodes))
            arrays["value"].append(value)
            nodes, leaves = nodes + len(part.feature), leaves + len(part.value)
        return cls(**{name: np.concatenate(arrays[name]).astype(kind) for name, kind in _KINDS.items()})

    @classmethod
    def _from_nodes(
        cls, sizes: Sequence[int], *, feature: Ints, threshold: NDArray[np.float32], left: Ints, right: Ints,
        value: NDArray[np.float64],
    ) -> Trees:  # fmt: skip
        """From nodes of trees of such sizes; children, negative in leaves, are numbered within each tree."""
        roots = np.cumsum([0, *sizes[:-1]])
        shift = np.repeat(roots, sizes)
        leaf = left < 0
        left, right = left + shift, right + shift
        order, roots = preorder(roots, left, right, leaf)
        place = np.empty(len(left), dtype=np.intp)
        place[order] = np.arange(len(order))
        leaf = leaf[order]
        leads_to = np.empty(len(order), dtype=np.intp)
        leads_to[~leaf] = place[right[order[~leaf]]]
        leads_to[leaf] = np.arange(leaf.sum())
        return cls(
            roots=roots.astype(np.int32),
            feature=np.where(leaf, LEAF, feature[order]).astype(np.int16),
            threshold=np.where(leaf, np.float32(0), threshold[order]),
            right=leads_to.astype(np.int32),
            value=value[order[leaf]].astype(np.float32),
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

    def mean_and_spread(self, matrix: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation over the trees that give an output; shape (rows, outputs) each."""
        at_once = max(1, _WALKS_AT_ONCE // len(self.roots))
        share = self._trees_of_outputs / len(self.roots)
        means, spreads = [np.empty((0, self.value.shape[1]))], [np.empty((0, self.value.shape[1]))]
        for start in range(0, len(matrix), at_once):
            part = matrix[start : start + at_once]
            total, squares = np.zeros((len(part), self.value.shape[1])), np.zeros((len(part), self.value.shape[1]))
            for leaves in self._leaves(part):
                values = self.value[leaves].astype(float)  # squares need the digits
                total += values
                squares += values * values
            mean = total / len(self.roots)
            means.append(mean)
            # an output's own trees stand `1 / share` times too high, so that the mean is over all
            spreads.append(np.sqrt(np.maximum(share * squares / len(self.roots) - mean**2, 0.0)))
        return np.concatenate(means), np.concatenate(spreads)

    @functools.cached_property
    def _trees_of_outputs(self) -> NDArray[np.float64]:
        """How many trees give each output, where forests stand side by side; shape (outputs,)."""
        leaf = self.feature == LEAF
        first = self.right[leaf][np.searchsorted(np.flatnonzero(leaf), np.sort(self.roots))]
        gives = np.logical_or.reduceat(self.value != 0, first, axis=0)
        trees: NDArray[np.float64] = np.maximum(gives.sum(axis=0), 1).astype(float)
        return trees

    def _predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        total = np.zeros((len(matrix), self.value.shape[1]))
        for leaves in self._leaves(matrix):
            total += self.value[leaves]
        return total / len(self.roots)

    def _leaves(self, matrix: NDArray[np.float32]) -> NDArray[np.int32]:
        """Row of `value` of each row in each tree; shape (trees, rows). All walk down together, a level at a time."""
        rows, width = matrix.shape
        numbers = matrix.ravel()
        reached = np.empty(len(self.roots) * rows, dtype=np.int32)
        walking = np.arange(reached.size)
        here = np.repeat(self.roots, rows).astype(np.intp)
        start = np.tile(np.arange(rows) * width, len(self.roots))
        while walking.size:
            feature, right = self.feature.take(here), self.right.take(here)
            leaf = feature == LEAF
            if leaf.any():
                ended, going = np.flatnonzero(leaf), np.flatnonzero(~leaf)
                reached[walking.take(ended)] = right.take(ended)
                walking, here, start = walking.take(going), here.take(going), start.take(going)
                feature, right = feature.take(going), right.take(going)
            goes_left = numbers.take(start + feature) <= self.threshold.take(here)
            here = np.where(goes_left, here + 1, right)
        return reached.reshape(len(self.roots), rows)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The forest as arrays by name, see `stored_trees`."""
        return stored_trees.stored(self.feature, self.threshold, self.value)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], features: int) -> Trees:
        """Check arrays from a file and make a forest of them.

        MalformedTreesError if one is missing, of another type or shape, or they are no whole trees that split on
        existing features.
        """
        return cls(*stored_trees.restored(arrays, features))


def _rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Largest float32 up to each threshold: for float32 features the comparison comes out the same."""
    rounded = thresholds.astype(np.float32)
    return np.where(rounded > thresholds, np.nextafter(rounded, np.float32(-np.inf)), rounded)


Floats = NDArray[np.float32]

_BITS = range(10, 24, 2)
"""That are tried, the fewest first. 10 are one part in a thousand: trees that split between the same two values go on
doing it at different places, which is what makes the mean over them smooth."""


def shortened(trees: Trees, matrix: Floats) -> Trees:
    """The same trees with rounded thresholds, by which every row of `matrix` reaches the leaves that it reached.

    A threshold is a random number, or the middle, between two values of the data: of its 24 bits most say nothing, and
    what says nothing does not compress.

    Parameters
    ----------
    trees
        A forest.
    matrix
        What it learnt from; shape (rows, features).
    """
    lower, upper = _gaps(trees, matrix)
    threshold, settled = trees.threshold.copy(), trees.feature == LEAF
    for bits in _BITS:
        rounded = to_bits(trees.threshold, bits)
        fits = ~settled & (lower <= rounded) & (rounded < upper)
        threshold[fits] = rounded[fits]
        settled |= fits
    return replace(trees, threshold=threshold)


def _gaps(trees: Trees, matrix: Floats) -> tuple[Floats, Floats]:
    """Greatest value that goes left at each node, and least that goes right; infinite where none does."""
    lower = np.full(len(trees.feature), -np.inf, dtype=np.float32)
    upper = np.full(len(trees.feature), np.inf, dtype=np.float32)
    at_once = max(1, _WALKS_AT_ONCE // len(trees.roots))
    for start in range(0, len(matrix), at_once):
        part = matrix[start : start + at_once]
        here = np.repeat(trees.roots, len(part)).astype(np.intp)
        row = np.tile(np.arange(len(part)), len(trees.roots))
        while True:
            going = np.flatnonzero(trees.feature[here] != LEAF)
            if not going.size:
                break
            here, row = here[going], row[going]
            value = part[row, trees.feature[here]]
            left = value <= trees.threshold[here]
            np.maximum.at(lower, here[left], value[left])
            np.minimum.at(upper, here[~left], value[~left])
            here = np.where(left, here + 1, trees.right[here])
    return lower, upper
