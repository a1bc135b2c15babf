"""The colours of GPUs, for figures and for the page, which needs no matplotlib."""

from __future__ import annotations

from collections.abc import Iterable

GPU_COLOURS = ("#4A39B3", "#FE8668", "#467B63", "#AD9407", "#682254", "#4ECDCF", "#636203", "#8878BF")
"""Colours of GPUs. Any two differ by 22 CIELAB units or more for readers with full, red-, green- or blue-blind sight,
and by 7 units of lightness, so that they differ in grey."""


def gpu_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each GPU, the same in every figure and on the page.

    Parameters
    ----------
    names
        Labels of all GPUs of the campaign, in any order, also where only some of them are shown. Beyond eight, colours
        come again.
    """
    return {name: GPU_COLOURS[number % len(GPU_COLOURS)] for number, name in enumerate(sorted(set(names)))}
