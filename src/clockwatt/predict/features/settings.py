"""What a call says of the kernels that run: its matrix product, serial steps, masks, interpolation, number formats.

Sizes alone do not tell an LSTM of a thousand steps from one of ten that does as much, causal attention from full, or
nearest neighbours from bicubic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from clockwatt.operations.spec.operation import Operation, TensorSpec

RECURRENT_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Matrices that each step of a recurrent layer multiplies its state with."""

_ELEMENT_BYTES = {"float64": 8, "float32": 4, "int64": 8, "int32": 4, "bool": 1, "uint8": 1, "int8": 1}
_INTERPOLATIONS = ("nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear", "bicubic")
_WEIGHTED = ("linear", "bilinear", "trilinear", "bicubic")
"""Interpolations whose kernels have a thread for each pixel, which goes through all channels of all rows."""
RECURRENT_STEP_S = 5e-6
"""What a step of a recurrent layer waits for the one before it, however little it does, at an H200's boost clock."""
CHANNEL_STEP_S = 2e-7
"""What a thread of an interpolation takes for each channel, likewise."""
_ATOMIC_S = {2: 1e-10, 4: 2e-11, 8: 2e-11}
"""What adding one gradient to a pixel takes in the backward pass of an interpolation, by bytes of an element: in half
precision it is compared and swapped, and begun again where another thread came first …"""
_UNHINDERED, _MOST_HINDERED = 64.0, 60.0
"""… which takes twice as long where so many gradients meet in a pixel, and so many times as long at most."""
_ATTENTION_TENSORS = 3
_RECURRENT_ARGUMENTS = 9
"""Of `torch.lstm(input, state, weights, biases, layers, dropout, train, bidirectional, batch_first)` and its like."""


def setting_numbers(operation: Operation) -> dict[str, float]:
    """Numbers of the settings, 0 where an operation has no such setting; the same names for every operation."""
    tensors, outputs, given = operation.tensors, operation.out, operation.kwargs
    mode = given.get("mode")
    steps, hidden, rows = recurrence(operation)
    return {
        "log_element_bytes": math.log2(_ELEMENT_BYTES.get(tensors[0].dtype, 2)) if tensors else 0.0,
        "bfloat16": float(any(tensor.dtype == "bfloat16" for tensor in tensors)),
        "input_gradient": float(bool(tensors) and tensors[0].grad),
        "second_channels_last": float(len(tensors) > 1 and _channels_last(tensors[1])),
        "output_channels_last": float(bool(outputs) and _channels_last(outputs[0])),
        "log_window": math.log2(math.prod(tensors[1].shape[2:]) + 1) if _is_convolution(operation) else 0.0,
        "log_group_channels": math.log2(tensors[1].shape[1] + 1) if _is_convolution(operation) else 0.0,
        "log_normalised_groups": math.log2(_group_count(operation) + 1),
        "causal": float(given.get("is_causal") is True),
        "masked": float(isinstance(given.get("attn_mask"), dict) or len(tensors) > _ATTENTION_TENSORS),
        "interpolation": float(_INTERPOLATIONS.index(mode) + 1) if mode in _INTERPOLATIONS else 0.0,
        "aligned_corners": float(given.get("align_corners") is True),
        "antialiased": float(given.get("antialias") is True),
        "log_serial_steps": math.log2(steps + 1),
        "log_step_rows": math.log2(rows + 1),
        "log_hidden": math.log2(hidden + 1),
        "log_independent_rows": math.log2(_independent_rows(operation) + 1),
        "second_row_major": float(len(tensors) > 1 and bool(tensors[1].stride) and tensors[1].stride[-1] == 1),
    }


def serial_time_s(operation: Operation) -> float:
    """What steps take that must follow one another, however many multiprocessors there are."""
    steps, _, _ = recurrence(operation)
    if steps:
        return steps * RECURRENT_STEP_S
    first = operation.tensors[0] if operation.tensors else None
    if first is None or operation.kwargs.get("mode") not in _WEIGHTED:
        return 0.0
    threads_s = 0.0 if _channels_last(first) else math.prod(first.shape[:2]) * CHANNEL_STEP_S
    return threads_s + (_atomics_s(first, sum(each.elements for each in operation.out)) if first.grad else 0.0)


def _atomics_s(image: TensorSpec, gradients: int) -> float:
    """What so many gradients of an interpolation's output wait for where they are added to those of its input."""
    meeting = max(gradients / max(image.elements, 1), 1.0)
    hindered = min(1.0 + meeting / _UNHINDERED, _MOST_HINDERED)
    return gradients * hindered * _ATOMIC_S.get(_ELEMENT_BYTES.get(image.dtype, 2), 0.0)


def _independent_rows(operation: Operation) -> int:
    """Rows that a normalisation works on one by one: with few of them most multiprocessors have nothing to do."""
    if not operation.tensors or len(operation.tensors[0].shape) < 2:
        return 0
    shape = operation.tensors[0].shape
    match operation.operation_class:
        case "batch_norm":
            return shape[1]
        case "instance_norm":
            return shape[0] * shape[1]
        case "group_norm":
            return shape[0] * _group_count(operation)
        case "layer_norm" | "rms_norm" | "softmax" | "log_softmax":
            return math.prod(shape[:-1])
    return 0


def recurrence(operation: Operation) -> tuple[int, int, int]:
    """Steps of all layers, one after another, size of the state, and rows of each step; zeros for what has none."""
    if operation.operation_class not in RECURRENT_GATES or len(operation.args) != _RECURRENT_ARGUMENTS:
        return 0, 0, 0
    *_, layers, _, _, both, batch_first = operation.args
    shape, state = operation.tensors[0].shape, operation.tensors[1].shape
    if len(shape) != 3:
        return 0, 0, 0
    rows, length = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
    return length * int(layers), state[-1], rows * (2 if both else 1)


def _is_convolution(operation: Operation) -> bool:
    tensors = operation.tensors
    return operation.operation_class.startswith("conv") and len(tensors) > 1 and len(tensors[1].shape) > 2


def _group_count(operation: Operation) -> int:
    count = operation.args[1] if operation.operation_class == "group_norm" and len(operation.args) > 1 else 0
    return count if isinstance(count, int) else 0


def _channels_last(tensor: Any) -> bool:
    one: TensorSpec = tensor
    return len(one.shape) >= 3 and one.shape[1] > 1 and one.stride[1] == 1


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
    """The product that an operation's forward pass is; None if it is none, or of a kind that is not known here.

    A convolution is counted as the implicit matrix product that it is (Chetlur et al., cuDNN, arXiv:1410.0759): output
    pixels by output channels by window.
    """
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
