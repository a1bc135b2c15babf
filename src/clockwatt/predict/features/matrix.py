"""The matrix product inside an operation.

A convolution is counted as the implicit matrix product that it is (Chetlur et al., cuDNN, arXiv:1410.0759): output
pixels by output channels by window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from clockwatt.operations.spec.operation import Operation

_FACTORS = {
    **dict.fromkeys(("mm", "bmm", "matmul"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm"), (1, 2)),
}
"""Which tensors are multiplied."""


@dataclass(frozen=True)
class MatrixProduct:
    """`batch` products of a (rows, depth) with a (depth, columns) matrix."""

    rows: int
    columns: int
    depth: int
    batch: int = 1


def matrix_product(operation: Operation) -> MatrixProduct | None:
    """The product that an operation's forward pass is; None if it is none, or of a kind that is not known here."""
    name, tensors = operation.operation_class, operation.tensors
    shapes = [tensor.shape for tensor in tensors]
    if any(0 in shape for shape in shapes) or not operation.out or 0 in operation.out[0].shape:
        return None
    if name.startswith("conv") and len(shapes) > 1 and len(shapes[1]) > 2:
        return _convolution(operation, transposed=name.startswith("conv_transpose"))
    if name == "linear" and len(shapes) > 1:
        columns, depth = shapes[1] if len(shapes[1]) == 2 else (1, shapes[1][0])
        return MatrixProduct(math.prod(shapes[0][:-1]), columns, depth)
    if name == "scaled_dot_product_attention" and len(shapes) > 1 and min(map(len, shapes[:2])) > 1:
        *batch, rows, depth = shapes[0]
        return MatrixProduct(rows, shapes[1][-2], depth, math.prod(batch))
    if name in _FACTORS and len(shapes) > _FACTORS[name][1]:
        left, right = (shapes[number] for number in _FACTORS[name])
        if len(left) > 1 and len(right) > 1:
            return MatrixProduct(left[-2], right[-1], left[-1], math.prod(left[:-2]))
    return None


def _convolution(operation: Operation, *, transposed: bool) -> MatrixProduct | None:
    image, weight, out = operation.tensors[0].shape, operation.tensors[1].shape, operation.out[0].shape
    if len(image) != len(weight) or len(out) != len(weight):
        return None  # without a batch
    if transposed:  # the backward pass of a convolution: input pixels by window by input channels
        groups = max(image[1] // weight[0], 1)
        return MatrixProduct(image[0] * math.prod(image[2:]), math.prod(weight[1:]), weight[0], groups)
    groups = max(image[1] // weight[1], 1)
    return MatrixProduct(out[0] * math.prod(out[2:]), max(weight[0] // groups, 1), math.prod(weight[1:]), groups)
