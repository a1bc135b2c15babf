"""Operations that others measured, from the way they printed them: a module's `repr` and the shape of its input.

Only the modules of an allow-list are known, and only literals are read: nothing is imported or evaluated, so a table
from elsewhere can do no harm. Inputs are contiguous float32; in training the input needs a gradient too, as when a
module is measured alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from clockwatt.errors import DataFileError
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec, contiguous_stride
from clockwatt.schema.records import TRAINING

Shape = tuple[int, ...]
_FUNCTIONAL = "torch.nn.functional"


class UnknownModuleError(DataFileError):
    """A printed module is none that can be read."""


class _Printed:
    """A module as it was printed: its class, its positional and its named settings."""

    def __init__(self, text: str) -> None:
        try:
            call = _call(text)
            self.name = call.func.id if isinstance(call.func, ast.Name) else ""
            self.args = [_literal(node) for node in call.args]
            self.kwargs = {entry.arg: _literal(entry.value) for entry in call.keywords if entry.arg}
        except (SyntaxError, ValueError) as error:
            raise UnknownModuleError(f"{text!r}: not the printed form of a module ({error}).") from None

    def get(self, name: str, position: int | None = None, default: Any = None) -> Any:
        """A setting by its name, or by its position among those printed without one."""
        if position is not None and position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


def _call(text: str) -> ast.Call:
    call = ast.parse(text.strip(), mode="eval").body
    if isinstance(call, ast.Call):
        return call
    raise ValueError("no call")


def _literal(node: ast.expr) -> Any:
    """A literal; a bare word, as in `mode=row`, is a string."""
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def operation_of(printed: str, input_shape: Sequence[int], pass_: str) -> Operation:
    """Read a module as the operation that its forward calls.

    Parameters
    ----------
    printed
        Such as `Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)`.
    input_shape
        Of its only input.
    pass_
        `inference` or `training`.

    Raises
    ------
    UnknownModuleError
        If it is not the printed form of a known module, or the input does not fit it.
    """
    module = _Printed(printed)
    if module.name not in _READERS:
        raise UnknownModuleError(f"{printed!r}: {module.name} is not among {', '.join(sorted(_READERS))}.")
    shape = tuple(int(size) for size in input_shape)
    try:
        return _READERS[module.name](module, shape, pass_ == TRAINING)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UnknownModuleError(f"{printed!r}: does not fit an input of shape {shape} ({error}).") from None


def _operation(
    name: str,
    shapes: Sequence[Shape],
    out: Shape,
    training: bool,
    *settings: Any,
    buffers: Sequence[int] = (),
    named: dict[str, Any] | None = None,
) -> Operation:
    """A call whose first tensor is the input and whose others are parameters, or buffers where their index says so."""
    tensors = tuple(
        TensorSpec.dense(shape, parameter=number > 0, grad=training and number not in buffers)
        for number, shape in enumerate(shapes)
    )
    stride = contiguous_stride(out)
    outputs = (OutputSpec(out, "float32", stride, grad=training),)
    return Operation(name, settings, named or {}, tensors, outputs, (stride,) if training else ())


def _tensor(number: int) -> dict[str, int]:
    return {"tensor": number}


def _pair(value: Any) -> tuple[int, int]:
    first, second = value if isinstance(value, tuple) else (value, value)
    return int(first), int(second)


def _encoded(pair: tuple[int, int]) -> dict[str, list[int]]:
    return {"tuple": list(pair)}


def _window_out(size: int, kernel: int, stride: int, padding: int, dilation: int = 1, *, ceil: bool = False) -> int:
    """Extent of what a sliding window gives, as PyTorch documents it."""
    steps, rest = divmod(size + 2 * padding - dilation * (kernel - 1) - 1, stride)
    if ceil and rest and (steps + 1) * stride < size + padding:
        steps += 1
    if steps < 0:
        raise ValueError("the window is larger than the input")
    return steps + 1


def _conv2d(module: _Printed, shape: Shape, training: bool) -> Operation:
    channels, out_channels = int(module.args[0]), int(module.args[1])
    batch, given, *image = shape
    if given != channels:
        raise ValueError(f"{channels} channels are wanted")
    kernel, stride = _pair(module.kwargs["kernel_size"]), _pair(module.get("stride", default=1))
    padding, dilation = _pair(module.get("padding", default=0)), _pair(module.get("dilation", default=1))
    groups, bias = int(module.get("groups", default=1)), bool(module.get("bias", default=True))
    size = (_window_out(*each) for each in zip(image, kernel, stride, padding, dilation, strict=True))
    shapes = [shape, (out_channels, channels // groups, *kernel), *([(out_channels,)] if bias else [])]
    return _operation(
        f"{_FUNCTIONAL}.conv2d", shapes, (batch, out_channels, *size), training,
        _tensor(0), _tensor(1), _tensor(2) if bias else None,
        _encoded(stride), _encoded(padding), _encoded(dilation), groups,
    )  # fmt: skip


def _linear(module: _Printed, shape: Shape, training: bool) -> Operation:
    inputs, outputs = int(module.get("in_features", 0)), int(module.get("out_features", 1))
    if shape[-1] != inputs:
        raise ValueError(f"{inputs} features are wanted")
    bias = bool(module.get("bias", default=True))
    shapes = [shape, (outputs, inputs), *([(outputs,)] if bias else [])]
    tensors = [_tensor(0), _tensor(1), _tensor(2) if bias else None]
    return _operation(f"{_FUNCTIONAL}.linear", shapes, (*shape[:-1], outputs), training, *tensors)


def _batch_norm(module: _Printed, shape: Shape, training: bool) -> Operation:
    channels = int(module.args[0])
    if shape[1] != channels:
        raise ValueError(f"{channels} channels are wanted")
    return _operation(
        f"{_FUNCTIONAL}.batch_norm", [shape, *[(channels,)] * 4], shape, training,
        _tensor(0), _tensor(1), _tensor(2), buffers=(1, 2),
        named={
            "weight": _tensor(3), "bias": _tensor(4), "training": training,
            "momentum": float(module.get("momentum", default=0.1)), "eps": float(module.get("eps", default=1e-5)),
        },
    )  # fmt: skip


def _layer_norm(module: _Printed, shape: Shape, training: bool) -> Operation:
    normalized = tuple(int(size) for size in module.args[0])
    if shape[-len(normalized) :] != normalized:
        raise ValueError(f"last dimensions {normalized} are wanted")
    return _operation(
        f"{_FUNCTIONAL}.layer_norm", [shape, normalized, normalized], shape, training,
        _tensor(0), {"tuple": list(normalized)},
        named={"weight": _tensor(1), "bias": _tensor(2), "eps": float(module.get("eps", default=1e-5))},
    )  # fmt: skip


def _max_pool(module: _Printed, shape: Shape, training: bool) -> Operation:
    kernel = _pair(module.kwargs["kernel_size"])
    stride = _pair(module.get("stride", default=kernel))
    padding, dilation = _pair(module.get("padding", default=0)), _pair(module.get("dilation", default=1))
    ceil = bool(module.get("ceil_mode", default=False))
    sizes = zip(shape[2:], kernel, stride, padding, dilation, strict=True)
    out = (*shape[:2], *(_window_out(*each, ceil=ceil) for each in sizes))
    return _operation(
        f"{_FUNCTIONAL}.max_pool2d", [shape], out, training, _tensor(0), _encoded(kernel),
        named={
            "stride": _encoded(stride), "padding": _encoded(padding),
            "dilation": _encoded(dilation), "ceil_mode": ceil,
        },
    )  # fmt: skip


def _avg_pool(module: _Printed, shape: Shape, training: bool) -> Operation:
    kernel = _pair(module.kwargs["kernel_size"])
    stride, padding = _pair(module.get("stride", default=kernel)), _pair(module.get("padding", default=0))
    out = (*shape[:2], *(_window_out(*each) for each in zip(shape[2:], kernel, stride, padding, strict=True)))
    settings = [_tensor(0), _encoded(kernel), _encoded(stride), _encoded(padding)]
    return _operation(f"{_FUNCTIONAL}.avg_pool2d", [shape], out, training, *settings)


def _adaptive_avg_pool(module: _Printed, shape: Shape, training: bool) -> Operation:
    size = _pair(module.kwargs["output_size"])
    out = (*shape[:2], *size)
    return _operation(f"{_FUNCTIONAL}.adaptive_avg_pool2d", [shape], out, training, _tensor(0), _encoded(size))


def _stochastic_depth(module: _Printed, shape: Shape, training: bool) -> Operation:
    """A product with one random number per row; the identity in inference, or where nothing is ever dropped."""
    if not training or float(module.kwargs["p"]) == 0.0:
        return _operation("torch.Tensor.view_as", [shape], shape, training, _tensor(0), _tensor(0))
    factor = (shape[0], *[1] * (len(shape) - 1))
    return _operation("torch.mul", [shape, factor], shape, training, _tensor(0), _tensor(1), buffers=(1,))


def _elementwise(name: str) -> Callable[[_Printed, Shape, bool], Operation]:
    def read(module: _Printed, shape: Shape, training: bool) -> Operation:  # noqa: ARG001  # one signature for all
        return _operation(name, [shape], shape, training, _tensor(0))

    return read


_READERS: dict[str, Callable[[_Printed, Shape, bool], Operation]] = {
    "Conv2d": _conv2d,
    "Linear": _linear,
    "BatchNorm2d": _batch_norm,
    "LayerNorm": _layer_norm,
    "MaxPool2d": _max_pool,
    "AvgPool2d": _avg_pool,
    "AdaptiveAvgPool2d": _adaptive_avg_pool,
    "StochasticDepth": _stochastic_depth,
    "ReLU": _elementwise(f"{_FUNCTIONAL}.relu"),
    "SiLU": _elementwise(f"{_FUNCTIONAL}.silu"),
    "GELU": _elementwise(f"{_FUNCTIONAL}.gelu"),
    "Sigmoid": _elementwise("torch.sigmoid"),
}
