"""Extreme shapes of networks, for which errors were large: tall, long, narrow, upsampled, patches."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from clockwatt.operations.design import convolutions
from clockwatt.operations.design.block import Block, Calls, Input
from clockwatt.operations.design.convolutions import activation
from clockwatt.operations.design.recurrent import recurrent_of
from clockwatt.operations.design.sizes import LARGEST_TENSOR, Sizes
from clockwatt.operations.spec.encode import dtype_of

_MOST_STEPS = 2400
_LARGEST_RECURRENT = 2**30
"""Elements of the states of a recurrent layer over all steps."""
_MOST_ROWS = 2**18
_MOST_PRODUCTS = 2**39
"""Multiplications and additions of a convolution or of attention."""
_HEAD_WIDTHS = (16, 24, 32, 40, 48, 64, 80, 96, 128)
_KERNELS_OF_VOLUMES = (
    (3, 3, 3),
    (1, 3, 3),
    (3, 1, 1),
    (1, 1, 1),
    (1, 7, 7),
    (7, 1, 1),
    (3, 7, 7),
    (5, 5, 5),
    (2, 2, 2),
)
_PATCHES = ((16, 16), (14, 14), (32, 32), (8, 8), (4, 4), (2, 2), (7, 4), (7, 2), (3, 2), (11, 4))
"""Kernel and stride of the first layers of networks of patches, and of those whose first kernels overlap."""
_MIDDLE_CHANNELS = (45, 64, 83, 128, 144, 230, 256, 288, 460, 512, 576, 921, 1152)
"""Channels of networks for video, those between separated convolutions with them."""


def half_precision(sizes: Sizes) -> str:
    """Dtype of a block: mostly those in which kernels for odd shapes are slow."""
    return sizes.one_of(("float32", "bfloat16", "float16"), (40, 42, 18))


def tall(sizes: Sizes) -> Block:
    """Draw layers with many rows and few features, as in MLPs on tabular data."""
    rows = sizes.integer(512, _MOST_ROWS)
    width_in, width_out = (min(sizes.width(4096), LARGEST_TENSOR // rows) for _ in range(2))
    chosen = half_precision(sizes)
    with torch.device("meta"):
        norm = sizes.one_of((nn.BatchNorm1d, nn.BatchNorm1d, nn.LayerNorm, None))
        parts: list[nn.Module] = [nn.Linear(width_in, width_out, bias=sizes.chance(0.8))]
        parts += [norm(width_out)] if norm else []
        parts += [activation(sizes)] if sizes.chance(0.6) else []
        module = nn.Sequential(*parts).to(dtype_of(chosen))
    return Block(module, [Input((rows, width_in), chosen, grad=sizes.chance(0.85))])


def long_signal(sizes: Sizes) -> Block:
    """Dilated convolutions of long signals, a normalisation of one, or an activation after it."""
    batch, channels, length = sizes.until(
        lambda: (sizes.integer(1, 64), sizes.channels(512), sizes.integer(512, 65536)),
        lambda shape: math.prod(shape) <= LARGEST_TENSOR,
    )
    chosen, kernel = half_precision(sizes), sizes.one_of((1, 2, 3, 5, 7, 9, 15, 31), (20, 20, 24, 10, 10, 6, 6, 4))
    dilation = 2 ** sizes.integer(1, 9) if kernel > 1 and sizes.chance(0.5) else 1
    stride = sizes.one_of((2, 3, 4, 5)) if dilation == 1 and sizes.chance(0.15) else 1
    after = channels if sizes.chance(0.4) else sizes.channels(512)
    with torch.device("meta"):
        parts: list[nn.Module] = [
            nn.Conv1d(channels, after, kernel, stride, dilation * (kernel - 1) // 2, dilation, bias=sizes.chance(0.7))
        ]
        parts += [nn.BatchNorm1d(after)] if sizes.chance(0.35) else []
        parts += [sizes.one_of((nn.Tanh, nn.Sigmoid, nn.ReLU, nn.GELU))()] if sizes.chance(0.3) else []
        module = nn.Sequential(*parts).to(dtype_of(chosen))
    return Block(module, [Input((batch, channels, length), chosen, grad=sizes.chance(0.9))])


def long_recurrent(sizes: Sizes) -> Block:
    """Recurrent layers of many steps or of large batches."""
    layers, both = sizes.one_of((1, 2, 3), (50, 30, 20)), sizes.chance(0.45)
    directions = 1 + both
    batch, length, width = sizes.until(
        lambda: (sizes.integer(1, 16384), sizes.integer(8, 512), sizes.one_of((64, 128, 256, 384, 512, 768, 1024))),
        lambda drawn: (
            drawn[1] * layers * directions <= _MOST_STEPS and 4 * directions * math.prod(drawn) <= _LARGEST_RECURRENT
        ),
    )
    width_in = sizes.one_of((16, 40, 64, 80, 128, 300, width))
    return recurrent_of(sizes, (batch, length, width_in, width), layers, both=both, chosen=half_precision(sizes))


def enlarged(sizes: Sizes) -> Block:
    """Draw upsampling of small images, also single pixels, as at the end of segmentation networks."""
    chosen, side = half_precision(sizes), sizes.one_of((1, sizes.integer(1, 48)), (25, 75))
    batch, channels, height, width = sizes.until(
        lambda: (sizes.integer(1, 64), sizes.channels(2048), *_sides(sizes)),
        lambda shape: math.prod(shape) <= LARGEST_TENSOR // 2,
    )
    mode = sizes.one_of(("bilinear", "nearest", "bicubic"), (70, 20, 10))
    settings = {} if mode == "nearest" else {"align_corners": sizes.chance(0.3)}
    last = convolutions.layout(sizes, 2)
    return Block(
        Calls(lambda x: functional.interpolate(x, size=(height, width), mode=mode, **settings)),
        [Input((batch, channels, side, side), chosen, channels_last=last)],
    )


def _sides(sizes: Sizes) -> tuple[int, int]:
    height = sizes.integer(8, 512)
    return height, height if sizes.chance(0.7) else sizes.integer(8, 512)


def volume(sizes: Sizes) -> Block:
    """Convolutions of clips and of volumes, separated ones too, with a normalisation after."""
    chosen, kernel = half_precision(sizes), sizes.one_of(_KERNELS_OF_VOLUMES, (34, 18, 18, 8, 5, 3, 5, 3, 6))
    clip = sizes.chance(0.6)

    def draw() -> tuple[int, int, int, int, int, int]:
        if clip:
            side = sizes.one_of((4, 7, 8, 10, 14, 16, 20, 28, 40, 56, 80, 112))
            channels = [sizes.one_of(_MIDDLE_CHANNELS) if sizes.chance(0.6) else sizes.channels(1024) for _ in range(2)]
            return (sizes.integer(1, 48), channels[0], sizes.one_of((2, 4, 8, 16, 32)), side, side, channels[1])
        side = sizes.one_of((4, 6, 8, 12, 16, 24, 32, 48, 64))
        channels = [sizes.one_of((1, 4, 8, 16, 24, 32, 64, 128, 256)) for _ in range(2)]
        return (sizes.integer(1, 256), channels[0], sizes.one_of((4, 8, 16, 32, 64)), side, side, channels[1])

    def fits(drawn: tuple[int, int, int, int, int, int]) -> bool:
        batch, channels, *size, after = drawn
        elements = batch * math.prod(size)
        flops = 2.0 * elements * channels * after * math.prod(kernel)
        return elements * max(channels, after) <= LARGEST_TENSOR and flops <= convolutions.MOST_FLOPS

    batch, channels, *size, after = sizes.until(draw, fits)
    stride = sizes.one_of((1, 2), (75, 25))
    first, second, third = kernel
    strides = (stride if first > 1 else 1, stride if second > 1 else 1, stride if third > 1 else 1)
    padding = (first // 2, second // 2, third // 2)
    with torch.device("meta"):
        parts: list[nn.Module] = [nn.Conv3d(channels, after, kernel, strides, padding, bias=sizes.chance(0.3))]
        parts += [nn.BatchNorm3d(after)] if sizes.chance(0.4) else []
        module = nn.Sequential(*parts).to(dtype_of(chosen))
    return Block(module, [Input((batch, channels, *size), chosen, grad=channels > 3 and sizes.chance(0.95))])


def narrow_picture(sizes: Sizes) -> Block:
    """Convolutions, upwards too, of large pictures with few channels."""
    chosen, upwards = half_precision(sizes), sizes.chance(0.4)
    batch, channels, side, after = sizes.until(
        lambda: (sizes.batch(), sizes.integer(1, 96), sizes.integer(32, 512), sizes.integer(1, 96)),
        lambda drawn: drawn[0] * max(drawn[1], drawn[3] * (4 if upwards else 1)) * drawn[2] ** 2 <= LARGEST_TENSOR,
    )
    if sizes.chance(0.7):
        channels, after = (max(1, 8 * round(number / 8)) for number in (channels, after))
    if sizes.chance(0.2):
        after = sizes.one_of((1, 3)) if upwards or sizes.chance(0.5) else after
    with torch.device("meta"):
        if upwards:
            kernel = sizes.one_of((2, 3, 4))
            first: nn.Module = nn.ConvTranspose2d(
                channels, after, kernel, 2, (kernel - 1) // 2, kernel % 2, bias=sizes.chance(0.6)
            )
        else:
            kernel = sizes.one_of((1, 3, 4, 5, 7), (25, 45, 10, 10, 10))
            stride = sizes.one_of((1, 2), (70, 30))
            first = nn.Conv2d(channels, after, kernel, stride, kernel // 2, bias=sizes.chance(0.6))
        parts = [first, nn.BatchNorm2d(after)] if sizes.chance(0.4) else [first]
        module = nn.Sequential(*parts).to(dtype_of(chosen))
    last = convolutions.layout(sizes, 2)
    if last:
        module = module.to(memory_format=torch.channels_last)
    entry = Input((batch, channels, side, side), chosen, grad=channels > 3 and sizes.chance(0.95), channels_last=last)
    return Block(module, [entry])


def windowed_attention(sizes: Sizes) -> Block:
    """Attention within many small windows, mostly without a bias."""
    chosen, width, heads = half_precision(sizes), sizes.one_of(_HEAD_WIDTHS), sizes.integer(1, 24)
    length = sizes.one_of((16, 49, 64, 144, 196, 197, 256))
    windows = sizes.until(
        lambda: sizes.integer(8, 16384),
        lambda number: number * heads * length * max(width, length) <= LARGEST_TENSOR // 2,
    )
    lead = (windows, heads)
    if sizes.chance(0.3):  # windows as a dimension of their own, as hierarchical networks have them
        lead = (max(1, windows // 16), heads, 16)  # type: ignore[assignment]
    shape = (*lead, length, width)
    inputs = [Input(shape, chosen) for _ in range(3)]
    if len(lead) == 2 and sizes.chance(0.35):
        inputs.append(Input((1, heads, length, length), chosen, grad=sizes.chance(0.6)))
    return Block(Calls(_attention), inputs)


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None, **settings: Any
) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, **settings)


def patches(sizes: Sizes) -> Block:
    """Draw first layers of networks: images and video cut into patches, by kernels that may overlap."""
    chosen, clip = sizes.one_of(("float32", "bfloat16", "float16"), (60, 25, 15)), sizes.chance(0.12)
    kernel, stride = sizes.one_of(_PATCHES, (24, 10, 8, 8, 12, 6, 10, 12, 8, 2))
    depth = sizes.one_of((1, 2, 2, 4)) if clip else 1

    def draw() -> tuple[int, int, int, int, int]:
        return (
            sizes.integer(1, 1024),
            3 if sizes.chance(0.7) else sizes.one_of((1, 4, 16, 32, 64, 96, 192)),
            sizes.one_of((32, 64, 96, 112, 128, 160, 192, 224, 224, 256, 288, 336, 384, 448, 512, 518)),
            sizes.width(1536),
            sizes.integer(1, 8) if clip else 1,
        )

    def fits(drawn: tuple[int, int, int, int, int]) -> bool:
        batch, channels, side, after, times = drawn
        given = batch * after * times * (side // stride + 1) ** 2
        return max(batch * channels * times * depth * side**2, given) <= LARGEST_TENSOR

    batch, channels, side, after, times = sizes.until(draw, fits)
    padding = 0 if kernel == stride else kernel // 2
    with torch.device("meta"):
        if clip:
            first: nn.Module = nn.Conv3d(
                channels, after, (depth, kernel, kernel), (depth, stride, stride), (0, padding, padding)
            )
        else:
            first = nn.Conv2d(channels, after, kernel, stride, padding, bias=sizes.chance(0.7))
        module = first.to(dtype_of(chosen))
    last = not clip and convolutions.layout(sizes, 2)
    if last:
        module = module.to(memory_format=torch.channels_last)
    shape = (batch, channels, times * depth, side, side) if clip else (batch, channels, side, side)
    # pictures need no gradient; what comes after a first layer does
    return Block(module, [Input(shape, chosen, grad=channels > 4, channels_last=last)])


def modulated_convolution(sizes: Sizes) -> Block:
    """Draw a convolution with separate weights for every sample, one group each, as in style-based networks."""
    kernel, up = sizes.one_of((1, 3), (25, 75)), sizes.chance(0.25)
    batch, before, after, side = sizes.until(
        lambda: (sizes.integer(1, 32), sizes.channels(512), sizes.channels(512), sizes.image(256)),
        lambda drawn: (
            drawn[0] * max(drawn[1], drawn[2] * (1 + 3 * up)) * drawn[3] ** 2 <= LARGEST_TENSOR // 2
            and drawn[0] * drawn[1] * drawn[2] * kernel**2 <= LARGEST_TENSOR // 4
        ),
    )
    chosen = half_precision(sizes)
    if up:
        shape = (batch * before, after, kernel, kernel)
        function: Callable[..., torch.Tensor] = functional.conv_transpose2d
        settings: dict[str, int] = {"stride": 2}
    else:
        shape = (batch * after, before, kernel, kernel)
        function = functional.conv2d
        settings = {"padding": kernel // 2}
    picture = Input((1, batch * before, side, side), chosen)
    return Block(
        Calls(lambda x, weight: function(x, weight, groups=batch, **settings)), [picture, Input(shape, chosen)]
    )


def decoding(sizes: Sizes) -> Block:
    """Draw a decoding step: one token of each sequence through a layer, or attention to the cached keys."""
    batch, chosen = sizes.integer(1, 64), sizes.one_of(("float32", "bfloat16", "float16"), (25, 50, 25))
    width = sizes.one_of((256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 5120))
    if sizes.chance(0.45):
        wide = sizes.one_of((width // 4, width, 3 * width, 4 * width, 11 * width // 4, sizes.width(32000)))
        with torch.device("meta"):
            layer = nn.Linear(width, wide, bias=sizes.chance(0.4), dtype=dtype_of(chosen))
        return Block(layer, [Input((batch, 1, width), chosen, grad=False)])
    head = sizes.one_of((64, 80, 96, 128))
    heads, kept = max(1, width // head), sizes.integer(1, 8192)
    fewer = sizes.one_of((1, 2, 4, 8), (50, 10, 25, 15))
    fewer = fewer if heads % fewer == 0 else 1
    query, keys = Input((batch, heads, 1, head), chosen), Input((batch, heads // fewer, kept, head), chosen)
    kind = sizes.one_of(("attention", "append", "repeat"), (50, 30, 20))
    if kind == "append":
        new = Input((batch, heads // fewer, 1, head), chosen)
        return Block(Calls(lambda old, new: torch.cat([old, new], dim=-2)), [keys, new])
    if kind == "repeat":
        shape = (batch, heads // fewer, fewer, kept, head)
        return Block(Calls(lambda x: x[:, :, None].expand(shape).reshape(batch, heads, kept, head)), [keys])
    call = functional.scaled_dot_product_attention
    return Block(Calls(lambda q, k, v: call(q, k, v, enable_gqa=fewer > 1)), [query, keys, keys])


def small_batch(sizes: Sizes) -> Block:
    """Draw 2-D convolutions, some in groups, of a few pictures: libraries choose unusual kernels for them."""
    kernel, grouped = sizes.one_of((1, 3, 5, 2, 4), (48, 40, 4, 4, 4)), sizes.chance(0.2)

    def draw() -> tuple[int, int, int, int, int]:
        groups = sizes.integer(2, 32) if grouped else 1
        before = groups * sizes.one_of((8, 16, 24, 32, 48, 56, 64, 112, 128)) if grouped else sizes.channels(2048)
        after = before if sizes.chance(0.4) else sizes.channels(2048)
        return sizes.integer(1, 24), before, groups * max(1, after // groups), sizes.image(320), groups

    batch, before, after, side, groups = sizes.until(
        draw,
        lambda drawn: (
            drawn[0] * max(drawn[1:3]) * drawn[3] ** 2 <= LARGEST_TENSOR // 4
            and drawn[0] * drawn[1] * drawn[2] // drawn[4] * (kernel * drawn[3]) ** 2 <= _MOST_PRODUCTS
        ),
    )
    stride, padding = sizes.one_of((1, 2), (80, 20)), kernel // 2 if kernel % 2 else 0
    chosen = sizes.one_of(("float32", "bfloat16", "float16"), (60, 28, 12))
    with torch.device("meta"):
        layer = nn.Conv2d(before, after, kernel, stride, padding, 1, groups, sizes.chance(0.3), dtype=dtype_of(chosen))
    return Block(layer, [Input((batch, before, side, side), chosen)])


def thin_volume(sizes: Sizes) -> Block:
    """Draw 3-D convolutions of scans: one to four channels before or after."""
    thin, wide, first = sizes.one_of((1, 1, 2, 3, 4)), sizes.one_of((8, 16, 24, 32, 48, 64)), sizes.chance(0.75)
    batch, depth, side = sizes.until(
        lambda: (sizes.integer(1, 64), sizes.integer(8, 128), sizes.integer(16, 160)),
        lambda drawn: wide * drawn[0] * drawn[1] * drawn[2] ** 2 <= LARGEST_TENSOR,
    )
    before, after = (thin, wide) if first else (wide, thin)
    kernel, chosen = sizes.one_of((1, 3, 5), (15, 75, 10)), half_precision(sizes)
    with torch.device("meta"):
        layer = nn.Conv3d(before, after, kernel, padding=kernel // 2, bias=sizes.chance(0.6), dtype=dtype_of(chosen))
    return Block(layer, [Input((batch, before, depth, side, side), chosen, grad=not first)])


def long_attention(sizes: Sizes) -> Block:
    """Draw attention over long sequences, mostly in float32, with fewer heads for keys, biases or dropout."""
    chosen = sizes.one_of(("float32", "bfloat16", "float16"), (70, 20, 10))
    width = sizes.one_of((32, 64, 80, 96, 128), (20, 40, 10, 5, 25))
    batch, heads, queries, keys = sizes.until(
        lambda: (
            sizes.integer(1, 64),
            sizes.one_of((1, 2, 4, 6, 8, 12, 16, 18, 24, 32)),
            1 if sizes.chance(0.15) else sizes.integer(64, 4096),
            sizes.integer(64, 4096),
        ),
        lambda drawn: 2 * math.prod(drawn) * width <= _MOST_PRODUCTS,
    )
    settings: dict[str, Any] = {"dropout_p": sizes.one_of((0.0, 0.1, 0.5), (80, 12, 8))}
    keys = queries if sizes.chance(0.7) and queries > 1 else keys
    masked = sizes.chance(0.25)
    settings["is_causal"] = queries == keys and not masked and sizes.chance(0.5)
    fewer = sizes.one_of([number for number in (1, 2, 4) if heads % number == 0]) if sizes.chance(0.3) else 1
    settings["enable_gqa"] = fewer > 1
    kept = Input((batch, heads // fewer, keys, width), chosen)
    mask = [Input((sizes.one_of((1, batch)), heads, queries, keys), chosen, grad=sizes.chance(0.6))] if masked else []

    return Block(
        Calls(functools.partial(_attention, **settings)),
        [Input((batch, heads, queries, width), chosen), kept, kept, *mask],
    )


def laid_out_attention(sizes: Sizes) -> Block:
    """Draw attention as models of text call it: heads beside widths, a position bias, or fewer heads for keys."""
    chosen = sizes.one_of(("float32", "bfloat16", "float16"), (60, 22, 18))
    width, heads = sizes.one_of((32, 64, 96, 128), (10, 60, 10, 20)), sizes.one_of((4, 6, 8, 12, 14, 16, 24, 32))
    batch, queries, keys = sizes.until(
        lambda: (sizes.integer(1, 64), sizes.integer(16, 2048), sizes.integer(16, 2048)),
        lambda drawn: 2 * math.prod(drawn) * heads * width <= _MOST_PRODUCTS // 4,
    )
    keys = queries if sizes.chance(0.75) else keys
    biased, last = sizes.chance(0.5), sizes.chance(0.6)
    fewer = 1 if biased else sizes.one_of([number for number in (1, 2, 3, 4, 6, 8) if heads % number == 0])
    causal = not biased and queries == keys and sizes.chance(0.6)
    bias = Input((1, queries, keys, heads) if last else (1, heads, queries, keys), chosen, grad=sizes.chance(0.7))
    kept = Input((batch, keys, heads // fewer, width), chosen)

    def call(*inputs: torch.Tensor) -> torch.Tensor:
        mask = [each.permute(0, 3, 1, 2) if last else each for each in inputs[3:]]
        turned = [each.transpose(1, 2) for each in inputs[:3]]
        return _attention(*turned, *mask, is_causal=causal, enable_gqa=fewer > 1)

    return Block(Calls(call), [Input((batch, queries, heads, width), chosen), kept, kept, *([bias] if biased else [])])


def doubled_picture(sizes: Sizes) -> Block:
    """Draw transposed convolutions that double the sides, as generators, decoders and U-Nets have."""
    kernel, chosen = sizes.one_of((2, 3, 4), (30, 15, 55)), half_precision(sizes)

    def draw() -> tuple[int, int, int, int]:
        before = sizes.one_of((16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024))
        after = sizes.one_of((before // 2, before, 3, 1), (70, 10, 14, 6))
        return sizes.integer(1, 256), before, sizes.one_of((4, 6, 7, 8, 10, 12, 14, 16, 24, 28, 32, 48, 64, 128)), after

    batch, before, side, after = sizes.until(
        draw, lambda drawn: drawn[0] * drawn[2] ** 2 * max(drawn[1], 4 * drawn[3]) <= LARGEST_TENSOR // 2
    )
    with torch.device("meta"):
        layer = nn.ConvTranspose2d(
            before, after, kernel, 2, (kernel - 1) // 2, kernel % 2, bias=sizes.chance(0.5), dtype=dtype_of(chosen)
        )
    last = convolutions.layout(sizes, 2)
    if last:
        layer = layer.to(memory_format=torch.channels_last)
    return Block(layer, [Input((batch, before, side, side), chosen, channels_last=last)])


def weight_normalisation(sizes: Sizes) -> Block:
    """Draw the weights of a 1-D convolution computed from their directions and lengths."""
    shape = (sizes.channels(1024), sizes.integer(1, 512), sizes.one_of((1, 3, 7, 16, 64, 128)))
    dim, chosen = sizes.one_of((0, 2)), half_precision(sizes)
    length = tuple(size if axis == dim else 1 for axis, size in enumerate(shape))
    return Block(Calls(lambda v, g: torch._weight_norm(v, g, dim)), [Input(shape, chosen), Input(length, chosen)])
