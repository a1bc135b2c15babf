"""Single layers, stacks of them (`clockwatt.operations.stacks:conv_8_linear_2`), and VGG-16 with pooling first."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import cast

import torch

_NAME = re.compile(r"conv_(\d+)_linear_(\d+)")
_CHANNELS, _WIDTH = 64, 112
_SINGLE: dict[str, Callable[[], torch.nn.Module]] = {
    "conv": lambda: torch.nn.Conv2d(3, 64, 3, padding=1),
    "max_pool": lambda: torch.nn.MaxPool2d(2),
    "relu": torch.nn.ReLU,
    "linear": lambda: torch.nn.Linear(25_088, 4_096),
}
"""Layers as VGG-16 has them, for inputs (batch, 3, 224, 224); of `linear`, (batch, 25,088)."""


def stack(convolutions: int, linear: int) -> torch.nn.Sequential:
    """Return 3 × 3 convolutions, each with a ReLU, and linear layers; all keep the shape (batch, 64, …, 112)."""
    layers: list[torch.nn.Module] = []
    for _ in range(convolutions):
        layers += [torch.nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, *(torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(linear)))


def vgg16_pool_first() -> torch.nn.Module:
    """Return VGG-16 with each max-pooling before its ReLU: the same results, from a quarter of the elements."""
    from torchvision.models import vgg16

    network = vgg16(weights=None)
    layers = list(network.features)
    for number, layer in enumerate(layers):
        if isinstance(layer, torch.nn.MaxPool2d):
            layers[number - 1], layers[number] = layer, layers[number - 1]
    network.features = torch.nn.Sequential(*layers)
    return cast("torch.nn.Module", network)


def __getattr__(name: str) -> Callable[[], torch.nn.Module]:
    """Return the constructor that a name stands for."""
    if name in _SINGLE:
        return _SINGLE[name]
    numbers = _NAME.fullmatch(name)
    if numbers is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return functools.partial(stack, int(numbers[1]), int(numbers[2]))
