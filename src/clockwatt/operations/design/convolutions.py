"""Convolutions of every kind, each with what follows it in networks: a normalisation, an activation, a sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from clockwatt.operations.design.block import Block, Calls, Input
from clockwatt.operations.design.sizes import Sizes
from clockwatt.operations.spec.encode import dtype_of

MOST_FLOPS = 2e12
"""Of one convolution, before it is traced; the bound in time decides afterwards."""

_KINDS = {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d), 3: (nn.Conv3d, nn.ConvTranspose3d)}
_BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_INSTANCE_NORMS = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
_FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


def dtype(sizes: Sizes) -> str:
    """Dtype of a block: float32 in three of five."""
    return sizes.one_of(("float32", "bfloat16", "float16"), (60, 24, 16))


def layout(sizes: Sizes, dimensions: int) -> bool:
    """Whether a block is laid out channels_last."""
    return dimensions in _FORMATS and sizes.chance(0.3)


def activation(sizes: Sizes) -> nn.Module:
    """An activation, often in place."""
    in_place = sizes.chance(0.4)
    kinds: list[tuple[Callable[[], nn.Module], int]] = [
        (lambda: nn.ReLU(in_place), 30),
        (lambda: nn.SiLU(in_place), 14),
        (lambda: nn.GELU(sizes.one_of(("none", "tanh"))), 14),
        (lambda: nn.LeakyReLU(0.2, in_place), 8),
        (lambda: nn.ReLU6(in_place), 8),
        (lambda: nn.Hardswish(in_place), 7),
        (nn.Sigmoid, 5),
        (nn.Tanh, 5),
        (nn.Hardsigmoid, 3),
        (lambda: nn.ELU(inplace=in_place), 3),
        (nn.Softplus, 2),
        (lambda: nn.Mish(in_place), 2),
        (nn.PReLU, 2),
    ]
    return sizes.one_of([make for make, _ in kinds], [weight for _, weight in kinds])()


def normalisation(sizes: Sizes, channels: int, dimensions: int) -> nn.Module | None:
    """What normalises a convolution's output, if anything does."""
    kind = sizes.one_of(("batch", "group", "instance", None), (50, 17, 8, 25))
    if kind == "batch":
        return _BATCH_NORMS[dimensions](channels)
    if kind == "group":
        return nn.GroupNorm(groups_of(sizes, channels), channels)
    if kind == "instance":
        return _INSTANCE_NORMS[dimensions](channels, affine=sizes.chance(0.5))
    return None


def groups_of(sizes: Sizes, channels: int) -> int:
    """A number of groups that divides a number of channels, 32 where it can be."""
    if channels % 32 == 0 and sizes.chance(0.5):
        return 32
    return sizes.one_of([number for number in range(1, min(channels, 64) + 1) if channels % number == 0])


def dense(sizes: Sizes) -> Block:
    """A 2-D convolution in one group."""
    return _convolution(sizes, 2)


def grouped(sizes: Sizes) -> Block:
    """A 2-D convolution in several groups of any width."""
    return _convolution(sizes, 2, "grouped")


def depthwise(sizes: Sizes) -> Block:
    """A 2-D convolution of each channel by itself."""
    return _convolution(sizes, 2, "depthwise")


def signal(sizes: Sizes) -> Block:
    """A 1-D convolution of any kind."""
    return _convolution(sizes, 1, sizes.one_of(("dense", "grouped", "depthwise"), (60, 20, 20)))


def volume(sizes: Sizes) -> Block:
    """A 3-D convolution of any kind."""
    return _convolution(sizes, 3, sizes.one_of(("dense", "grouped", "depthwise"), (70, 15, 15)))


def transposed(sizes: Sizes) -> Block:
    """A transposed convolution."""
    dimensions = sizes.one_of((1, 2, 3), (20, 60, 20))
    return _convolution(sizes, dimensions, sizes.one_of(("dense", "grouped", "depthwise"), (84, 10, 6)), upwards=True)


def _convolution(sizes: Sizes, dimensions: int, kind: str = "dense", *, upwards: bool = False) -> Block:
    shape, settings = sizes.until(
        lambda: _drawn(sizes, dimensions, kind, upwards), lambda drawn: _fits(*drawn, upwards)
    )
    settings = {name: value for name, value in settings.items() if name != "channels_in"}
    chosen = dtype(sizes)
    with torch.device("meta"):
        last = _KINDS[dimensions][upwards](shape[1], bias=sizes.chance(0.35), dtype=dtype_of(chosen), **settings)
        parts: list[nn.Module | None] = [last]
        if sizes.chance(0.6):
            parts.append(normalisation(sizes, settings["out_channels"], dimensions))
        if sizes.chance(0.4):
            parts.append(activation(sizes))
        module: nn.Module = nn.Sequential(*(part for part in parts if part is not None)).to(dtype_of(chosen))
    channels_last = layout(sizes, dimensions)
    if channels_last:
        module = module.to(memory_format=_FORMATS[dimensions])
    inputs = [Input(shape, chosen, grad=shape[1] > 4 and sizes.chance(0.9), channels_last=channels_last)]
    if dimensions > 1 and not upwards and settings["stride"] == 1 and sizes.chance(0.12):
        same = (shape[0], settings["out_channels"], *_output(shape, settings, upwards=False))
        inputs.append(Input(same, chosen, channels_last=channels_last))
        module = Calls(_summed, module)
    return Block(module, inputs)


def _summed(module: nn.Module, x: torch.Tensor, shortcut: torch.Tensor) -> torch.Tensor:
    total: torch.Tensor = module(x) + shortcut
    return total


def _drawn(sizes: Sizes, dimensions: int, kind: str, upwards: bool) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape = sizes.picture(dimensions)
    channels_in, channels_out, groups = shape[1], sizes.channels(4096 if dimensions < 3 else 1024), 1
    if kind == "dense" and sizes.chance(0.08):
        channels_in = sizes.one_of((1, 2, 3, 4))
    if kind == "dense" and sizes.chance(0.25):
        channels_out = channels_in
    if kind == "grouped":
        width = sizes.one_of((2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 120, 128, 168, 232))
        groups = sizes.one_of((2, 3, 4, 8, 16, 32, 64)) if sizes.chance(0.6) else sizes.integer(2, 4096 // width)
        channels_in = groups * width
        channels_out = channels_in if sizes.chance(0.7) else groups * sizes.integer(1, 256)
    if kind == "depthwise":
        groups = channels_in
        channels_out = channels_in * (1 if sizes.chance(0.85) else sizes.one_of((2, 3, 4)))
    shape = (shape[0], channels_in, *shape[2:])
    settings = _window(sizes, dimensions, kind, upwards)
    return shape, settings | {"out_channels": channels_out, "groups": groups}


def _window(sizes: Sizes, dimensions: int, kind: str, upwards: bool) -> dict[str, Any]:
    """Kernel, stride, padding and dilation."""
    if upwards:
        stride = sizes.one_of((1, 2, 3, 4), (15, 65, 8, 12))
        kernel = sizes.one_of((stride, stride + 1, 2 * stride, 3, 4, 5))
        extra = sizes.integer(1, stride) - 1
        padding = min((kernel - stride + extra + 1) // 2, kernel - 1) if kernel >= stride else 0
        return {"kernel_size": kernel, "stride": stride, "padding": padding, "output_padding": extra}
    sides = (3, 5, 7, 9, 11) if kind == "depthwise" else (1, 3, 5, 7, 2, 4, 11)
    weights = (55, 20, 17, 4, 4) if kind == "depthwise" else (33, 42, 8, 6, 5, 3, 3)
    kernel = sizes.one_of(sides, weights)
    dilation = sizes.one_of((2, 3, 4, 6, 12)) if kernel > 1 and sizes.chance(0.1) else 1
    stride = sizes.one_of((1, 2, 3, 4), (72, 22, 2, 4)) if dilation == 1 else 1
    if kernel in (2, 4) and sizes.chance(0.7):
        stride, padding = kernel, 0
    else:
        padding = dilation * (kernel // 2) if sizes.chance(0.9) else 0
    if dimensions < 2 or kernel == 1 or not sizes.chance(0.12):
        return {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    flat = sizes.integer(1, dimensions) - 1  # one side of the window is 1: separable convolutions
    sides_of = tuple(1 if axis == flat else kernel for axis in range(dimensions))
    padding_of = tuple(0 if axis == flat else padding for axis in range(dimensions))
    return {"kernel_size": sides_of, "stride": stride, "padding": padding_of, "dilation": dilation}


def _fits(shape: tuple[int, ...], settings: dict[str, Any], upwards: bool) -> bool:
    out = _output(shape, settings, upwards=upwards)
    kernel = math.prod(_each(settings["kernel_size"], len(out)))
    elements = shape[0] * settings["out_channels"] * math.prod(out)
    source = shape[0] * math.prod(shape[2:]) * settings["out_channels"] if upwards else elements
    flops = 2.0 * source * kernel * shape[1] / settings["groups"]
    return min(out) > 0 and max(math.prod(shape), elements) <= 2**28 and flops <= MOST_FLOPS


def _output(shape: tuple[int, ...], settings: dict[str, Any], *, upwards: bool) -> list[int]:
    """Sizes of a convolution's output."""
    rank = len(shape) - 2
    sizes = []
    windows = (_each(settings.get(name, 1), rank) for name in ("kernel_size", "stride", "padding", "dilation"))
    for size, kernel, stride, padding, dilation in zip(shape[2:], *windows, strict=True):
        if upwards:
            sizes.append((size - 1) * stride - 2 * padding + kernel + settings["output_padding"])
        else:
            sizes.append((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
    return sizes


def _each(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,) * rank
