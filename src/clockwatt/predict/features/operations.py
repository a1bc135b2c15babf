"""What an operation says in numbers, wherever it runs: class, sizes, shapes, attributes, layout.

It is computed once for each operation; what depends on the operating point is joined to it in `features.points`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.operations.spec.operation import Operation, TensorSpec
from clockwatt.predict.features.settings import matrix_product, serial_time_s, setting_numbers

OPERATION_CLASS = "operation_class"

CATALOGUE_COLUMNS = [
    "operation_id",
    "operation_class",
    "dtype",
    "spec",
    "flops",
    "bytes_read",
    "bytes_written",
    "parameter_bytes",
]
"""Columns of the catalogue that features are made of."""

NOT_LEARNT_FROM = ["dtype", "flops", "bytes", "serial_s", "channels_in", "channels_out"]
"""What `operation_features` gives for the physics and the groups alone."""


_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_MAX_POOL = ("input", "kernel_size", "stride", "padding", "dilation")
_AVERAGE_POOL = ("input", "kernel_size", "stride", "padding")
_ALONG = ("input", "dim")

POSITIONAL_NAMES: dict[str, tuple[str, ...]] = {
    **{f"conv{n}d": _CONVOLUTION for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _TRANSPOSED for n in (1, 2, 3)},
    **{f"max_pool{n}d": _MAX_POOL for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _AVERAGE_POOL for n in (1, 2, 3)},
    **dict.fromkeys(("softmax", "log_softmax", "cat", "stack", "mean", "sum", "flatten"), _ALONG),
    "roll": ("input", "shifts", "dim"),
}
"""Positional arguments of the operation classes whose attributes are features, as PyTorch documents them."""

ATTRIBUTES = ("kernel_size", "stride", "padding", "dilation", "groups", "dim")
"""Attributes that are features. A tuple counts with its first entry; `kernel_size` of a convolution is its weight's."""

_SIZES = ("kernel_size", "stride", "groups")

_MATRIX_NUMBERS = (
    *("matrix", "log_rows", "log_columns", "log_depth", "log_batch"),
    *("rows_alignment", "columns_alignment", "depth_alignment"),
)

LAST_DIMENSION_CLASSES = frozenset(
    {
        *("linear", "layer_norm", "rms_norm", "embedding", "softmax", "log_softmax", "scaled_dot_product_attention"),
        *("mm", "bmm", "matmul", "addmm", "baddbmm", "addbmm"),
    }
)
"""Operation classes whose channels are the last dimension."""

_SPECS_KEPT = 50_000
"""Of so many specs what was read is kept: the GPUs of a campaign share theirs, and each is asked for several times."""

DIMENSIONS = 4
"""Entries of a shape that are features, from the first on; further ones count in the number of elements."""


def operation_features(operations: pd.DataFrame) -> pd.DataFrame:
    """Features that depend on the operation alone.

    Parameters
    ----------
    operations
        Unique operations of one pass with `CATALOGUE_COLUMNS`; shape (operations, …).

    Returns
    -------
    pandas.DataFrame
        Indexed by operation id; class, dtype, FLOPs, bytes and the numbers of `describe`.

    Raises
    ------
    OperationSpecError
        If a spec is no operation.
    """
    index = pd.Index(operations["operation_id"], name="operation_id")
    features = pd.DataFrame([_numbers_of(spec) for spec in operations["spec"]], index=index)
    flops = operations["flops"].to_numpy(float)
    traffic = operations["bytes_read"].to_numpy(float) + operations["bytes_written"].to_numpy(float)
    elements_out = np.exp2(features["log_elements_out"].to_numpy(float))
    features[OPERATION_CLASS] = operations["operation_class"].to_numpy()
    features["dtype"] = operations["dtype"].to_numpy()
    features["flops"] = flops
    features["bytes"] = traffic
    features["log_flops"] = np.log2(flops + 1)
    features["log_bytes"] = np.log2(traffic + 1)
    features["log_bytes_written"] = np.log2(operations["bytes_written"].to_numpy(float) + 1)
    features["log_parameter_bytes"] = np.log2(operations["parameter_bytes"].to_numpy(float) + 1)
    features["log_intensity"] = np.log2((flops + 1) / (traffic + 1))
    features["log_flops_per_output"] = np.log2((flops + 1) / elements_out)
    return features


@functools.lru_cache(maxsize=_SPECS_KEPT)
def read_operation(spec: str) -> Operation:
    """`Operation.from_json`, which a fit asks for the same specs several times."""
    return Operation.from_json(spec)


@functools.lru_cache(maxsize=_SPECS_KEPT)
def _numbers_of(spec: str) -> dict[str, float]:
    """What a spec alone says; not to be changed, since the next who asks gets the same."""
    operation = read_operation(spec)
    given, out = channels(operation)
    return describe(operation) | {
        "serial_s": serial_time_s(operation), "channels_in": given, "channels_out": out
    }  # fmt: skip


def channel_groups(operations: pd.DataFrame) -> pd.Series:
    """Group of each operation for cross-validation: operation class and channel configuration.

    What differs only in batch, image size or operating point is nearly a duplicate; in one fold, it cannot flatter.
    """
    given, out = (operations[name].astype(int).astype(str) for name in ("channels_in", "channels_out"))
    return operations[OPERATION_CLASS] + "/" + given + "/" + out


def describe(operation: Operation) -> dict[str, float]:
    """Numbers that describe one operation.

    Entries of a shape and attributes that an operation does not have are 0; its class tells which they are. Sizes are
    logarithms to the base of 2: a tree that draws its thresholds at random then tells small sizes apart as well as
    large ones.

    Returns
    -------
    dict
        Feature name to value; the same names for every operation.
    """
    tensors, outputs = operation.tensors, operation.out
    elements = [tensor.elements for tensor in tensors]
    first = tensors[0].shape if tensors else ()
    second = tensors[1].shape if len(tensors) > 1 else ()
    numbers = {
        "tensors": float(len(tensors)),
        "tensors_with_gradient": float(sum(tensor.grad for tensor in tensors)),
        "input_dimensions": float(len(first)),
        "log_elements_in": math.log2(sum(elements) + 1),
        "log_elements_out": math.log2(sum(output.elements for output in outputs) + 1),
        "log_elements_smallest": math.log2(min(elements, default=0) + 1),
        "log_reduction": math.log2((math.prod(first) + 1) / (math.prod(outputs[0].shape if outputs else ()) + 1)),
        "log_last": math.log2(first[-1] + 1) if first else 0.0,
        "log_image": math.log2(math.prod(first[2:]) + 1),
        "channels_last": float(bool(tensors) and _is_channels_last(tensors[0])),
        "row_major": float(bool(tensors) and _is_row_major(tensors[0])),
        "rows_apart": float(bool(tensors) and bool(tensors[0].stride) and tensors[0].stride[-1] != 1),
        "image_alignment": _alignment(math.prod(first[2:])),
        "last_alignment": _alignment(first[-1] if first else 0),
        "channel_alignment": _alignment(first[1] if len(first) > 1 else next(iter(first), 1)),
        "in_place": float(bool(operation.mutates)),
    }
    for name, shape in (("input", first), ("second", second), ("output", outputs[0].shape if outputs else ())):
        for axis in range(DIMENSIONS):
            numbers[f"{name}_{axis}"] = math.log2(shape[axis] + 1) if axis < len(shape) else 0.0
    attributes = _attributes(operation)
    for name in ATTRIBUTES:
        value = attributes.get(name, 0.0)
        numbers[name] = math.log2(value + 1) if name in _SIZES else value
    return numbers | setting_numbers(operation) | _matrix_numbers(operation)


def channels(operation: Operation) -> tuple[int, int]:
    """Channels of the input and of the output: the last dimension where the operation works on it, else the second."""
    along_last = operation.operation_class in LAST_DIMENSION_CLASSES
    shapes = [operation.tensors[0].shape if operation.tensors else (), operation.out[0].shape if operation.out else ()]
    given, out = (0 if not shape else shape[-1] if along_last or len(shape) < 2 else shape[1] for shape in shapes)
    return given, out


def _matrix_numbers(operation: Operation) -> dict[str, float]:
    product = matrix_product(operation)
    if product is None:
        return dict.fromkeys(_MATRIX_NUMBERS, 0.0)
    sizes = (product.rows, product.columns, product.depth, product.batch)
    logarithms = [math.log2(size) for size in sizes]
    alignments = [_alignment(size) for size in sizes[:3]]
    return dict(zip(_MATRIX_NUMBERS, [1.0, *logarithms, *alignments], strict=True))


def _attributes(operation: Operation) -> dict[str, float]:
    names = POSITIONAL_NAMES.get(operation.operation_class, ())
    given = dict(zip(names, operation.args, strict=False)) | operation.kwargs
    numbers = {name: number for name in ATTRIBUTES if (number := _first_number(given.get(name))) is not None}
    if operation.operation_class.startswith("conv") and len(operation.tensors) > 1 and operation.tensors[1].shape[2:]:
        numbers["kernel_size"] = float(operation.tensors[1].shape[2])
    elif "kernel_size" in numbers:
        numbers.setdefault("stride", numbers["kernel_size"])  # a pool's stride is its window where none is given
    return numbers


def _first_number(value: Any) -> float | None:
    """The first number in an encoded argument: 3, {"tuple": [3, 3]} and [3, 3] all give 3."""
    if isinstance(value, dict):
        value = value.get("tuple")
    if isinstance(value, list):
        value = value[0] if value else None
    return float(value) if isinstance(value, int | float) else None


def _is_channels_last(tensor: TensorSpec) -> bool:
    return len(tensor.shape) >= 3 and tensor.shape[1] > 1 and tensor.stride[1] == 1


def _is_row_major(tensor: TensorSpec) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _alignment(size: int) -> float:
    """Logarithm of the largest power of two up to 64 that divides a size: matrix units work on aligned tiles."""
    return math.log2(math.gcd(size, 64)) if size else 0.0
