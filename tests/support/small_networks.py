"""Networks small enough to be traced in a test, of different shares of modules and calls."""

from torch import nn


def deep() -> nn.Module:
    """Many modules, each with one call."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(12)])


def wide() -> nn.Module:
    """Few modules."""
    return nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 16))


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
