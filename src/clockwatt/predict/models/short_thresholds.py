"""Thresholds of trees with as few bits as send every row that was learnt from where it went.

A tree's threshold is a random number, or the middle, between two values of the data: of 24 bits most say nothing, and
what says nothing does not compress.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clockwatt.io.rounding import to_bits
from clockwatt.predict.models.stored_trees import LEAF
from clockwatt.predict.models.trees import Trees

Floats = NDArray[np.float32]

_BITS = range(10, 24, 2)
"""That are tried, the fewest first. 10 are one part in a thousand: trees that split between the same two values go on
doing it at different places, which is what makes the mean over them smooth."""
_WALKS_AT_ONCE = 1 << 19  # of a row down a tree; bounds memory


def shortened(trees: Trees, matrix: Floats) -> Trees:
    """The same trees with rounded thresholds, by which every row of `matrix` reaches the leaves that it reached.

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
