"""Matrix products, attention, normalisations, embeddings, losses and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from clockwatt.operations.design.block import Block, Calls, Input
from clockwatt.operations.design.convolutions import activation, dtype, groups_of, layout
from clockwatt.operations.design.sizes import LARGEST_TENSOR, Sizes
from clockwatt.operations.spec.encode import dtype_of

_VOCABULARIES = (100, 1000, 8000, 21841, 30522, 32000, 50257, 65024, 128256, 151936)
_HEAD_WIDTHS = (8, 16, 24, 32, 40, 48, 64, 72, 80, 88, 96, 112, 128, 160, 192, 256)
_MOST_FLOPS = 4e12
_LOSSES: tuple[Callable[..., torch.Tensor], ...] = (
    functional.mse_loss,
    functional.l1_loss,
    functional.smooth_l1_loss,
    functional.binary_cross_entropy_with_logits,
)
"""Losses of two activations."""


def linear(sizes: Sizes) -> Block:
    """A fully connected layer, small or large, with what follows it."""
    shape, out = sizes.until(lambda: _linear_shapes(sizes), lambda drawn: _product_fits(*drawn))
    chosen = dtype(sizes)
    with torch.device("meta"):
        layer = nn.Linear(shape[-1], out, bias=sizes.chance(0.7), dtype=dtype_of(chosen))
    parts: list[nn.Module] = (
        [layer] if not sizes.chance(0.35) else [layer, activation(sizes).to("meta", dtype_of(chosen))]
    )
    entry = Input(shape, chosen, grad=sizes.chance(0.9))
    if len(shape) == 3 and sizes.chance(0.1):  # features laid out first, as after a convolution
        turned = Input((shape[0], shape[2], shape[1]), chosen, entry.grad)
        return Block(Calls(lambda first, x: first(x.transpose(1, 2)), nn.Sequential(*parts)), [turned])
    return Block(nn.Sequential(*parts), [entry])


def _linear_shapes(sizes: Sizes) -> tuple[tuple[int, ...], int]:
    out = sizes.one_of(_VOCABULARIES) if sizes.chance(0.06) else sizes.width()
    if sizes.chance(0.3):
        return (sizes.batch(), sizes.width()), out
    if sizes.chance(0.12):
        shape = sizes.picture(2)
        return (shape[0], shape[2], shape[3], shape[1]), out
    batch, length, width = sizes.tokens()
    return (batch, length, width), 4 * width if sizes.chance(0.15) and width <= 4096 else out


def _product_fits(shape: tuple[int, ...], out: int) -> bool:
    rows = math.prod(shape[:-1])
    within = max(rows * max(out, shape[-1]), out * shape[-1]) <= LARGEST_TENSOR
    return within and 2.0 * rows * out * shape[-1] <= _MOST_FLOPS


def product(sizes: Sizes) -> Block:
    """A product of two activations, batched or not, of any layout."""
    b, m, k, n = sizes.until(lambda: _product_sizes(sizes), _matrices_fit)
    chosen = dtype(sizes)
    left, right = (sizes.chance(0.85) for _ in range(2))
    heads = sizes.one_of((1, 2, 3, 4, 6, 8, 12, 16))
    cases: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
        (torch.bmm, [(b, m, k), (b, k, n)]),
        (lambda x, y: torch.bmm(x, y.transpose(1, 2)), [(b, m, k), (b, n, k)]),
        (lambda x, y: x @ y, [(b, heads, m, k), (b, heads, k, n)]),
        (lambda x, y: x @ y.transpose(-2, -1), [(b, heads, m, k), (b, heads, n, k)]),
        (lambda x, y: torch.matmul(x.transpose(1, 2), y.transpose(1, 2)), [(b, m, heads, k), (b, k, heads, n)]),
        (torch.matmul, [(b, m, k), (k, n)]),
        (torch.mm, [(m, k), (k, n)]),
        (lambda x, y: torch.mm(x.t(), y), [(k, m), (k, n)]),
        (lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y), [(b, heads, m, k), (b, heads, n, k)]),
        (lambda x, y: torch.einsum("bhqk,bkhd->bqhd", x, y), [(b, heads, m, k), (b, k, heads, n)]),
        (lambda x, y: torch.einsum("bik,kj->bij", x, y), [(b, m, k), (k, n)]),
        (lambda x, y: torch.einsum("bkm,bkn->bmn", x, y), [(b, k, m), (b, k, n)]),
        (torch.baddbmm, [(b, m, n), (b, m, k), (b, k, n)]),
        (lambda x, y, z: torch.baddbmm(x, y, z.transpose(1, 2), beta=0.0, alpha=0.125),
         [(1, m, n), (b, m, k), (b, n, k)]),
        (torch.addmm, [(n,), (m, k), (k, n)]),
    ]  # fmt: skip
    function, shapes = sizes.one_of(cases)
    grads = [left or not right, *([right] * (len(shapes) - 1))]
    return Block(Calls(function), [Input(s, chosen, grad) for s, grad in zip(shapes, grads, strict=True)])


def _product_sizes(sizes: Sizes) -> tuple[int, int, int, int]:
    inner = sizes.one_of(_HEAD_WIDTHS) if sizes.chance(0.4) else sizes.width(4096)
    return sizes.batch(), sizes.sequence(4096), inner, sizes.sequence(4096) if sizes.chance(0.5) else sizes.width(4096)


def _matrices_fit(drawn: tuple[int, int, int, int]) -> bool:
    b, m, k, n = drawn
    return 16 * b * max(m * k, k * n, m * n) <= 2 * LARGEST_TENSOR and 2.0 * b * m * k * n <= _MOST_FLOPS / 16


def attention(sizes: Sizes) -> Block:
    """Scaled dot-product attention: head widths, causal or not, masks, grouped queries, several layouts."""
    b, heads, queries, keys, width = sizes.until(lambda: _attention_sizes(sizes), _attention_fits)
    chosen = sizes.one_of(("float32", "bfloat16", "float16"), (40, 36, 24))
    causal = queries == keys and sizes.chance(0.4)
    shared = chosen != "float32" and heads > 1 and sizes.chance(0.15)
    served = sizes.one_of([n for n in range(1, heads) if heads % n == 0]) if shared else heads
    kind = sizes.one_of(("none", "keys", "full", "additive"), (60, 15, 12, 13)) if not causal and not shared else "none"
    masks = {
        "none": [],
        "keys": [Input((b, 1, 1, keys), "bool", grad=False)],
        "full": [Input((1, 1, queries, keys), "bool", grad=False)],
        "additive": [Input((sizes.one_of((1, b)), 1, queries, keys), chosen, grad=False)],
    }[kind]
    settings: dict[str, Any] = {"is_causal": causal} | ({"enable_gqa": True} if shared else {})
    if sizes.chance(0.05):
        settings["dropout_p"] = 0.1
    packed = queries == keys and not shared and sizes.chance(0.35)
    if packed:
        return Block(_Attention(settings, packed=True), [Input((b, queries, 3, heads, width), chosen), *masks])
    turned = sizes.chance(0.75)  # (batch, length, heads, width) as a linear layer gives it, else as it is computed
    lengths = ((heads, queries), (served, keys), (served, keys))
    shapes = [(b, length, h, width) if turned else (b, h, length, width) for h, length in lengths]
    return Block(_Attention(settings, turned=turned), [*(Input(shape, chosen) for shape in shapes), *masks])


class _Attention(nn.Module):
    """Attention of tensors in the layout that a linear layer gives them."""

    def __init__(self, settings: dict[str, Any], *, packed: bool = False, turned: bool = False) -> None:
        super().__init__()
        self._settings, self._packed, self._turned = settings, packed, turned

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Attention alone; what lays the tensors out anew are views."""
        settings = dict(self._settings)
        if "dropout_p" in settings and not self.training:
            settings["dropout_p"] = 0.0
        if self._packed:
            query, key, value = inputs[0].permute(2, 0, 3, 1, 4).unbind(0)
            masks = inputs[1:]
        else:
            query, key, value = (x.transpose(1, 2) if self._turned else x for x in inputs[:3])
            masks = inputs[3:]
        mask = masks[0] if masks else None
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, **settings)


def _attention_sizes(sizes: Sizes) -> tuple[int, int, int, int, int]:
    length = sizes.sequence()
    queries = length if sizes.chance(0.8) else sizes.one_of((1, 1, sizes.sequence()))
    width = sizes.one_of(_HEAD_WIDTHS) if sizes.chance(0.85) else 4 * sizes.integer(1, 64)
    return sizes.batch(), sizes.one_of((1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32)), queries, length, width


def _attention_fits(drawn: tuple[int, int, int, int, int]) -> bool:
    b, heads, queries, keys, width = drawn
    within = 3 * b * heads * max(queries, keys) * width <= LARGEST_TENSOR and b * queries * keys <= 2**26
    return within and 4.0 * b * heads * queries * keys * width <= _MOST_FLOPS / 4


def token_norm(sizes: Sizes) -> Block:
    """Layer or root-mean-square normalisation of the last dimension."""
    shape, chosen = sizes.tokens(), dtype(sizes)
    if sizes.chance(0.15):
        picture = sizes.picture(2)
        shape = (picture[0], picture[2], picture[3], picture[1])  # type: ignore[assignment]
    with torch.device("meta"):
        layer: nn.Module = nn.LayerNorm(shape[-1], elementwise_affine=sizes.chance(0.85))
        if sizes.chance(0.3):
            layer = nn.RMSNorm(shape[-1], eps=1e-6)
    return Block(layer.to(dtype_of(chosen)), [Input(shape, chosen)])


def picture_norm(sizes: Sizes) -> Block:
    """Batch, group, instance or layer normalisation of an activation's channels."""
    dimensions, chosen = sizes.one_of((1, 2, 3), (15, 70, 15)), dtype(sizes)
    shape = sizes.picture(dimensions)
    kind = sizes.one_of(("batch", "group", "instance"), (40, 42, 18))
    names = {1: "1d", 2: "2d", 3: "3d"}
    with torch.device("meta"):
        if kind == "group":
            layer: nn.Module = nn.GroupNorm(groups_of(sizes, shape[1]), shape[1], affine=sizes.chance(0.9))
        elif kind == "batch":
            layer = getattr(nn, f"BatchNorm{names[dimensions]}")(shape[1])
        else:
            layer = getattr(nn, f"InstanceNorm{names[dimensions]}")(shape[1], affine=sizes.chance(0.5))
    parts = [layer.to(dtype_of(chosen))]
    if sizes.chance(0.2):
        parts.append(activation(sizes).to("meta", dtype_of(chosen)))
    return Block(nn.Sequential(*parts), [Input(shape, chosen, channels_last=layout(sizes, dimensions))])


def embedding(sizes: Sizes) -> Block:
    """Rows of a table, by indices."""
    rows = sizes.one_of(_VOCABULARIES) if sizes.chance(0.6) else sizes.integer(2, 200_000)
    width = sizes.until(lambda: sizes.width(8192), lambda width: rows * width <= LARGEST_TENSOR)
    tokens = sizes.until(lambda: (sizes.batch(), sizes.sequence()), lambda t: t[0] * t[1] * width <= LARGEST_TENSOR)
    with torch.device("meta"):
        layer = nn.Embedding(rows, width, dtype=dtype_of(dtype(sizes)))
    return Block(layer, [Input(tokens, "int64", grad=False)])


def softmax(sizes: Sizes) -> Block:
    """Softmax or its logarithm, of scores of attention or of classes."""
    shape = sizes.activation() if sizes.chance(0.5) else _scores(sizes)
    dim = -1 if sizes.chance(0.8) else 1
    kinds: tuple[Callable[..., torch.Tensor], ...] = (torch.softmax, functional.softmax, functional.log_softmax)
    function = sizes.one_of(kinds, (40, 40, 20))
    return Block(Calls(lambda x: function(x, dim=dim)), [Input(shape, dtype(sizes))])


def _scores(sizes: Sizes) -> tuple[int, ...]:
    def draw() -> tuple[int, ...]:
        return (sizes.batch(), sizes.one_of((1, 2, 4, 8, 12, 16, 32)), sizes.sequence(4096), sizes.sequence(4096))

    return sizes.until(draw, lambda shape: math.prod(shape) <= LARGEST_TENSOR)


def loss(sizes: Sizes) -> Block:
    """Cross-entropy with class indices, or a loss of two activations."""
    chosen = dtype(sizes)
    if sizes.chance(0.4):
        shape = sizes.activation()
        return Block(Calls(sizes.one_of(_LOSSES)), [Input(shape, chosen), Input(shape, chosen, grad=False)])
    smoothing = 0.1 if sizes.chance(0.2) else 0.0
    if sizes.chance(0.3):
        picture = sizes.picture(2)
        shapes = (picture[0], min(picture[1], 150), *picture[2:]), (picture[0], *picture[2:])
    else:
        classes = sizes.one_of((2, 10, 100, 1000, *_VOCABULARIES))
        rows = sizes.integer(1, min(65536, LARGEST_TENSOR // classes))
        shapes = (rows, classes), (rows,)
    return Block(
        Calls(lambda x, y: functional.cross_entropy(x, y, label_smoothing=smoothing)),
        [Input(shapes[0], chosen), Input(shapes[1], "int64", grad=False)],
    )
