"""Networks of the fresh set that no library has, and parts of torchvision's detectors that a trace can follow.

A network is named with its sizes, `benchmarks.fresh.zoo:unet_48_4`: the name of a function below and its arguments.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn


def __getattr__(name: str) -> Callable[[], nn.Module]:
    return constructor(name, globals())


def constructor(name: str, builders: Mapping[str, Any]) -> Callable[[], nn.Module]:
    """Return a constructor without arguments from a name with sizes; AttributeError if there is no such builder."""
    words = name.split("_")
    number = next((place for place, word in enumerate(words) if word.isdigit()), len(words))
    builder = builders.get("_".join(words[:number]))
    if number == len(words) or builder is None or not all(word.isdigit() for word in words[number:]):
        raise AttributeError(name)
    return functools.partial(builder, *map(int, words[number:]))


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )  # fmt: skip


class unet(nn.Module):  # noqa: N801  # named as its builder
    """U-Net (Ronneberger et al., 2015) of a first width and a depth, with transposed convolutions."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(_double(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[:-1])
        self.merge = nn.ModuleList(_double(2 * w, w) for w in widths[:-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of every pixel."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        for up, merge, skip in zip(reversed(self.up), reversed(self.merge), reversed(skips[:-1]), strict=True):
            x = merge(torch.cat([skip, up(x)], dim=1))
        return self.head(x)


class _Noised(nn.Module):
    """A residual block with group normalisation, as in diffusion models."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)])
        self.convs = nn.ModuleList(
            [nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)]
        )
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            hidden = conv(nn.functional.silu(norm(hidden)))
        return hidden + self.skip(x)


class _Attended(nn.Module):
    """Self-attention over the pixels of an image."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(8, width),
            nn.Conv2d(width, 3 * width, 1),
            nn.Conv2d(width, width, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(-1, -2).reshape(n, c, h, w))


class diffusion(nn.Module):  # noqa: N801
    """The U-Net of a diffusion model: group normalisation, SiLU, attention in the middle, nearest upsampling."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList([_Noised(width, width), _Noised(width, 2 * width), _Noised(2 * width, 4 * width)])
        self.middle = nn.Sequential(
            _Noised(4 * width, 4 * width), _Attended(4 * width, heads), _Noised(4 * width, 4 * width)
        )
        self.up = nn.ModuleList([_Noised(8 * width, 2 * width), _Noised(4 * width, width), _Noised(2 * width, width)])
        self.head = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The predicted noise."""
        x, skips = self.stem(x), []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = nn.functional.avg_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"), skips.pop()], dim=1))
        return self.head(x)


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], inputs: int, width: int, layers: int, both: int) -> None:
        super().__init__()
        self.recurrent = kind(inputs, width, layers, batch_first=True, bidirectional=bool(both))
        self.head = nn.Linear(width * (1 + both), 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


def lstm(inputs: int, width: int, layers: int, both: int) -> nn.Module:
    """An LSTM over sequences, with class scores of the last step; `both` directions or one."""
    return _Recurrent(nn.LSTM, inputs, width, layers, both)


def gru(inputs: int, width: int, layers: int, both: int) -> nn.Module:
    """A GRU over sequences, with class scores of the last step."""
    return _Recurrent(nn.GRU, inputs, width, layers, both)


class tagger(nn.Module):  # noqa: N801
    """Token ids through an embedding and a bidirectional LSTM to a score of every tag."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.recurrent = nn.LSTM(width, width, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, length, tags)."""
        return self.head(self.recurrent(self.embedding(x))[0])


class _Mix(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class mixer(nn.Module):  # noqa: N801
    """MLP-Mixer (Tolstikhin et al., 2021) for images of `size` pixels."""

    def __init__(self, size: int, patch: int, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, stride=patch)
        self.blocks = nn.Sequential(*(_Mix((size // patch) ** 2, width) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores."""
        return self.head(self.blocks(self.stem(x).flatten(2).transpose(1, 2)).mean(1))


class dcgan(nn.Module):  # noqa: N801
    """The generator of DCGAN (Radford et al., 2016): from noise to an image of 4·2^levels pixels."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in reversed(range(levels))]
        layers: list[nn.Module] = [
            nn.ConvTranspose2d(128, widths[0], 4, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
        ]
        for a, b in itertools.pairwise(widths):
            layers += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images for noise of shape (batch, 128)."""
        return self.layers(x[:, :, None, None])


class volumes(nn.Module):  # noqa: N801
    """A 3-D CNN for scans of one channel."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for level in range(depth):
            outputs = width * 2**level
            layers += [nn.Conv3d(inputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.ReLU(), nn.MaxPool3d(2)]
            inputs = outputs
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(inputs, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores."""
        return self.head(self.layers(x).mean((2, 3, 4)))


def autoencoder(width: int, depth: int) -> nn.Module:
    """A convolutional autoencoder: strided convolutions down, transposed ones up."""
    widths = [3, *(width * 2**level for level in range(depth))]
    down = [(nn.Conv2d(a, b, 3, 2, 1), nn.ELU()) for a, b in itertools.pairwise(widths)]
    up = [(nn.ConvTranspose2d(b, a, 4, 2, 1), nn.ELU()) for a, b in itertools.pairwise(widths)][::-1]
    return nn.Sequential(*(layer for pair in (*down, *up) for layer in pair))


class wavenet(nn.Module):  # noqa: N801
    """Dilated causal 1-D convolutions with gates, as in WaveNet (van den Oord et al., 2016)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2 ** (n % 8)) for n in range(depth))
        self.out = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the next sample's 256 levels at every place."""
        x = self.stem(x)
        total = torch.zeros_like(x)
        for number, (gated, out) in enumerate(zip(self.gated, self.out, strict=True)):
            a, b = gated(nn.functional.pad(x, (2 ** (number % 8), 0))).chunk(2, dim=1)
            step = out(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + step, total + step
        return self.head(total)


def mlp(inputs: int, width: int, depth: int, norm: int) -> nn.Module:
    """A multilayer perceptron, with layer (1), batch (2) or no (0) normalisation."""
    layers: list[nn.Module] = []
    for number in range(depth):
        layers.append(nn.Linear(inputs if number == 0 else width, width))
        layers += {0: [], 1: [nn.LayerNorm(width)], 2: [nn.BatchNorm1d(width)]}[norm]
        layers += [nn.GELU() if norm == 1 else nn.ReLU(), *([nn.Dropout(0.1)] if norm == 0 else [])]
    return nn.Sequential(*layers, nn.Linear(width, 100))


class pointnet(nn.Module):  # noqa: N801
    """PointNet (Qi et al., 2017) without its transforms: layers shared by points, then the largest of each feature."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [3, width, width, 2 * width, 16 * width]
        self.shared = nn.Sequential(*(
            layer for a, b in itertools.pairwise(widths)
            for layer in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
        ))  # fmt: skip
        self.head = nn.Sequential(nn.Linear(16 * width, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores for points of shape (batch, 3, points)."""
        return self.head(self.shared(x).max(dim=2).values)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * self.body(x)


class superres(nn.Module):  # noqa: N801
    """Super-resolution as EDSR (Lim et al., 2017): residual blocks without norms, then a pixel shuffle by `scale`."""

    def __init__(self, width: int, depth: int, scale: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(_Residual(width) for _ in range(depth)))
        self.up = nn.Sequential(nn.Conv2d(width, width * scale**2, 3, padding=1), nn.PixelShuffle(scale))
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The larger image."""
        x = self.stem(x)
        return self.head(self.up(x + self.body(x)))


class _Detector(nn.Module):
    """Backbone and head of a detector, without what depends on the boxes it finds."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.backbone = model.backbone
        self.head = model.rpn.head if hasattr(model, "rpn") else model.head

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Scores and boxes of every anchor."""
        given = self.head(list(self.backbone(x).values()))
        return list(given.values()) if isinstance(given, dict) else [one for part in given for one in part]


def detector(kind: int) -> nn.Module:
    """Backbone and head of one of torchvision's detectors, by its place in `DETECTORS`."""
    from torchvision.models import detection

    return _Detector(getattr(detection, DETECTORS[kind])(weights=None, weights_backbone=None))


DETECTORS = (
    "fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "fasterrcnn_mobilenet_v3_large_fpn",
    "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2", "fcos_resnet50_fpn", "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
)  # fmt: skip
