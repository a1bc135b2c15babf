"""Operations that others measured, from the way they printed them: a module's `repr` and the shape of its input.

Only the modules of an allow-list are known, and only literals are read: nothing is imported or evaluated, so a table
from elsewhere can do no harm. Inputs are contiguous float32; in training the input needs a gradient too, as when a
module is measured alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from clockwatt.errors import DataFileError
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec, contiguous_stride
from clockwatt.schema.records import TRAINING

Shape = tuple[int, ...]
_FUNCTIONAL = "torch.nn.functional"


class UnknownModuleError(DataFileError):
    """A printed module is none that can be read."""


class NoReaderError(UnknownModuleError):
    """A printed module is of a class that is not known."""

    def __init__(self, printed: str, module: str) -> None:
        super().__init__(f"{printed!r}: {module} is not among {', '.join(sorted(_READERS))}.")
        self.module = module


class _Printed:
    """A module as it was printed: its class, its positional and its named settings."""

    def __init__(self, text: str) -> None:
        try:
            self.name, call = _call(text)
            self.args = [_literal(node) for node in call.args]
            self.kwargs = {entry.arg: _literal(entry.value) for entry in call.keywords if entry.arg}
        except (SyntaxError, ValueError) as error:
            raise UnknownModuleError(f"{text!r}: not the printed form of a module ({error}).") from None

    def get(self, name: str, position: int | None = None, default: Any = None) -> Any:
        """Return a setting by its name, or by its position among those printed without one."""
        if position is not None and position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


def _call(text: str) -> tuple[str, ast.Call]:
    """Return the name of the class and the call."""
    call = ast.parse(text.strip(), mode="eval").body
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        return call.func.id, call
    raise ValueError("write it as Conv2d(3, 64, kernel_size=(7, 7))")


def _literal(node: ast.expr) -> Any:
    """Return a literal; a bare word, as in `mode=row`, is a string."""
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def operation_of(printed: str, input_shape: Sequence[int], pass_: str) -> Operation:
    """Read a module as the operation that its forward calls.

    Parameters
    ----------
    printed
        Such as `Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)`.
    input_shape
        The shape of its only input.
    pass_
        `inference` or `training`.

    Raises
    ------
    UnknownModuleError
        If it is not the printed form of a known module, or the input does not fit it.
    """
    module = _Printed(printed)
    if module.name not in _READERS:
        raise NoReaderError(printed, module.name)
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
    positive: Sequence[int] = (),
    named: dict[str, Any] | None = None,
    in_place: bool = False,
) -> Operation:
    """A call whose first tensor is the input and whose others are parameters, or buffers where their index says so.

    It is spelled as PyTorch's module calls the function, so that it is the operation that a traced network has.
    `positive` are tensors without negative values; `in_place` says that the input is changed.
    """
    dense = (
        TensorSpec.dense(shape, parameter=number > 0, grad=training and number not in buffers)
        for number, shape in enumerate(shapes)
    )
    tensors = tuple(replace(tensor, positive=number in positive) for number, tensor in enumerate(dense))
    stride = contiguous_stride(out)
    outputs = (OutputSpec(out, "float32", stride, grad=training),)
    return Operation(
        name, settings, named or {}, tensors, outputs, (stride,) if training else (), (0,) if in_place else ()
    )


def _tensor(number: int) -> dict[str, int]:
    return {"tensor": number}


def _pair(value: Any) -> tuple[int, int]:
    first, second = value if isinstance(value, tuple) else (value, value)
    return int(first), int(second)


def _encoded(pair: tuple[int, int]) -> dict[str, list[int]]:
    return {"tuple": list(pair)}


def _as_printed(value: Any) -> Any:
    """Return a setting as a traced call has it: a number stays a number, also where a pair is meant."""
    return {"tuple": list(value)} if isinstance(value, tuple) else value


def _window_out(size: int, kernel: int, stride: int, padding: int, dilation: int = 1, *, ceil: bool = False) -> int:
    """Return the extent of what a sliding window gives, as PyTorch documents it."""
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
        _tensor(0), _tensor(1), _tensor(2), buffers=(1, 2), positive=(2,),
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
    kernel = module.kwargs["kernel_size"]
    stride = module.get("stride", default=kernel)
    padding, dilation = module.get("padding", default=0), module.get("dilation", default=1)
    ceil = bool(module.get("ceil_mode", default=False))
    sizes = zip(shape[2:], *map(_pair, (kernel, stride, padding, dilation)), strict=True)
    out = (*shape[:2], *(_window_out(*each, ceil=ceil) for each in sizes))
    return _operation(
        f"{_FUNCTIONAL}.max_pool2d", [shape], out, training, _tensor(0), _as_printed(kernel),
        named={
            "stride": _as_printed(stride), "padding": _as_printed(padding),
            "dilation": _as_printed(dilation), "ceil_mode": ceil, "return_indices": False,
        },
    )  # fmt: skip


def _avg_pool(module: _Printed, shape: Shape, training: bool) -> Operation:
    kernel = module.kwargs["kernel_size"]
    stride, padding = module.get("stride", default=kernel), module.get("padding", default=0)
    ceil, count_padding = (
        bool(module.get("ceil_mode", default=False)),
        bool(module.get("count_include_pad", default=True)),
    )
    sizes = zip(shape[2:], *map(_pair, (kernel, stride, padding)), strict=True)
    out = (*shape[:2], *(_window_out(*each, ceil=ceil) for each in sizes))
    windows = [_as_printed(setting) for setting in (kernel, stride, padding)]
    settings = [_tensor(0), *windows, ceil, count_padding, module.get("divisor_override")]
    return _operation(f"{_FUNCTIONAL}.avg_pool2d", [shape], out, training, *settings)


def _adaptive_avg_pool(module: _Printed, shape: Shape, training: bool) -> Operation:
    size = module.kwargs["output_size"]
    out = (*shape[:2], *_pair(size))
    return _operation(f"{_FUNCTIONAL}.adaptive_avg_pool2d", [shape], out, training, _tensor(0), _as_printed(size))


def _stochastic_depth(module: _Printed, shape: Shape, training: bool) -> Operation:
    """Return a product with one random number per row; the identity in inference, or where nothing is ever dropped."""
    if not training or float(module.kwargs["p"]) == 0.0:
        return _operation("torch.Tensor.view_as", [shape], shape, training, _tensor(0), _tensor(0))
    factor = (shape[0], *[1] * (len(shape) - 1))
    return _operation("torch.mul", [shape, factor], shape, training, _tensor(0), _tensor(1), buffers=(1,))


def _elementwise(name: str) -> Callable[[_Printed, Shape, bool], Operation]:
    def read(module: _Printed, shape: Shape, training: bool) -> Operation:  # noqa: ARG001  # one signature for all
        return _operation(name, [shape], shape, training, _tensor(0))

    return read


def _activation(name: str, **defaults: Any) -> Callable[[_Printed, Shape, bool], Operation]:
    """Return one that takes settings, and may change its input in place, and says so in the call."""

    def read(module: _Printed, shape: Shape, training: bool) -> Operation:
        named = {
            key: module.get(key, place, default)
            for place, (key, default) in enumerate({**defaults, "inplace": False}.items())
        }
        in_place = bool(named["inplace"])
        return _operation(name, [shape], shape, training, _tensor(0), named=named, in_place=in_place)

    return read


def _dropout(module: _Printed, shape: Shape, training: bool) -> Operation:
    """Return one that drops a half, as tracing records it, since the rate does not change the cost."""
    p, in_place = float(module.get("p", 0, 0.5)), bool(module.get("inplace", 1, default=False))
    named = {"p": 0.5 if 0 < p < 1 else p, "training": training, "inplace": in_place}
    name = f"{_FUNCTIONAL}.dropout"
    return _operation(name, [shape], shape, training, _tensor(0), named=named, in_place=in_place)


def _softmax(module: _Printed, shape: Shape, training: bool) -> Operation:
    named = {"dim": module.get("dim", 0), "_stacklevel": 5, "dtype": None}
    return _operation(f"{_FUNCTIONAL}.softmax", [shape], shape, training, _tensor(0), named=named)


def _gelu(module: _Printed, shape: Shape, training: bool) -> Operation:
    approximate = str(module.get("approximate", 0, default="none"))
    return _operation(
        f"{_FUNCTIONAL}.gelu", [shape], shape, training, _tensor(0), named={"approximate": approximate}
    )  # fmt: skip


_READERS: dict[str, Callable[[_Printed, Shape, bool], Operation]] = {
    "Conv2d": _conv2d,
    "Linear": _linear,
    "BatchNorm2d": _batch_norm,
    "LayerNorm": _layer_norm,
    "MaxPool2d": _max_pool,
    "AvgPool2d": _avg_pool,
    "AdaptiveAvgPool2d": _adaptive_avg_pool,
    "StochasticDepth": _stochastic_depth,
    "ReLU": _activation(f"{_FUNCTIONAL}.relu"),
    "SiLU": _activation(f"{_FUNCTIONAL}.silu"),
    "GELU": _gelu,
    "ReLU6": _activation(f"{_FUNCTIONAL}.hardtanh", min_val=0.0, max_val=6.0),
    "LeakyReLU": _activation(f"{_FUNCTIONAL}.leaky_relu", negative_slope=0.01),
    "ELU": _activation(f"{_FUNCTIONAL}.elu", alpha=1.0),
    "Hardswish": _activation(f"{_FUNCTIONAL}.hardswish"),
    "Hardsigmoid": _activation(f"{_FUNCTIONAL}.hardsigmoid"),
    "Dropout": _dropout,
    "Softmax": _softmax,
    "Tanh": _elementwise("torch.tanh"),
    "Sigmoid": _elementwise("torch.sigmoid"),
}
