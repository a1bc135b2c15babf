"""Networks small enough to be traced in a test, of different shares of modules and calls."""

import os
import signal

import torch
from torch import nn


def deep() -> nn.Module:
    """Many modules, each with one call."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(12)])


def wide() -> nn.Module:
    """Few modules."""
    return nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 16))


def tail() -> nn.Module:
    """A second block without parameters."""
    return nn.Sequential(nn.Linear(16, 16), nn.Softplus())


class Transposed(nn.Module):
    """Gives what is not contiguous."""

    def forward(self, x):
        return x.unflatten(1, (8, 2)).transpose(1, 2)


def transposed() -> nn.Module:
    """A third block whose input is not contiguous."""
    return nn.Sequential(nn.Linear(16, 16), Transposed(), nn.Linear(8, 4))


class Shared(nn.Module):
    """Two layers with one weight, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.register_buffer("steps", torch.zeros(3))

    def forward(self, x):
        return self.second(self.first(x).relu())


def normalised() -> nn.Module:
    """Modules of another kind."""
    return nn.Sequential(*[nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(5)])


class Functional(nn.Module):
    """Calls without modules of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)

    def forward(self, x):
        x = self.first(x)
        for _ in range(20):
            x = x.relu() + x
        return x


class Dying(nn.Module):
    """Ends the process of the second of several ranks as the out-of-memory killer does."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)

    def forward(self, x):
        from torch import distributed

        if distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.first(x)


def dense() -> nn.Module:
    """Each layer takes what all before it gave: tensors that many calls take, and so many accumulations."""
    from torchvision.models import DenseNet  # takes seconds, and the others do without

    return DenseNet(growth_rate=8, block_config=(3, 4, 3), num_init_features=16, num_classes=10)


def printed_modules() -> list[nn.Module]:
    """Modules that a table of others may hold, each printed as PyTorch prints it."""
    return [
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 1, bias=False),
        nn.BatchNorm2d(8, eps=1e-3, momentum=0.01),
        nn.SiLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Sigmoid(),
        nn.AdaptiveAvgPool2d(2),
        nn.ReLU(),
        nn.LayerNorm((2, 2)),
        nn.Linear(2, 5),
        nn.Tanh(),
        nn.ReLU6(),
        nn.Hardswish(),
        nn.Linear(5, 5),
        nn.ReLU6(inplace=True),
        nn.LeakyReLU(0.2),
        nn.Hardsigmoid(),
        nn.ELU(),
        nn.Dropout(0.3),
        nn.Softmax(dim=1),
    ]


def printed() -> nn.Module:
    """All of `printed_modules`, one after another; the first one's input needs no gradient."""
    return nn.Sequential(nn.Conv2d(8, 8, 1), *printed_modules())
