"""Colours of GPUs are the same everywhere and can be told apart by everybody."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from clockwatt.figures import palette, style
from clockwatt.schema.execution import ExecutionSettings

SIGHT = {
    "full": np.eye(3),
    "red-blind": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "green-blind": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "blue-blind": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What a reader sees of linear RGB (Machado, Oliveira and Fernandes, 2009)."""

XYZ_OF_RGB = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colour, sight="full"):
    """CIELAB of a colour as a reader sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratio = XYZ_OF_RGB @ np.clip(np.array(SIGHT[sight]) @ linear, 0, 1) / (XYZ_OF_RGB @ np.ones(3))
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
def test_gpus_can_be_told_apart_by_colour(sight):
    for one, other in itertools.combinations(palette.GPU_COLOURS, 2):
        assert np.linalg.norm(lab(one, sight) - lab(other, sight)) >= 22, (one, other)


def test_gpus_can_be_told_apart_in_grey():
    lightness = sorted(lab(colour)[0] for colour in palette.GPU_COLOURS)
    assert np.diff(lightness).min() >= 7
    assert lightness[-1] < 77, "too pale on white"


def test_a_gpu_has_one_colour_and_marker_in_whatever_order_they_are_told():
    names = [f"gpu{number}" for number in range(20)]
    colours, markers = palette.gpu_colours(names), style.gpu_markers(names)
    assert palette.gpu_colours(reversed(names)) == colours
    assert style.gpu_markers(names[::-1]) == markers
    assert len({(colours[name], markers[name]) for name in names}) == len(names)
    assert len({colours[name] for name in sorted(names)[:8]}) == 8


def test_an_x_is_a_times_between_sizes_alone():
    assert style.network_and_input("clock:net-x=32x64+ids=32x16-float32") == ("net x=32×64+ids=32×16", "float32")


def test_a_network_trained_by_another_optimizer_says_so():
    words = style.network_words("resnet18-32x3x224x224-bfloat16-adamw-fused", execution=ExecutionSettings("bf16"))
    assert words == "resnet18 32×3×224×224 adamw-fused bfloat16"
