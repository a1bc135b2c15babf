"""A forest as it is stored: arrays that compress well, and that make a whole forest or are refused.

Each node is followed by all on its left, then by all on its right. So of the nodes there is only what does not follow
from the rest: which are leaves, the feature and threshold of those that split, the values of those that do not.
Numbers lie byte by byte: first the first byte of all of them, which are much alike, then all second bytes …
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAF = -1
_DIMENSIONS = {"leaf": 1, "feature": 2, "threshold": 2, "value": 3}
_FLOAT, _INDEX = np.dtype("<f4"), np.dtype("<i2")

Roots = NDArray[np.int32]
Features = NDArray[np.int16]
Floats = NDArray[np.float32]


class MalformedTreesError(ValueError):
    """Arrays that are not a forest."""


def stored(feature: Features, threshold: Floats, value: Floats) -> dict[str, NDArray[Any]]:
    """Arrays to be stored of a forest with the attributes of `trees.Trees`.

    Returns
    -------
    dict
        Bytes: `leaf`, a bit for each node; `feature`, of shape (2, splits), and `threshold`, of shape (4, splits); and
        `value`, of shape (outputs, 4, leaves).
    """
    leaf = feature == LEAF
    return {
        "leaf": np.packbits(leaf),
        "feature": _bytes_of(feature[~leaf], _INDEX),
        "threshold": _bytes_of(threshold[~leaf], _FLOAT),
        "value": np.stack([_bytes_of(output, _FLOAT) for output in value.T]),
    }


def restored(
    arrays: Mapping[str, NDArray[Any]], features: int
) -> tuple[Roots, Features, Floats, NDArray[np.int32], Floats]:
    """The attributes of `trees.Trees`, in their order, from arrays of a file that splits on so many features.

    Whatever the arrays hold, walks down the trees end, and reach only nodes, features and leaves that exist.
    MalformedTreesError if an array is missing, of another type or shape, or they are not whole trees that split on such
    features.
    """
    for name, dimensions in _DIMENSIONS.items():
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
    leaf = _flags(arrays["leaf"], splits + leaves)
    if leaf.sum() != leaves:
        raise MalformedTreesError("the arrays of nodes differ in the number of leaves")
    try:
        roots, children = shape_of(leaf)
    except ValueError as error:
        raise MalformedTreesError(str(error)) from None
    # by number: by mask it takes ten times as long
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
    return roots.astype(np.int32), feature, threshold, right, value


def _flags(bits: NDArray[np.uint8], nodes: int) -> NDArray[np.bool_]:
    """So many bits of bytes, which hold no more."""
    if len(bits) != -(-nodes // 8):
        raise MalformedTreesError("the arrays of nodes differ in shape")
    return np.unpackbits(bits, count=nodes).astype(bool)


def _bytes_of(numbers: NDArray[Any], kind: np.dtype[Any]) -> NDArray[np.uint8]:
    """Bytes of numbers as of a type, shape (numbers,) to (bytes of each, numbers)."""
    given = np.ascontiguousarray(numbers, dtype=kind)
    return np.ascontiguousarray(given.view(np.uint8).reshape(-1, kind.itemsize).T)


def _numbers_of(planes: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """The numbers again."""
    together = np.empty((planes.shape[1], kind.itemsize), dtype=np.uint8)
    for place, plane in enumerate(planes):
        together[:, place] = plane
    numbers: NDArray[Any] = together.reshape(-1).view(kind)
    return numbers


Ints = NDArray[np.intp]
Mask = NDArray[np.bool_]


def preorder(roots: Ints, left: Ints, right: Ints, leaf: Mask) -> tuple[Ints, Ints]:
    """Nodes in the order of this module, without those that no root leads to, and where the roots are then."""
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
    """Roots and right children that follow from which nodes are leaves.

    Along the nodes, count one up at each that splits and one down at each leaf. The count first comes back to what it
    was before a node at the node's right child, and first reaches a new lowest where a tree begins.

    Parameters
    ----------
    leaf
        Of all trees' nodes; shape (nodes,).

    Returns
    -------
    tuple
        Node of each tree's root, shape (trees,); right child of each node that splits, shape (splits,). All of these
        come after their parents.

    Raises
    ------
    ValueError
        If there is no tree, or the last one is not whole.
    """
    count = np.cumsum(np.where(leaf, -1, 1))
    ends = np.flatnonzero(leaf & (count < np.minimum.accumulate(np.append(0, count[:-1])))) if len(leaf) else count
    if not len(leaf) or not ends.size or ends[-1] != len(leaf) - 1:
        raise ValueError("there is no tree, or the last one is not whole")
    before = np.append(0, count[:-1])
    # numpy sorts 16 bits stably in a tenth of the time
    kind = np.int16 if np.ptp(before) < np.iinfo(np.int16).max else np.int64
    order = np.argsort((before - before.min()).astype(kind), kind="stable")
    following = np.empty(len(leaf), dtype=np.intp)
    following[order[:-1]] = order[1:]
    return np.append(0, ends[:-1] + 1), following[~leaf]
