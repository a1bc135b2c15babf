"""What moves memory: activations, pools, interpolation, arithmetic with broadcasting, copies, reductions, indexing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from clockwatt.operations.design import convolutions
from clockwatt.operations.design.block import Block, Calls, Input
from clockwatt.operations.design.convolutions import dtype, layout
from clockwatt.operations.design.sizes import LARGEST_TENSOR, Sizes
from clockwatt.operations.spec.encode import dtype_of


def _input(sizes: Sizes, shape: tuple[int, ...], chosen: str, *, grad: float = 0.9) -> Input:
    return Input(shape, chosen, sizes.chance(grad), channels_last=layout(sizes, len(shape) - 2))


def activation(sizes: Sizes) -> Block:
    """An activation alone."""
    shape, chosen = sizes.activation(), dtype(sizes)
    if sizes.chance(0.08) and shape[1] % 2 == 0:
        return Block(Calls(lambda x: functional.glu(x, dim=1)), [Input(shape, chosen)])
    module = convolutions.activation(sizes).to("meta", dtype_of(chosen))
    return Block(module, [_input(sizes, shape, chosen, grad=1.0)])


def dropout(sizes: Sizes) -> Block:
    """Dropout of single elements or of whole channels."""
    shape, chosen = sizes.activation(), dtype(sizes)
    kind = nn.Dropout2d if len(shape) == 4 and sizes.chance(0.3) else nn.Dropout
    return Block(kind(0.5, inplace=sizes.chance(0.2)), [_input(sizes, shape, chosen, grad=1.0)])


def pool(sizes: Sizes) -> Block:
    """A pool, or an adaptive one."""
    dimensions, chosen = sizes.one_of((1, 2, 3), (15, 70, 15)), dtype(sizes)
    shape = sizes.picture(dimensions)
    kind = sizes.one_of(("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"), (38, 24, 32, 6))
    name = f"{kind}{dimensions}d"
    if kind.startswith("Adaptive"):
        target = 1 if sizes.chance(0.5) else sizes.one_of((2, 3, 6, 7, 14, sizes.integer(1, 32)))
        module = getattr(nn, name)(min(target, *shape[2:]))
    else:
        side = sizes.until(
            lambda: sizes.one_of((2, 3, 5, 7, 8, 13), (45, 35, 8, 6, 4, 2)), lambda k: k <= min(shape[2:])
        )
        side = min(side, *shape[2:])
        stride = sizes.one_of((1, 2, side))
        padding = side // 2 if sizes.chance(0.5) else 0
        rounds = {"ceil_mode": True} if sizes.chance(0.1) else {}
        module = getattr(nn, name)(side, stride, padding, **rounds)
    return Block(module, [_input(sizes, shape, chosen)])


def interpolation(sizes: Sizes) -> Block:
    """An activation made larger or smaller."""
    dimensions, chosen = sizes.one_of((1, 2, 3), (8, 78, 14)), dtype(sizes)
    smooth = {1: ["linear"], 2: ["bilinear", "bilinear", "bicubic"], 3: ["trilinear"]}[dimensions]
    mode = sizes.one_of(["nearest", "nearest", "nearest-exact", "area", *smooth, *smooth])
    shape, settings = sizes.until(
        lambda: _interpolated(sizes, dimensions),
        lambda drawn: _elements_after(*drawn) <= LARGEST_TENSOR,
    )
    if mode in smooth:
        settings = {**settings, "align_corners": sizes.chance(0.3)}
        if dimensions == 2 and sizes.chance(0.1):
            settings["antialias"] = True
    entry = _input(sizes, shape, chosen)
    return Block(Calls(lambda x: functional.interpolate(x, mode=mode, **settings)), [entry])


def _interpolated(sizes: Sizes, dimensions: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape = sizes.picture(dimensions)
    if sizes.chance(0.6):
        return shape, {"scale_factor": sizes.one_of((2.0, 4.0, 0.5, 3.0, 1.5, 8.0), (50, 12, 20, 6, 6, 6))}
    return shape, {"size": tuple(sizes.image(512) for _ in range(dimensions))}


def _elements_after(shape: tuple[int, ...], settings: dict[str, Any]) -> float:
    scale = settings.get("scale_factor")
    after = settings["size"] if scale is None else [max(1.0, size * scale) for size in shape[2:]]
    # a side that vanishes is no picture
    lost = scale is not None and min(shape[2:]) * scale < 1
    return math.inf if lost else math.prod(after) * math.prod(shape[:2])


_UNARY: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    torch.exp, torch.sqrt, torch.rsqrt, torch.abs, torch.neg, torch.cos, torch.sin, torch.log,
    lambda x: x * 0.5, lambda x: x + 1.0, lambda x: x**2, lambda x: 1.0 - x, lambda x: x / 8.0,
    lambda x: x.clamp(min=0.0), lambda x: x.clamp(-1.0, 1.0), torch.square,
)  # fmt: skip
_BINARY: tuple[tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], int], ...] = (
    (lambda x, y: x + y, 30), (torch.add, 8), (lambda x, y: x * y, 24), (torch.mul, 6), (lambda x, y: x - y, 8),
    (lambda x, y: x / y, 6), (torch.maximum, 3), (lambda x, y: x.add_(y), 8), (lambda x, y: x.mul_(y), 5),
    (lambda x, y: torch.addcmul(x, x, y), 2),
)  # fmt: skip


def arithmetic(sizes: Sizes) -> Block:
    """Arithmetic of one activation."""
    function = sizes.one_of(_UNARY)
    return Block(Calls(function), [_input(sizes, sizes.activation(), dtype(sizes))])


def broadcast(sizes: Sizes) -> Block:
    """Arithmetic of two activations, often with one of them broadcast."""
    shape, chosen = sizes.activation(), dtype(sizes)
    rank = len(shape)
    smaller = {
        "same": shape,
        "channels": (*shape[:2], *(1 for _ in shape[2:])),
        "last": shape[-1:],
        "without batch": (1, *shape[1:]),
        "per channel": (1, shape[1], *(1 for _ in shape[2:])),
        "per sample": (shape[0], *(1 for _ in shape[1:])),
        "keys": (*shape[:-1], 1),
    }
    kind = sizes.one_of(list(smaller), (48, 18, 12, 8, 5, 4, 5))
    function = sizes.one_of([each for each, _ in _BINARY], [weight for _, weight in _BINARY])
    one = _input(sizes, shape, chosen, grad=1.0)
    last = one.channels_last and len(smaller[kind]) == rank
    return Block(Calls(function), [one, Input(smaller[kind], chosen, sizes.chance(0.8), channels_last=last)])


def copies(sizes: Sizes) -> Block:
    """What lays memory out anew: concatenation, permutation, padding, rolling, casts, slices."""
    chosen = dtype(sizes)
    kind = sizes.one_of(list(_COPIES), [weight for weight, _ in _COPIES.values()])
    return _COPIES[kind][1](sizes, chosen)


def _joined(sizes: Sizes, chosen: str) -> Block:
    shape, number = sizes.activation(), sizes.one_of((2, 3, 4))
    last = layout(sizes, len(shape) - 2)
    if sizes.chance(0.2):
        dim = sizes.one_of((0, 1, len(shape)))
        return Block(Calls(lambda *x: torch.stack(x, dim)), [Input(shape, chosen) for _ in range(number)])
    dim = sizes.one_of((0, 1, 1, 1, -1))
    shapes = [shape]
    for _ in range(number - 1):
        other = list(shape)
        other[dim] = sizes.one_of((shape[dim], sizes.integer(1, max(shape[dim], 2))))
        shapes.append(tuple(other))
    return Block(Calls(lambda *x: torch.cat(x, dim)), [Input(s, chosen, channels_last=last) for s in shapes])


def _permuted(sizes: Sizes, chosen: str) -> Block:
    shape = sizes.activation()
    order = sizes.several(range(len(shape)), len(shape))
    usual: dict[int, list[tuple[int, ...]]] = {
        3: [(0, 2, 1), (1, 0, 2)],
        4: [(0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3)],
        5: [(2, 0, 3, 1, 4)],
    }
    if len(shape) in usual and sizes.chance(0.75):
        order = list(sizes.one_of(usual[len(shape)]))
    return Block(Calls(lambda x: x.permute(*order).contiguous()), [Input(shape, chosen)])


def _flattened(sizes: Sizes, chosen: str) -> Block:
    b, length, width = sizes.tokens()
    heads = groups = sizes.one_of((1, 2, 4, 8, 16))
    each = max(1, width // groups)
    return Block(
        Calls(lambda x: x.transpose(1, 2).reshape(b, length, heads * each)), [Input((b, heads, length, each), chosen)]
    )


def _windows(sizes: Sizes, chosen: str) -> Block:
    """Windows of a picture as Swin cuts them."""
    side, (b, c, h, _) = sizes.one_of((4, 7, 8, 16)), sizes.picture(2)
    n = max(1, h // side)
    cut: Callable[[torch.Tensor], torch.Tensor] = lambda x: (  # noqa: E731  # a call of a block
        x.view(b, n, side, n, side, c).permute(0, 1, 3, 2, 4, 5).reshape(b * n * n, side * side, c)
    )
    return Block(Calls(cut), [Input((b, n * side, n * side, c), chosen)])


def _rolled(sizes: Sizes, chosen: str) -> Block:
    b, c, h, w = sizes.picture(2)
    step = -sizes.integer(1, 8)
    return Block(Calls(lambda x: torch.roll(x, (step, step), (1, 2))), [Input((b, h, w, c), chosen)])


def _padded(sizes: Sizes, chosen: str) -> Block:
    dimensions = sizes.one_of((1, 2, 3), (20, 70, 10))
    shape = sizes.picture(dimensions)
    mode = sizes.one_of(("constant", "reflect", "replicate"), (60, 25, 15))
    most = min(8, *shape[2:]) if mode == "constant" else min(8, *(size - 1 for size in shape[2:]))
    if most < 1:
        mode, most = "constant", 1
    amounts = [sizes.integer(1, most) for _ in range(2 * dimensions)]
    return Block(Calls(lambda x: functional.pad(x, amounts, mode=mode)), [_input(sizes, shape, chosen)])


def _cast(sizes: Sizes, chosen: str) -> Block:
    target = dtype_of(sizes.one_of([name for name in ("float32", "bfloat16", "float16") if name != chosen]))
    return Block(Calls(lambda x: x.to(target)), [_input(sizes, sizes.activation(), chosen)])


def _sliced(sizes: Sizes, chosen: str) -> Block:
    shape = sizes.activation()
    dim = 1 if len(shape) > 1 and shape[1] > 1 else 0
    kinds: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda x: x.chunk(2, dim)[0].contiguous(),
        lambda x: x.narrow(dim, 0, max(1, shape[dim] // 2)).clone(),
        lambda x: torch.flip(x, (-1,)),
        lambda x: x[..., ::2].contiguous(),
    )
    return Block(Calls(sizes.one_of(kinds)), [Input(shape, chosen)])


def _repeated(sizes: Sizes, chosen: str) -> Block:
    b, heads, length, width = sizes.batch(64), sizes.one_of((1, 2, 4, 8)), sizes.sequence(2048), 64
    times = sizes.one_of((2, 4, 7, 8))
    kinds: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda x: x.repeat_interleave(times, dim=1),
        lambda x: x.repeat(1, times, 1, 1),
        lambda x: x[:, :, None].expand(b, heads, times, length, width).reshape(b, heads * times, length, width),
    )
    return Block(Calls(sizes.one_of(kinds)), [Input((b, heads, length, width), chosen)])


def _shuffled(sizes: Sizes, chosen: str) -> Block:
    b, c, h, w = sizes.picture(2)
    factor = sizes.one_of((2, 3, 4))
    if sizes.chance(0.5):
        channels = max(1, c // factor**2) * factor**2
        return Block(nn.PixelShuffle(factor), [Input((b, channels, h, w), chosen)])
    pairs = max(1, c // 2)
    function: Callable[[torch.Tensor], torch.Tensor] = lambda x: (  # noqa: E731  # a call of a block
        x.view(b, 2, pairs, h, w).transpose(1, 2).contiguous().view(b, 2 * pairs, h, w)
    )
    return Block(Calls(function), [Input((b, 2 * pairs, h, w), chosen)])


def _unfolded(sizes: Sizes, chosen: str) -> Block:
    shape = sizes.picture(2, largest=2**23)
    side = min(sizes.one_of((2, 3, 4)), *shape[2:])
    return Block(Calls(lambda x: functional.unfold(x, side, stride=side)), [Input(shape, chosen)])


_COPIES: dict[str, tuple[int, Callable[[Sizes, str], Block]]] = {
    "joined": (24, _joined),
    "permuted": (18, _permuted),
    "flattened": (10, _flattened),
    "windows": (8, _windows),
    "rolled": (6, _rolled),
    "padded": (12, _padded),
    "cast": (8, _cast),
    "sliced": (8, _sliced),
    "repeated": (4, _repeated),
    "shuffled": (5, _shuffled),
    "unfolded": (2, _unfolded),
}


def reduction(sizes: Sizes) -> Block:
    """Sums, means, variances, extremes and norms."""
    shape, chosen = sizes.activation(), dtype(sizes)
    rank = len(shape)
    kinds_of_dims: list[tuple[int, ...]] = [(-1,), (0,), tuple(range(2, rank)) or (1,), (1,), tuple(range(rank))]
    dims = sizes.one_of(kinds_of_dims)
    keep = sizes.chance(0.4)
    kinds: list[tuple[Callable[[torch.Tensor], Any], int]] = [
        (lambda x: x.mean(dims, keepdim=keep), 30),
        (lambda x: x.sum(dims, keepdim=keep), 24),
        (lambda x: torch.var(x, dims, keepdim=keep), 10),
        (lambda x: x.std(dims, keepdim=keep), 4),
        (lambda x: x.amax(dims, keepdim=keep), 10),
        (lambda x: torch.linalg.vector_norm(x, dim=dims, keepdim=keep), 6),
        (lambda x: x.max(dim=dims[0]), 4),
        (lambda x: x.argmax(dim=-1), 4),
        (lambda x: torch.cumsum(x, dim=-1), 3),
        (lambda x: functional.normalize(x, dim=1), 5),
    ]
    function = sizes.one_of([each for each, _ in kinds], [weight for _, weight in kinds])
    return Block(Calls(function), [_input(sizes, shape, chosen)])


def picked(sizes: Sizes) -> Block:
    """Elements chosen by an index or by a mask."""
    b, length, width = sizes.tokens(largest=LARGEST_TENSOR // 4)
    chosen, number = dtype(sizes), sizes.integer(1, length)
    x = Input((b, length, width), chosen)
    cases: tuple[tuple[Callable[..., Any], list[Input]], ...] = (
        (lambda x, i: torch.index_select(x, 1, i), [x, Input((number,), "int64")]),
        (lambda x, i: torch.gather(x, 1, i), [x, Input((b, number, width), "int64")]),
        (lambda x, mask: x.masked_fill(mask, 0.0), [x, Input((b, length, 1), "bool")]),
        (torch.where, [Input((b, length, width), "bool"), x, Input((b, length, width), chosen)]),
        (lambda table, i: table[i], [Input((length, width), chosen), Input((number, number % 64 + 1), "int64")]),
        (torch.tril, [x]),
    )
    function, inputs = sizes.one_of(cases, (20, 20, 20, 20, 12, 8))
    return Block(Calls(function), inputs)
