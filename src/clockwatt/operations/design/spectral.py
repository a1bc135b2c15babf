"""Fourier transforms and products of complex numbers, as operators on functions and long convolutions call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from clockwatt.operations.design.block import Block, Calls, Input
from clockwatt.operations.design.sizes import Sizes

_LARGEST = 2**25
_SIDES = (16, 28, 32, 48, 64, 85, 96, 100, 128, 160, 192, 224, 256, 421, 512)
_LENGTHS = (64, 100, 128, 256, 400, 512, 1000, 1024, 2000, 2048, 4096, 8192, 16384, 32768)


def transform(sizes: Sizes) -> Block:
    """Transform a signal or a picture and back, or the half that real input has."""
    one = sizes.chance(0.4)
    shape = sizes.until(
        lambda: (sizes.batch(64), sizes.integer(1, 256), *(_length(sizes) if one else _sides(sizes))),
        lambda drawn: torch.Size(drawn).numel() <= _LARGEST,
    )
    norm, last = sizes.one_of((None, "ortho")), shape[-1]
    cases: tuple[Callable[..., Any], ...] = (
        (
            lambda x: torch.fft.irfft(torch.fft.rfft(x, norm=norm), n=last, norm=norm),
            lambda x: torch.fft.fft(x, norm=norm).real,
            lambda x: torch.fft.ifft(torch.fft.fft(x, norm=norm), norm=norm).real,
        )
        if one
        else (
            lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm=norm), s=shape[-2:], norm=norm),
            lambda x: torch.fft.fft2(x, norm=norm).real,
            lambda x: torch.fft.ifft2(torch.fft.fft2(x, norm=norm), norm=norm).real,
        )
    )
    return Block(Calls(sizes.one_of(cases, (60, 25, 15))), [Input(shape)])


def modes(sizes: Sizes) -> Block:
    """Mix the channels of the lowest frequencies, as Fourier neural operators do."""
    batch, before, after = sizes.batch(64), sizes.integer(4, 128), sizes.integer(4, 128)
    low, side = sizes.one_of((4, 8, 12, 16, 20, 24)), sizes.one_of((64, 85, 96, 128))
    function = sizes.one_of((torch.mul, None), (30, 70))

    def call(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft2(x)[:, :, :low, :low]
        if function is not None:
            return torch.view_as_real(function(spectrum, torch.view_as_complex(weight)[:, 0]))
        return torch.view_as_real(torch.einsum("bixy,ioxy->boxy", spectrum, torch.view_as_complex(weight)))

    outputs = 1 if function is not None else after
    return Block(Calls(call), [Input((batch, before, side, side)), Input((before, outputs, low, low, 2))])


def _length(sizes: Sizes) -> tuple[int]:
    return (sizes.one_of(_LENGTHS) if sizes.chance(0.7) else sizes.integer(32, 32768),)


def _sides(sizes: Sizes) -> tuple[int, int]:
    side = sizes.one_of(_SIDES) if sizes.chance(0.7) else sizes.integer(8, 512)
    return side, side
