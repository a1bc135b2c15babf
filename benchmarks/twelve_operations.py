"""Twelve operations from host-bound to power-capped, each as a network of one call, for `accuracy.py`.

Their shapes are those of networks in use: ResNet-50, MobileNetV2, vision transformers, language models.
"""

from __future__ import annotations

import torch
from torch import nn


class Sum(nn.Module):
    """Adds a tensor to itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (n,) to (n,)."""
        return torch.add(x, x)


def relu_tiny() -> nn.Module:
    return nn.ReLU()


def conv_batch_1() -> nn.Module:
    return nn.Conv2d(64, 64, 3, padding=1, bias=False)


def batch_norm() -> nn.Module:
    return nn.BatchNorm2d(64)


def conv_depthwise() -> nn.Module:
    return nn.Conv2d(144, 144, 3, padding=1, groups=144, bias=False)


def softmax() -> nn.Module:
    return nn.Softmax(dim=-1)


def layer_norm() -> nn.Module:
    return nn.LayerNorm(768)


def add_400_mb() -> nn.Module:
    return Sum()


def gelu() -> nn.Module:
    return nn.GELU()


def conv_middle() -> nn.Module:
    return nn.Conv2d(256, 256, 3, padding=1, bias=False)


def linear_vit() -> nn.Module:
    return nn.Linear(768, 3072)


def matmul_tf32() -> nn.Module:
    return nn.Linear(4096, 4096, bias=False)


def matmul_bf16() -> nn.Module:
    return nn.Linear(8192, 8192, bias=False)


INPUTS: dict[str, list[int]] = {
    "relu_tiny": [256],
    "conv_batch_1": [1, 64, 56, 56],
    "batch_norm": [32, 64, 56, 56],
    "conv_depthwise": [32, 144, 56, 56],
    "softmax": [384, 197, 197],
    "layer_norm": [32, 197, 768],
    "add_400_mb": [100_000_000],
    "gelu": [32, 197, 3072],
    "conv_middle": [32, 256, 14, 14],
    "linear_vit": [32, 197, 768],
    "matmul_tf32": [8192, 4096],
    "matmul_bf16": [8192, 8192],
}
"""Name to the shape of the input."""

BFLOAT16 = {"matmul_bf16"}
"""Those that are cast; the others are float32, with TF32 on."""
