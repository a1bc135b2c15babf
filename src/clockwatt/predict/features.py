"""Features of operations: those of the operation alone, and those at operating points of a GPU.

Sizes alone do not distinguish an LSTM of a thousand steps from one of ten with the same FLOPs, causal from full
attention, or nearest from bicubic interpolation. So some features describe the kernels. These are computed once for
each operation. The others, such as the GPU's roofline at a point, follow from them, the GPU's public specification and
the operating point, without measurements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import GpuSpec
from clockwatt.operations.spec.operation import MATRIX_CLASSES, Operation, OutputSpec, TensorSpec
from clockwatt.schema.execution import FP32, ExecutionSettings

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
"""Columns of the catalogue that features are computed from."""

NOT_LEARNT_FROM = ["dtype", "flops", "bytes", "serial_s", "channels_in", "channels_out"]
"""Columns of `operation_features` that are used for the roofline and the groups, not as features."""

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
"""Number of parsed specs to cache: GPUs of a campaign share operations, and each spec is used several times."""

DIMENSIONS = 4
"""Number of leading entries of a shape that are features; further ones count in the number of elements only."""

RECURRENT_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Number of matrices that each step of a recurrent layer multiplies its state with."""

_ELEMENT_BYTES = {"float64": 8, "float32": 4, "int64": 8, "int32": 4, "bool": 1, "uint8": 1, "int8": 1}
_INTERPOLATIONS = ("nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear", "bicubic")
_WEIGHTED = ("linear", "bilinear", "trilinear", "bicubic")
"""Interpolations whose kernels have a thread for each pixel, which goes through all channels of all rows."""
RECURRENT_STEP_S = 5e-6
"""Shortest time of a step of a recurrent layer, in s, at an H200's boost clock."""
CHANNEL_STEP_S = 2e-7
"""Time of an interpolation's thread for each channel, likewise."""
_ATOMIC_S = {2: 1e-10, 4: 2e-11, 8: 2e-11}
"""Time to add one gradient to a pixel in the backward pass of an interpolation, by bytes of an element. Half precision
uses compare-and-swap, and repeats it after a conflict with another thread."""
_UNHINDERED, _MOST_HINDERED = 64.0, 60.0
"""Number of gradients per pixel at which that takes twice as long, and the largest such factor."""
_ATTENTION_TENSORS = 3
_RECURRENT_ARGUMENTS = 9
"""Positions in `torch.lstm(input, state, weights, biases, layers, dropout, train, bidirectional, batch_first)`."""
_FACTORS = {
    **dict.fromkeys(("mm", "bmm", "matmul"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm"), (1, 2)),
}
"""Positions of the tensors that are multiplied."""


def operation_features(operations: pd.DataFrame) -> pd.DataFrame:
    """Return the features that depend on the operation alone.

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
        If a spec is not an operation.
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
    """Cache `Operation.from_json`: a fit reads the same specs several times."""
    return Operation.from_json(spec)


@functools.lru_cache(maxsize=_SPECS_KEPT)
def _numbers_of(spec: str) -> dict[str, float]:
    """Return the features of a spec. Do not change the dict: it is cached."""
    operation = read_operation(spec)
    given, out = channels(operation)
    return describe(operation) | {"serial_s": serial_time_s(operation), "channels_in": given, "channels_out": out}


def channel_groups(operations: pd.DataFrame) -> pd.Series:
    """Return each operation's group for cross-validation: operation class and channel configuration.

    Operations that differ only in batch, image size or operating point are near-duplicates. Held out together, they
    cannot make errors look too small.
    """
    given, out = (operations[name].astype(int).astype(str) for name in ("channels_in", "channels_out"))
    return operations[OPERATION_CLASS] + "/" + given + "/" + out


def describe(operation: Operation) -> dict[str, float]:
    """Return the features that describe one operation.

    Entries of a shape and attributes that an operation does not have are 0. Sizes are logarithms to the base of 2, so
    that a tree with random thresholds separates small sizes as well as large ones.

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
        "channels_last": float(bool(tensors) and _channels_last(tensors[0])),
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
    """Return channels of input and output: the last dimension where the operation works on it, else the second."""
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
    """Return the first number in an encoded argument: 3, {"tuple": [3, 3]} and [3, 3] all give 3."""
    if isinstance(value, dict):
        value = value.get("tuple")
    if isinstance(value, list):
        value = value[0] if value else None
    return float(value) if isinstance(value, int | float) else None


def _is_row_major(tensor: TensorSpec) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _alignment(size: int) -> float:
    """Return log2 of the largest power of two up to 64 that divides a size: matrix units use aligned tiles."""
    return math.log2(math.gcd(size, 64)) if size else 0.0


def setting_numbers(operation: Operation) -> dict[str, float]:
    """Return features of the settings, 0 where an operation lacks one; the same names for every operation."""
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
    """Return the time of sequential steps, which more multiprocessors do not shorten."""
    steps, _, _ = recurrence(operation)
    if steps:
        return steps * RECURRENT_STEP_S
    first = operation.tensors[0] if operation.tensors else None
    if first is None or operation.kwargs.get("mode") not in _WEIGHTED:
        return 0.0
    threads_s = 0.0 if _channels_last(first) else math.prod(first.shape[:2]) * CHANNEL_STEP_S
    return threads_s + (_atomics_s(first, sum(each.elements for each in operation.out)) if first.grad else 0.0)


def _atomics_s(image: TensorSpec, gradients: int) -> float:
    """Return the time that adding gradients of an interpolation's output to those of its input takes."""
    meeting = max(gradients / max(image.elements, 1), 1.0)
    hindered = min(1.0 + meeting / _UNHINDERED, _MOST_HINDERED)
    return gradients * hindered * _ATOMIC_S.get(_ELEMENT_BYTES.get(image.dtype, 2), 0.0)


def _independent_rows(operation: Operation) -> int:
    """Return the rows that a normalisation handles one by one: few rows leave most multiprocessors idle."""
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
    """Return sequential steps of all layers, size of the state, and rows of each step; zeros if not recurrent."""
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


def _channels_last(tensor: TensorSpec | OutputSpec) -> bool:
    return len(tensor.shape) >= 3 and tensor.shape[1] > 1 and tensor.stride[1] == 1


@dataclass(frozen=True)
class MatrixProduct:
    """`batch` products of a (rows, depth) with a (depth, columns) matrix."""

    rows: int
    columns: int
    depth: int
    batch: int = 1


def matrix_product(operation: Operation) -> MatrixProduct | None:
    """Return an operation's forward pass as a matrix product; None if it is not a known one.

    A convolution is an implicit matrix product (Chetlur et al., cuDNN, arXiv:1410.0759): output pixels by output
    channels by window.
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


ROOFLINE_TIME = "roofline_time_s"
POWER_LIMIT = "power_limit_w"


@dataclass(frozen=True)
class Setting:
    """GPU model, operating point and execution settings that an operation runs with."""

    spec: GpuSpec
    point: OperatingPoint
    execution: ExecutionSettings

    @property
    def sm_clock_mhz(self) -> float:
        """Requested SM clock; at `default` the clock that the GPU runs at under load."""
        return float(self.point.sm_clock_mhz or self.spec.boost_clock_mhz)

    @property
    def bandwidth_bytes_s(self) -> float:
        """Memory bandwidth at the requested memory clock."""
        highest = max(self.spec.memory_clocks_mhz)
        return self.spec.bandwidth_bytes_s * float(self.point.memory_clock_mhz or highest) / highest

    @property
    def power_limit_w(self) -> float:
        """Requested power limit; at `default` the GPU model's."""
        return float(self.point.power_limit_w or self.spec.power_w.default)


def sm_clock_mhz(point: str, spec: GpuSpec) -> float:
    """Return an operating point's SM clock; at `default` the clock that the GPU runs at under load."""
    return Setting(spec, OperatingPoint.parse(point), execution=FP32).sm_clock_mhz


def features_at(operations: pd.DataFrame, *settings: Setting) -> pd.DataFrame:
    """Return features of operations in settings: those of the operation, and the GPU's roofline there.

    Parameters
    ----------
    operations
        From `operation_features`; shape (operations, …).
    settings
        Settings that they run with, at least one.

    Returns
    -------
    pandas.DataFrame
        The same rows for each setting, one setting after another. `roofline_time_s` is FLOPs over the peak at this
        clock plus bytes over the bandwidth: the roofline (Williams, Waterman and Patterson, Commun. ACM 52(4), 2009)
        without overlap. On convolutions, the ratio of measured time to this sum is easier to predict than that to the
        larger of the two.
    """
    given = operations.drop(columns=NOT_LEARNT_FROM)
    if len(settings) > 1:
        given = given.take(np.tile(np.arange(len(given)), len(settings)))
    numbers = {name: operations[name].to_numpy(float) for name in ("flops", "bytes", "serial_s", "log_elements_out")}
    kinds = _kinds(operations)
    physics = [_physics(numbers, kinds, setting) for setting in settings]
    columns = {name: np.concatenate([each[name] for each in physics]) for name in physics[0]}
    return pd.concat([given, pd.DataFrame(columns, index=given.index)], axis=1)


def features_of(rows: pd.DataFrame, operations: pd.DataFrame, spec: GpuSpec) -> pd.DataFrame:
    """Return features of operations at the operating points they were measured at.

    Parameters
    ----------
    rows
        `operation_id`, `point` and `execution`; shape (rows, …).
    operations
        From `operation_features`, with every operation of `rows`.
    spec
        The GPU.

    Returns
    -------
    pandas.DataFrame
        One row for each of `rows`, with its index.
    """
    parts = []
    for (point, execution), group in rows.groupby(["point", "execution"], sort=True):
        setting = Setting(spec, OperatingPoint.parse(str(point)), ExecutionSettings(str(execution)))
        parts.append(features_at(operations.loc[group["operation_id"]], setting).set_index(group.index))
    return pd.concat(parts).loc[rows.index]


def _kinds(operations: pd.DataFrame) -> dict[tuple[str, bool], np.ndarray]:
    """Group operations by dtype and by whether they are matrix products, which a peak depends on."""
    matrix = operations[OPERATION_CLASS].isin(MATRIX_CLASSES | set(RECURRENT_GATES)).to_numpy(bool)
    dtypes = operations["dtype"].to_numpy(object)
    return {(dtype, kind): (dtypes == dtype) & (matrix == kind) for dtype in set(dtypes) for kind in (False, True)}


def _physics(
    operations: dict[str, np.ndarray], kinds: dict[tuple[str, bool], np.ndarray], setting: Setting
) -> dict[str, np.ndarray]:
    """Return the features that `features_at` adds in one setting; each of shape (operations,)."""
    spec = setting.spec
    clock_ratio = setting.sm_clock_mhz / spec.boost_clock_mhz
    count = len(operations["flops"])
    peak = np.empty(count)
    for (dtype, matrix), own in kinds.items():
        peak[own] = spec.peak_flops(dtype, tf32=setting.execution.matrix_tf32, matrix=matrix)
    peak *= clock_ratio
    compute_s = operations["flops"] / peak
    memory_s = operations["bytes"] / setting.bandwidth_bytes_s
    return {
        ROOFLINE_TIME: compute_s + memory_s + operations["serial_s"] / clock_ratio,
        "log_compute_time": np.log2(compute_s + 1e-9),
        "log_memory_time": np.log2(memory_s + 1e-9),
        "log_serial_time": np.log2(1 + operations["serial_s"] / clock_ratio * 1e6),
        "compute_bound": np.log2((compute_s + 1e-9) / (memory_s + 1e-9)),
        "log_bytes_over_l2": np.log2((operations["bytes"] + 1) / spec.l2_bytes),
        "log_outputs_per_sm": operations["log_elements_out"] - np.log2(spec.sm_count),
        "log_peak": np.log2(peak),
        "sm_clock_ratio": np.full(count, clock_ratio),
        "bandwidth_ratio": np.full(count, setting.bandwidth_bytes_s / spec.bandwidth_bytes_s),
        POWER_LIMIT: np.full(count, setting.power_limit_w),
    }


def settings_of(
    operations: pd.DataFrame, execution: ExecutionSettings, measured: Collection[str] = ()
) -> NDArray[np.object_]:
    """Return the settings under which each operation of a network was measured; shape (operations,).

    Parameters
    ----------
    operations
        With `operation_class` and `dtype`.
    execution
        Of the network.
    measured
        Settings of the measurements of operations.
    """
    kinds = zip(operations["operation_class"], operations["dtype"], strict=True)
    of_kind = functools.cache(lambda name, dtype: execution.of_operation(name, dtype, measured))
    return np.array([of_kind(*kind) for kind in kinds], dtype=object)
