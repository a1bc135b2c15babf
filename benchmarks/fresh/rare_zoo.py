"""Networks of kinds that a predictor fitted on convolutions and transformers misses: indices, spectra, modulation.

A network is named with its sizes, `benchmarks.fresh.rare_zoo:unet3d_16_3`, as in `zoo.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from benchmarks.fresh.zoo import constructor
from torch import nn
from torch.nn import functional


def __getattr__(name: str) -> Callable[[], nn.Module]:
    return constructor(name, globals())


class _Modulated(nn.Module):
    """Convolve each image with weights of its own (Karras et al., 2020: modulation and demodulation)."""

    def __init__(self, inputs: int, outputs: int, style: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, outputs, inputs, 3, 3))
        self.style = nn.Linear(style, inputs)
        self.noise = nn.Parameter(torch.zeros(outputs, 1, 1))

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        batch, _, height, width = x.shape
        weight = self.weight * self.style(w)[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        x = functional.conv2d(x.reshape(1, -1, height, width), weight.flatten(0, 1), padding=1, groups=batch)
        x = x.reshape(batch, -1, height, width)
        return functional.leaky_relu(x + self.noise * torch.randn_like(x[:, :1]), 0.2)


class stylegan(nn.Module):  # noqa: N801  # named as its builder
    """The synthesis network of StyleGAN 2, from 4×4 pixels on, each level twice as large."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        widths = [max(16, width >> max(0, level - 2)) for level in range(levels)]
        self.mapping = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.LeakyReLU(0.2))))
        self.constant = nn.Parameter(torch.randn(1, widths[0], 4, 4))
        self.blocks = nn.ModuleList(_Modulated(a, b, 256) for a, b in itertools.pairwise([widths[0], *widths]))
        self.rgb = nn.Conv2d(widths[-1], 3, 1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Return images for noise of shape (batch, 256)."""
        w = self.mapping(z)
        x = self.constant.expand(len(z), -1, -1, -1)
        for level, block in enumerate(self.blocks):
            if level:
                x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = block(x, w)
        return self.rgb(x)


def _volume(inputs: int, outputs: int) -> nn.Sequential:
    layers = [
        (nn.Conv3d(a, outputs, 3, padding=1), nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(0.01))
        for a in (inputs, outputs)
    ]
    return nn.Sequential(*itertools.chain.from_iterable(layers))


class unet3d(nn.Module):  # noqa: N801
    """A 3-D U-Net (Çiçek et al., 2016) with instance normalisation and transposed convolutions."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(_volume(a, b) for a, b in itertools.pairwise([1, *widths]))
        self.up = nn.ModuleList(nn.ConvTranspose3d(2 * one, one, 2, stride=2) for one in widths[:-1])
        self.merge = nn.ModuleList(_volume(2 * one, one) for one in widths[:-1])
        self.head = nn.Conv3d(width, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores of every voxel."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool3d(x, 2) if level else x)
            skips.append(x)
        for up, merge, skip in zip(reversed(self.up), reversed(self.merge), reversed(skips[:-1]), strict=True):
            x = merge(torch.cat([skip, up(x)], dim=1))
        return self.head(x)


class _Graph(nn.Module):
    """Node features of shape (batch, nodes, features); edges of every graph by the indices of their two ends."""

    def _flat(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, nodes, features = x.shape
        first = torch.arange(batch, device=x.device)[:, None] * nodes
        return x.reshape(batch * nodes, features), (source + first).flatten(), (target + first).flatten()


class gcn(_Graph):  # noqa: N801
    """A graph convolution network (Kipf and Welling, 2017): sums over neighbours by `index_add`."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width if n else features, width) for n in range(layers))
        self.head = nn.Linear(width, 16)

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return class scores of every node."""
        x, source, target = self._flat(x, source, target)
        degree = torch.ones(len(x), 1, device=x.device, dtype=x.dtype)
        degree = degree.index_add(0, target, torch.ones(len(target), 1, device=x.device, dtype=x.dtype)).rsqrt()
        for layer in self.layers:
            hidden = layer(x) * degree
            summed = torch.zeros_like(hidden).index_add(0, target, hidden.index_select(0, source))
            x = functional.relu((summed + hidden) * degree)
        return self.head(x)


class sage(_Graph):  # noqa: N801
    """GraphSAGE (Hamilton et al., 2017): means over neighbours by `gather` and `scatter_add`."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        super().__init__()
        self.near = nn.ModuleList(nn.Linear(width if n else features, width) for n in range(layers))
        self.itself = nn.ModuleList(nn.Linear(width if n else features, width) for n in range(layers))
        self.head = nn.Linear(width, 16)

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return class scores of every node."""
        x, source, target = self._flat(x, source, target)
        count = torch.zeros(len(x), device=x.device, dtype=x.dtype)
        count = count.scatter_add(0, target, torch.ones(len(target), device=x.device, dtype=x.dtype)).clamp(min=1)
        for near, itself in zip(self.near, self.itself, strict=True):
            message = torch.gather(x, 0, source[:, None].expand(-1, x.shape[1]))
            summed = torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(message), message)
            x = functional.relu(near(summed / count[:, None]) + itself(x))
        return self.head(x)


class gat(_Graph):  # noqa: N801
    """Graph attention (Veličković et al., 2018): a softmax over the edges of every node by `scatter_reduce`."""

    def __init__(self, features: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList([nn.Linear(features, heads * width), nn.Linear(heads * width, heads * width)])
        self.near = nn.ParameterList([torch.randn(heads, width) for _ in range(2)])
        self.itself = nn.ParameterList([torch.randn(heads, width) for _ in range(2)])
        self.head = nn.Linear(heads * width, 16)

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return class scores of every node."""
        x, source, target = self._flat(x, source, target)
        for layer, near, itself in zip(self.layers, self.near, self.itself, strict=True):
            hidden = layer(x).reshape(len(x), self.heads, -1)
            score = (hidden * near).sum(-1)[source] + (hidden * itself).sum(-1)[target]
            score = functional.leaky_relu(score, 0.2)
            index = target[:, None].expand_as(score)
            largest = torch.zeros(len(x), self.heads, device=x.device, dtype=score.dtype)
            largest = largest.scatter_reduce(0, index, score, "amax", include_self=False)
            score = (score - largest[target]).exp()
            total = torch.zeros_like(largest).index_add(0, target, score)
            weighted = hidden[source] * (score / (total[target] + 1e-9))[..., None]
            x = functional.elu(torch.zeros_like(hidden).index_add(0, target, weighted).flatten(1))
        return self.head(x)


class dlrm(nn.Module):  # noqa: N801
    """DLRM (Naumov et al., 2019): bags of embeddings, products of all pairs, two perceptrons."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width)
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """Return scores for 13 numbers and, for every table, a bag of indices (batch, tables, bag)."""
        x = self.bottom(dense)
        bags = [table(sparse[:, number]) for number, table in enumerate(self.tables)]
        stacked = torch.stack([x, *bags], dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1))


class deepfm(nn.Module):  # noqa: N801
    """DeepFM (Guo et al., 2017): one row of each table, a factorisation machine and a perceptron."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.linear = nn.ModuleList(nn.Embedding(rows, 1) for _ in range(tables))
        self.deep = nn.Sequential(
            nn.Linear(tables * width, 400),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(400, 400),
            nn.ReLU(),
            nn.Linear(400, 1),
        )

    def forward(self, sparse: torch.Tensor) -> torch.Tensor:
        """Return scores for indices of shape (batch, tables)."""
        rows = [table(sparse[:, number]) for number, table in enumerate(self.tables)]
        first = torch.stack([table(sparse[:, number]) for number, table in enumerate(self.linear)], dim=1).sum(1)
        x = torch.stack(rows, dim=1)
        second = 0.5 * (x.sum(1).square() - x.square().sum(1)).sum(1, keepdim=True)
        return first + second + self.deep(x.flatten(1))


class _Spectral(nn.Module):
    """Multiply the lowest modes of an image with complex weights (Li et al., 2021)."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.low = nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width)
        self.high = nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft2(x)
        out = torch.zeros_like(spectrum)
        modes = self.modes
        out[:, :, :modes, :modes] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :modes, :modes], self.low)
        out[:, :, -modes:, :modes] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -modes:, :modes], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])


class fno(nn.Module):  # noqa: N801
    """A Fourier neural operator of four layers."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 1)
        self.spectral = nn.ModuleList(_Spectral(width, modes) for _ in range(4))
        self.skips = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(4))
        self.head = nn.Sequential(nn.Conv2d(width, 128, 1), nn.GELU(), nn.Conv2d(128, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a field of the size of its input."""
        x = self.stem(x)
        for spectral, skip in zip(self.spectral, self.skips, strict=True):
            x = functional.gelu(spectral(x) + skip(x))
        return self.head(x)


class fnet(nn.Module):  # noqa: N801
    """FNet (Lee-Thorp et al., 2022): tokens mixed by a Fourier transform."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30522, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.perceptrons = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)
        )
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return class scores for token ids."""
        x = self.embedding(tokens)
        for number, perceptron in enumerate(self.perceptrons):
            x = self.norms[2 * number](x + torch.fft.fft2(x.float()).real.to(x.dtype))
            x = self.norms[2 * number + 1](x + perceptron(x))
        return self.head(x[:, 0])


class deepspeech(nn.Module):  # noqa: N801
    """Deep Speech 2 (Amodei et al., 2016): two convolutions, then bidirectional GRUs."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5), bias=False), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5), bias=False), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.recurrent = nn.ModuleList(
            nn.GRU(2 * width if n else 32 * 41, width, batch_first=True, bidirectional=True) for n in range(layers)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(2 * width) for _ in range(layers))
        self.head = nn.Linear(2 * width, 29)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores of every frame for spectrograms (batch, 1, 161, frames)."""
        x = self.convolutions(x).flatten(1, 2).transpose(1, 2)
        for recurrent, norm in zip(self.recurrent, self.norms, strict=True):
            x = norm(recurrent(x)[0].transpose(1, 2)).transpose(1, 2)
        return self.head(x)
