"""What an operation computes and moves, whatever the device: FLOPs, compulsory traffic, whether anything runs at all.

FLOPs of matrix products, convolutions and attention come from `torch.utils.flop_counter`, forward and backward, from a
run on the meta device. All others are counted by formulas per element, below: one for each addition, multiplication,
division, comparison or elementary function. They decide little, since these operations are bound by memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count, sdpa_backward_flop_count, sdpa_flop_count

from clockwatt.operations import optimizers
from clockwatt.operations.build.build import build
from clockwatt.operations.spec.operation import MATRIX_CLASSES, RECURRENT_CLASSES, Operation, OperationSpecError
from clockwatt.operations.spec.tensor_spec import StridedSpec
from clockwatt.operations.trace import recurrent
from clockwatt.operations.trace.meta import MetaFused, MetaLayouts
from clockwatt.schema.records import TRAINING

FLOP_COUNTER = "flop_counter"
FORMULA = "formula"
NONE = "none"

FLOPS_PER_ELEMENT: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("sigmoid", "tanh", "hardsigmoid", "logsigmoid", "softplus"), (3, 3)),
    **dict.fromkeys(("silu", "hardswish", "mish"), (4, 6)),
    "gelu": (8, 12),  # by erf: scale, erf, add, two products; backward adds the density
    "elu": (3, 3),
    "softmax": (5, 4),  # maximum, difference, exp, sum, quotient
    "log_softmax": (5, 4),
    "cross_entropy": (5, 3),  # log_softmax; the pick and the mean are small
    "batch_norm": (7, 9),  # mean, variance (3), normalise and scale (3); backward: two sums and their mixture
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm", "native_layer_norm"), (7, 9)),
    "rms_norm": (4, 7),
    "normalize": (3, 6),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), (0, 1)),
    "dropout": (2, 1),
    **dict.fromkeys(("div", "truediv", "pow", "sqrt", "rsqrt"), (1, 2)),
    **dict.fromkeys(("mul", "multiply"), (1, 2)),
}
"""FLOPs (forward, backward) per element of the largest tensor, of classes where they are not (1, 1)."""

_BATCH_NORM_EVAL = 2
"""With running statistics a batch norm scales and shifts."""

NO_FLOPS = frozenset(
    {
        *(
            "cat",
            "concat",
            "concatenate",
            "stack",
            "hstack",
            "vstack",
            "roll",
            "flip",
            "pad",
            "repeat",
            "tile",
            "clone",
        ),
        *(
            "contiguous",
            "copy",
            "to",
            "float",
            "half",
            "bfloat16",
            "type",
            "type_as",
            "fill",
            "zero",
            "setitem",
            "where",
        ),
        *(
            "zeros",
            "ones",
            "full",
            "zeros_like",
            "ones_like",
            "full_like",
            "new_zeros",
            "new_ones",
            "new_full",
            "arange",
        ),
        *("embedding", "gather", "index_select", "take", "masked_fill", "tril", "triu", "one_hot", "eye", "linspace"),
        *("getitem", "index", "reshape", "flatten", "unflatten", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle"),
        *(
            "view",
            "view_as",
            "transpose",
            "permute",
            "swapaxes",
            "movedim",
            "squeeze",
            "unsqueeze",
            "t",
            "T",
            "mT",
            "detach",
        ),
        *("chunk", "split", "unbind", "narrow", "select", "unfold", "diagonal"),
    }
)
"""Classes that only move data. Their backward passes may add up; that is not counted either."""

_GATHERS = {"embedding": 1, "gather": 0, "index_select": 0, "take": 0, "getitem": 0}
"""Which tensor is read no further than elements are given, of classes that pick elements."""

_TRANSFORMS = {f"{kind}fft{axes}": axes for kind in ("", "i", "r", "ir", "h", "ih") for axes in ("", "2", "n")}
"""Fourier transforms, and over how many axes: the last one, the last two, all."""

_COMPLEX_FLOPS = 4
"""A product of complex numbers is four of real ones."""

_OVERWRITES = frozenset({"zero", "fill", "copy", "setitem", "bernoulli", "normal", "uniform", "random", "exponential"})
"""Classes that in place write without reading what was there."""

_WINDOWS = frozenset({*(f"max_pool{n}d" for n in (1, 2, 3)), *(f"avg_pool{n}d" for n in (1, 2, 3))})
"""Classes that combine a window of the input into each element of the output."""


@dataclass(frozen=True)
class Cost:
    """Of one pass of an operation."""

    flops: int
    flops_source: str
    bytes_read: int
    bytes_written: int
    device_work: bool
    random: bool


def cost(operation: Operation, pass_: str) -> Cost:
    """Count what one pass of an operation costs.

    Parameters
    ----------
    operation
        Built and run on the meta device.
    pass_
        `inference` (forward) or `training` (forward and, where a gradient arrives, backward).

    Raises
    ------
    OperationSpecError
        If it cannot be built or called.
    """
    if operation.is_optimizer:
        return _optimizer_cost(operation)
    backward = pass_ == TRAINING and operation.has_backward
    counter = FlopCounterMode(display=False, custom_mapping=_OWN_COUNTS)
    work, work_back = _DeviceWork(), _DeviceWork()
    with torch.inference_mode(mode=False), torch.set_grad_enabled(backward), MetaLayouts(), MetaFused():
        built = build(operation, "meta", pass_=pass_)
        try:
            with work, counter:
                outputs = built.forward()
        except (NotImplementedError, RuntimeError):  # what it gives depends on values, which meta does not have
            return _cost_of_selection(operation, backward=backward)
        except (TypeError, ValueError) as error:
            raise OperationSpecError(f"{operation.function}: cannot be called ({error}).") from None
        flops, source = counter.get_total_flops(), FLOP_COUNTER
        if backward:
            with work_back, counter:
                built.backward(outputs)
            flops += counter.get_total_flops()
    passes = _Passes(work.seen, work_back.seen)
    if any(tensor.complex for tensor in operation.tensors):
        flops *= _COMPLEX_FLOPS
    if not flops:
        flops = _flops(operation, passes)
        source = FORMULA if flops else NONE
    # attention draws numbers only for dropout, which its tag cannot say
    random = work.random and operation.operation_class not in MATRIX_CLASSES
    return Cost(flops, source, *_traffic(operation, passes), device_work=any(passes), random=random)


def _cost_of_selection(operation: Operation, *, backward: bool) -> Cost:
    """Of an operation that picks elements by the values of its tensors: `nonzero`, or a subscript that is a mask."""
    traffic = _traffic(operation, _Passes(forward=True, backward=backward))
    return Cost(0, NONE, *traffic, device_work=True, random=False)


class _Passes(NamedTuple):
    """Where the device has anything to do."""

    forward: bool
    backward: bool


def _convolution_backward_flops(
    grad_shape: Any, x_shape: Any, w_shape: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,  # noqa: ARG001  # as PyTorch calls it
    output_padding: Any, groups: Any, output_mask: Sequence[bool], out_shape: Any,  # noqa: ARG001  # as PyTorch calls it
) -> int:  # fmt: skip
    """FLOPs of a convolution's backward pass: each gradient costs what the forward pass does.

    PyTorch's own count leaves the groups out in the gradient of the weight, up to a thousandfold too much.
    """
    each: int = conv_flop_count(x_shape, w_shape, grad_shape, transposed=transposed)
    return each * (output_mask[0] + output_mask[1])


def _attention_flops(query_shape: Any, key_shape: Any, value_shape: Any, *_: Any, **__: Any) -> int:
    """FLOPs of fused attention; PyTorch 2.11 counts no grouped queries, whose keys and values serve several heads."""
    counted: int = sdpa_flop_count(query_shape, *_served(query_shape, key_shape, value_shape))
    return counted


def _attention_backward_flops(
    grad_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any, *_: Any, **__: Any
) -> int:
    """FLOPs of the backward pass of fused attention; see `_attention_flops`."""
    counted: int = sdpa_backward_flop_count(grad_shape, query_shape, *_served(query_shape, key_shape, value_shape))
    return counted


def _served(query_shape: Any, *shapes: Any) -> list[tuple[int, ...]]:
    """Shapes (batch, heads, length, width) with as many heads as the queries have."""
    return [(shape[0], query_shape[1], *shape[2:]) for shape in shapes]


def _grouped_flops(one: Any, other: Any, *_: Any, **__: Any) -> int:
    """FLOPs of matrix products of groups, which divide the rows, the columns or the inner dimension."""
    matrices: int = one[0] if len(one) == len(other) == 3 else 1
    flops: int = 2 * matrices * math.prod(one[-2:]) * other[-1]
    return flops


def _trilinear_flops(*tensors_and_dims: Any, **_: Any) -> int:
    """FLOPs of products of three tensors that are summed, as a bilinear layer and its gradients are."""
    shapes, added = tensors_and_dims[:3], tensors_and_dims[3:6]  # where each tensor has a dimension of 1 more
    ndim = len(shapes[0]) + len(added[0])
    sizes = [1] * ndim
    for shape, dims in zip(shapes, added, strict=True):
        for place, size in zip((place for place in range(ndim) if place not in dims), shape, strict=True):
            sizes[place] = max(sizes[place], size)
    return 2 * math.prod(sizes)


_OWN_COUNTS = {
    torch.ops.aten._trilinear: _trilinear_flops,
    torch.ops.aten.convolution_backward: _convolution_backward_flops,
    torch.ops.aten._grouped_mm: _grouped_flops,
    torch.ops.aten._scaled_dot_product_flash_attention: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_backward: _attention_backward_flops,
}


class _DeviceWork(TorchDispatchMode):
    """Notes whether any call below the dispatcher does more than describe memory, and whether it is random."""

    _ALLOCATES = ("aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::lift", "aten::_reshape_alias")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as PyTorch declares it
        self.seen = False
        self.random = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not func.is_view and not func.name().startswith(self._ALLOCATES):
            self.seen = True
            self.random |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _flops(operation: Operation, passes: _Passes) -> int:
    name = operation.operation_class
    involved: tuple[StridedSpec, ...] = (*operation.tensors, *operation.out)
    if name in NO_FLOPS or not any(tensor.floating or tensor.complex for tensor in involved):
        return 0
    if name in _TRANSFORMS:
        return _transform_flops(name, involved) * (passes.forward + passes.backward)
    if name in RECURRENT_CLASSES:
        weights = [tensor.elements for tensor in operation.tensors[1:] if len(tensor.shape) == 2]
        given = operation.out[0]
        steps = given.shape[0] * given.shape[1]
        return recurrent.flops(name, weights, steps, given.elements, backward=passes.backward)
    forward, backward = FLOPS_PER_ELEMENT.get(name, (1, 1))
    if name == "batch_norm" and not passes.backward:
        forward = _BATCH_NORM_EVAL
    if name in _WINDOWS:
        elements = operation.out[0].elements * _window(operation)
    elif name == "embedding_bag":
        elements = _looked_up(operation)
    else:
        elements = max(math.prod(tensor.shape) for tensor in involved)
    return elements * (forward * passes.forward + backward * passes.backward)


def _transform_flops(name: str, involved: Sequence[StridedSpec]) -> int:
    """FLOPs of fast Fourier transforms: 5 N log2 n, half where one side is real (Cooley and Tukey, 1965)."""
    largest = max(involved, key=lambda tensor: math.prod(tensor.shape))
    axes = {"": 1, "2": 2}.get(_TRANSFORMS[name], len(largest.shape))
    length = max(math.prod(largest.shape[-axes:]), 2)
    each = 5 if name in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn") else 2.5
    return int(each * math.prod(largest.shape) * math.log2(length))


def _looked_up(operation: Operation) -> int:
    """Elements of the rows that an `embedding_bag` takes from its table."""
    indices, table = operation.tensors[:2]
    if indices.floating:
        indices, table = table, indices
    return math.prod(indices.shape) * table.shape[1]


def _window(operation: Operation) -> int:
    """Elements of a pool's window."""
    size = operation.args[1] if len(operation.args) > 1 else operation.kwargs.get("kernel_size", 1)
    dimensions = int(operation.operation_class[-2])
    sizes = next(iter(size.values())) if isinstance(size, dict) else size
    return math.prod(sizes) if isinstance(sizes, list) else int(sizes) ** dimensions


def _traffic(operation: Operation, passes: _Passes) -> tuple[int, int]:
    """Bytes read and written if each tensor crossed the memory bus once: what no cache can save."""
    read = written = 0
    if passes.forward:
        written = sum(output.bytes for output in operation.out) or sum(
            operation.tensors[i].bytes for i in operation.mutates
        )
        read = _read_forward(operation, written)
    if passes.backward:
        arriving = zip(operation.out, operation.grad_out, strict=False)
        read += sum(output.bytes for output, stride in arriving if stride is not None)
        written += sum(tensor.bytes for tensor in operation.tensors if tensor.grad)
    return read, written


def _read_forward(operation: Operation, written: int) -> int:
    name = operation.operation_class
    given = [tensor.bytes for tensor in operation.tensors]
    if name.startswith("new_") or name.endswith("_like"):
        return 0
    if name in _OVERWRITES:
        return sum(given) - sum(given[number] for number in operation.mutates)
    if name == "embedding_bag":
        table = max(operation.tensors, key=lambda tensor: tensor.floating)
        row_bytes = table.bytes // table.shape[0]
        return sum(given) - table.bytes + min(table.bytes, _looked_up(operation) // table.shape[1] * row_bytes)
    if name in _GATHERS and given:
        picked = given[_GATHERS[name]]
        return sum(given) - picked + min(picked, written)
    return sum(given)


def _optimizer_cost(operation: Operation) -> Cost:
    parameters = sum(tensor.bytes for tensor in operation.tensors)
    state = optimizers.state_bytes(operation)
    return Cost(
        optimizers.flops(operation),
        FORMULA,
        2 * parameters + state,
        parameters + state,
        device_work=True,
        random=False,
    )
