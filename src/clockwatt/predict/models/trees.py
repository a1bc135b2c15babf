"""A forest of regression trees as plain arrays: predicts without scikit-learn, stores without pickle.

Summing over trees happens in one fixed order, so predictions have the same bytes in every run, which scikit-learn's
threaded sum does not give.

A file has only what does not follow from the order of the nodes: which nodes are leaves, feature and threshold of
splits, values of leaves. Numbers are stored byte by byte, which compresses well: the first byte of all numbers, then
all second bytes, and so on.
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

LEAF = -1
_WALKS_AT_ONCE = 1 << 19  # steps of rows down trees at a time; bounds memory
_STORED_DIMENSIONS = {"leaf": 1, "feature": 2, "threshold": 2, "value": 3}
_FLOAT, _INDEX = np.dtype("<f4"), np.dtype("<i2")
_BITS = range(10, 24, 2)
"""Bits that a threshold is rounded to, fewest first. With 10 bits, trees that split between the same two values still
do so at different thresholds, which keeps the mean over trees smooth."""

Ints = NDArray[np.intp]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]


class MalformedTreesError(ValueError):
    """The arrays are not a forest."""


@dataclass(frozen=True)
class Trees:
    """All trees' nodes, one tree after another; each node is followed by those on its left, then those on its right.

    So the left child of a node is the next one: it needs no array, and is usually in the CPU cache.

    Attributes
    ----------
    roots
        Node of each tree's root; shape (trees,).
    feature
        Feature that a node splits on, -1 in a leaf; shape (nodes,).
    threshold
        Rows with a value up to this go left; shape (nodes,).
    right
        Right child of a node; for a leaf, its row of `value`; shape (nodes,).
    value
        Predictions of the leaves; shape (leaves, outputs).
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int16]
    threshold: Floats
    right: NDArray[np.int32]
    value: Floats

    @classmethod
    def from_forest(cls, forest: Any) -> Trees:
        """Extract the trees of a fitted scikit-learn forest of regressors."""
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
        """Extract the trees of fitted XGBoost models, one for each output, from their JSON.

        Parameters
        ----------
        boosters
            `xgboost.Booster` of each output, fitted with a base score of 0 on single-precision features.
        centre
            Constant added to each booster's sum; shape (outputs,).
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
        # a leaf has its value in place of a condition; scaled, as the mean over all trees must be an output's sum
        value[np.flatnonzero(leaf), column[leaf]] += condition[leaf].astype(float) * len(outputs)
        # XGBoost goes left below a threshold, we up to it
        below = np.nextafter(condition, np.float32(-np.inf))
        return cls._from_nodes(sizes, feature=feature, threshold=below, left=left, right=right, value=value)

    @classmethod
    def side_by_side(cls, parts: Sequence[tuple[Ints, Trees]], outputs: int) -> Trees:
        """Merge forests, each of which predicts some of the outputs.

        Parameters
        ----------
        parts
            Forests, and the columns that each predicts.
        outputs
            Number of columns in all; each belongs to one forest.
        """
        if len(parts) == 1:
            return parts[0][1]
        trees, nodes, leaves = sum(len(part.roots) for _, part in parts), 0, 0
        pieces = []
        for columns, part in parts:
            # scaled, as the mean over all trees must be that over a part's trees
            value = np.zeros((len(part.value), outputs), dtype=np.float32)
            value[:, columns] = part.value * (trees / len(part.roots))
            right = part.right + np.where(part.feature == LEAF, leaves, nodes)
            pieces.append((part.roots + nodes, part.feature, part.threshold, right, value))
            nodes, leaves = nodes + len(part.feature), leaves + len(part.value)
        roots, feature, threshold, right, value = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        return cls(roots.astype(np.int32), feature, threshold, right.astype(np.int32), value)

    @classmethod
    def _from_nodes(
        cls, sizes: Sequence[int], *, feature: Ints, threshold: Floats, left: Ints, right: Ints,
        value: NDArray[np.float64],
    ) -> Trees:  # fmt: skip
        """Make it from nodes of trees of these sizes; children, negative in leaves, are numbered within each tree."""
        roots = np.cumsum([0, *sizes[:-1]])
        shift = np.repeat(roots, sizes)
        leaf = left < 0
        left, right = left + shift, right + shift
        order, roots = _preorder(roots, left, right, leaf)
        place = np.empty(len(left), dtype=np.intp)
        place[order] = np.arange(len(order))
        leaf = leaf[order]
        leads_to = np.where(leaf, np.cumsum(leaf) - 1, place[right[order]])
        return cls(
            roots=roots.astype(np.int32),
            feature=np.where(leaf, LEAF, feature[order]).astype(np.int16),
            threshold=np.where(leaf, np.float32(0), threshold[order]),
            right=leads_to.astype(np.int32),
            value=value[order[leaf]].astype(np.float32),
        )

    def predict(self, matrix: Floats) -> NDArray[np.float64]:
        """Return the mean over trees; shape (rows, features) to (rows, outputs)."""
        return self.mean_and_spread(matrix)[0]

    def median(self, matrix: Floats) -> NDArray[np.float64]:
        """Return the median over trees; shape (rows, features) to (rows, outputs)."""
        return np.asarray(np.median(self.value[self._leaves(matrix)].astype(float), axis=0))

    def mean_and_spread(self, matrix: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and standard deviation over the trees of each output; shape (rows, outputs) each."""
        at_once = max(1, _WALKS_AT_ONCE // len(self.roots))
        total, squares = (np.zeros((len(matrix), self.value.shape[1])) for _ in range(2))
        for start in range(0, len(matrix), at_once):
            rows = slice(start, start + at_once)
            for leaves in self._leaves(matrix[rows]):
                values = self.value[leaves].astype(float)  # squares need double precision
                total[rows] += values
                squares[rows] += values * values
        mean = total / len(self.roots)
        # an output's own trees stand `1 / share` times too high, so that the mean is over all
        share = self._trees_of_outputs / len(self.roots)
        return mean, np.sqrt(np.maximum(share * squares / len(self.roots) - mean**2, 0.0))

    @functools.cached_property
    def _trees_of_outputs(self) -> NDArray[np.float64]:
        """Return the number of trees of each output in merged forests; shape (outputs,)."""
        leaf = self.feature == LEAF
        first = self.right[leaf][np.searchsorted(np.flatnonzero(leaf), np.sort(self.roots))]
        gives = np.logical_or.reduceat(self.value != 0, first, axis=0)
        trees: NDArray[np.float64] = np.maximum(gives.sum(axis=0), 1).astype(float)
        return trees

    def _leaves(self, matrix: Floats) -> NDArray[np.int32]:
        """Return the row of `value` of each row in each tree, shape (trees, rows), descending one level at a time."""
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
        """Return the forest as it is stored.

        Returns
        -------
        dict
            Bytes: `leaf`, a bit for each node; `feature`, of shape (2, splits), and `threshold`, of shape (4, splits);
            and `value`, of shape (outputs, 4, leaves).
        """
        leaf = self.feature == LEAF
        return {
            "leaf": np.packbits(leaf),
            "feature": _bytes_of(self.feature[~leaf], _INDEX),
            "threshold": _bytes_of(self.threshold[~leaf], _FLOAT),
            "value": np.stack([_bytes_of(output, _FLOAT) for output in self.value.T]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], features: int) -> Trees:
        """Check arrays from a file and make a forest of them that splits on so many features.

        For any arrays that pass, descents end, and reach only nodes, features and leaves that exist.

        Raises
        ------
        MalformedTreesError
            If an array is missing, has another type or shape, or the trees are incomplete or split on other features.
        """
        for name, dimensions in _STORED_DIMENSIONS.items():
            if name not in arrays:
                raise MalformedTreesError(f"array {name!r} is missing")
            if arrays[name].dtype != np.uint8 or arrays[name].ndim != dimensions:
                raise MalformedTreesError(f"array {name!r} is not of bytes in {dimensions} dimensions")
        splits, (_, depth, leaves) = arrays["threshold"].shape[1], arrays["value"].shape
        shapes = (arrays["feature"].shape, arrays["threshold"].shape, depth)
        if shapes != ((_INDEX.itemsize, splits), (_FLOAT.itemsize, splits), _FLOAT.itemsize):
            raise MalformedTreesError("the arrays of nodes differ in shape")
        inner = _numbers_of(arrays["feature"], _INDEX)
        if np.any((inner < 0) | (inner >= features)):
            raise MalformedTreesError("a node splits on a feature that does not exist")
        if len(arrays["leaf"]) != -(-(splits + leaves) // 8):
            raise MalformedTreesError("the arrays of nodes differ in shape")
        leaf = np.unpackbits(arrays["leaf"], count=splits + leaves).astype(bool)
        if leaf.sum() != leaves:
            raise MalformedTreesError("the arrays of nodes differ in the number of leaves")
        roots, children = shape_of(leaf)
        # by index, which is faster than by mask
        parents, ends = np.flatnonzero(~leaf), np.flatnonzero(leaf)
        feature, threshold = np.full(len(leaf), LEAF, dtype=np.int16), np.zeros(len(leaf), dtype=np.float32)
        feature[parents], threshold[parents] = inner, _numbers_of(arrays["threshold"], _FLOAT)
        right = np.empty(len(leaf), dtype=np.int32)
        right[parents], right[ends] = children, np.arange(leaves)
        value = np.empty((leaves, len(arrays["value"])), dtype=np.float32)
        for column, output in enumerate(arrays["value"]):
            value[:, column] = _numbers_of(output, _FLOAT)
        if not np.isfinite(value).all():
            raise MalformedTreesError("a leaf holds what is no number")
        return cls(roots.astype(np.int32), feature, threshold, right, value)


def _rounded_down(thresholds: NDArray[np.float64]) -> Floats:
    """Return the largest float32 up to each threshold; comparisons with float32 features do not change."""
    rounded = thresholds.astype(np.float32)
    return np.where(rounded > thresholds, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def shortened(trees: Trees, matrix: Floats) -> Trees:
    """Round the thresholds of trees so that every row of `matrix` reaches the same leaves.

    A threshold is a random number, or the middle, between two values of the data. Most of its 24 bits have no effect,
    and random bits do not compress.

    Parameters
    ----------
    trees
        A forest.
    matrix
        Its training data; shape (rows, features).
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
    """Return the greatest value that goes left at each node, and the least that goes right; infinite if none."""
    lower = np.full(len(trees.feature), -np.inf, dtype=np.float32)
    upper = np.full(len(trees.feature), np.inf, dtype=np.float32)
    at_once, width = max(1, _WALKS_AT_ONCE // len(trees.roots)), matrix.shape[1]
    for first in range(0, len(matrix), at_once):
        part = matrix[first : first + at_once]
        numbers = part.ravel()
        here = np.repeat(trees.roots, len(part)).astype(np.intp)
        start = np.tile(np.arange(len(part)) * width, len(trees.roots))
        while True:
            feature = trees.feature.take(here)
            going = np.flatnonzero(feature != LEAF)
            if not going.size:
                break
            here, start = here.take(going), start.take(going)
            value = numbers.take(start + feature.take(going))
            goes_left = value <= trees.threshold.take(here)
            left, right = np.flatnonzero(goes_left), np.flatnonzero(~goes_left)
            np.maximum.at(lower, here.take(left), value.take(left))
            np.minimum.at(upper, here.take(right), value.take(right))
            here = np.where(goes_left, here + 1, trees.right.take(here))
    return lower, upper


def _bytes_of(numbers: NDArray[Any], kind: np.dtype[Any]) -> NDArray[np.uint8]:
    """Return the bytes of numbers of a type; shape (numbers,) to (bytes of each, numbers)."""
    given = np.ascontiguousarray(numbers, dtype=kind)
    return np.ascontiguousarray(given.view(np.uint8).reshape(-1, kind.itemsize).T)


def _numbers_of(planes: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers from their bytes."""
    together = np.empty((planes.shape[1], kind.itemsize), dtype=np.uint8)
    for place, plane in enumerate(planes):
        together[:, place] = plane
    numbers: NDArray[Any] = together.reshape(-1).view(kind)
    return numbers


def _preorder(roots: Ints, left: Ints, right: Ints, leaf: Mask) -> tuple[Ints, Ints]:
    """Return nodes in the order of `Trees`, without unreachable ones, and the positions of the roots."""
    levels = [roots]
    while (inner := levels[-1][~leaf[levels[-1]]]).size:
        levels.append(np.concatenate([left[inner], right[inner]]))
    parents = [level[~leaf[level]] for level in levels]
    below = np.ones(len(left), dtype=np.intp)
    for inner in reversed(parents):
        below[inner] += below[left[inner]] + below[right[inner]]
    placed_roots = np.cumsum([0, *below[roots[:-1]]])
    place = np.empty(len(left), dtype=np.intp)
    place[roots] = placed_roots
    for inner in parents:
        place[left[inner]] = place[inner] + 1
        place[right[inner]] = place[inner] + 1 + below[left[inner]]
    reached = np.concatenate(levels)
    order = np.empty(len(reached), dtype=np.intp)
    order[place[reached]] = reached
    return order, placed_roots


def shape_of(leaf: Mask) -> tuple[Ints, Ints]:
    """Compute roots and right children from which nodes are leaves.

    Along the nodes, count one up at each split and one down at each leaf. The count first returns to its value before a
    node at that node's right child. It first reaches a new minimum where a tree begins.

    Parameters
    ----------
    leaf
        Which nodes of all trees are leaves; shape (nodes,).

    Returns
    -------
    tuple
        Node of each tree's root, shape (trees,); right child of each node that splits, shape (splits,). All of these
        come after their parents.

    Raises
    ------
    MalformedTreesError
        If there is no tree, or the last one is not whole.
    """
    count = np.cumsum(np.where(leaf, -1, 1))
    ends = np.flatnonzero(leaf & (count < np.minimum.accumulate(np.append(0, count[:-1])))) if len(leaf) else count
    if not len(leaf) or not ends.size or ends[-1] != len(leaf) - 1:
        raise MalformedTreesError("there is no tree, or the last one is not whole")
    before = np.append(0, count[:-1])
    # numpy's stable sort is faster for 16 bits
    kind = np.int16 if np.ptp(before) < np.iinfo(np.int16).max else np.int64
    order = np.argsort((before - before.min()).astype(kind), kind="stable")
    following = np.empty(len(leaf), dtype=np.intp)
    following[order[:-1]] = order[1:]
    return np.append(0, ends[:-1] + 1), following[~leaf]
