"""A forest as it is stored: arrays that compress well, and that make a whole forest or are refused.

Of the nodes there is what does not follow from the rest: which are leaves (the shape of all trees, see `preorder`), the
feature and threshold of those that split, the values of those that do not. Numbers lie byte by byte: first the first
byte of all of them, which are much alike, then all second bytes …
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.predict.models.preorder import shape_of

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

    Raises
    ------
    MalformedTreesError
        If an array is missing, of another type or shape, or they are not whole trees that split on such features.
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
