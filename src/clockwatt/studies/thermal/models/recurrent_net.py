"""The networks of `recurrent` themselves, in torch: import this where one is trained or run, and nowhere else."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

HIDDEN = 32
EPOCHS = 12
BATCH = 256
RATE = 3e-3
_CELLS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU}


class _Net(nn.Module):
    def __init__(self, kind: str, channels: int, statics: int, horizons: int) -> None:
        super().__init__()
        self.cell = _CELLS[kind](channels, HIDDEN, batch_first=True)
        self.head = nn.Sequential(nn.Linear(HIDDEN + statics, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, horizons))
        self.direct = nn.Linear(statics, horizons)  # the linear part bypasses the recurrent layers

    def forward(self, windows: Tensor, static: Tensor) -> Tensor:
        """Return changes in units of their deviation; shape (rows, horizons)."""
        seen, _ = self.cell(windows)
        ended: Tensor = self.head(torch.cat([seen[:, -1], static], dim=1)) + self.direct(static)
        return ended


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """These networks are so small that threads would wait for one another most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train(
    kind: str, windows: NDArray[np.float64], static: NDArray[np.float64], change: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    """Return the weights by name, fitted to scaled changes, of which those that are NaN do not count.

    Parameters
    ----------
    kind
        `lstm` or `gru`.
    windows, static, change
        Shapes (rows, steps, channels), (rows, features), (rows, horizons).
    """
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = _Net(kind, windows.shape[2], static.shape[1], change.shape[1])
        known = torch.from_numpy(np.isfinite(change))
        target = torch.from_numpy(np.nan_to_num(change)).float()
        inputs = torch.from_numpy(windows).float(), torch.from_numpy(static).float()
        steps = EPOCHS * -(-len(windows) // BATCH)
        optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=steps)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(windows)).split(BATCH):
                optimizer.zero_grad()
                missed = torch.where(known[rows], net(inputs[0][rows], inputs[1][rows]) - target[rows], 0.0)
                loss = missed.square().sum() / known[rows].sum().clamp(min=1)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
    return {name: weight.detach().numpy().copy() for name, weight in net.state_dict().items()}


def run(
    kind: str, weights: dict[str, NDArray[Any]], windows: NDArray[np.float64], static: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return scaled changes; shape (rows, horizons)."""
    horizons = len(weights["direct.bias"])
    net = _Net(kind, windows.shape[2], static.shape[1], horizons)
    net.load_state_dict({name: torch.from_numpy(copy.copy(weight)) for name, weight in weights.items()})
    net.eval()
    with _one_thread(), torch.inference_mode():
        found = net(torch.from_numpy(windows).float(), torch.from_numpy(static).float())
    return np.asarray(found.numpy(), float)


def check_weights(kind: str, weights: dict[str, NDArray[Any]], channels: int, statics: int, horizons: int) -> None:
    """Raise a `ValueError` if these are not the weights of such a network."""
    wanted = {
        name: tuple(weight.shape) for name, weight in _Net(kind, channels, statics, horizons).state_dict().items()
    }
    if wanted != {name: tuple(array.shape) for name, array in weights.items()}:
        raise ValueError("the weights are not those of such a network")
    if any(array.dtype != np.float32 for array in weights.values()):
        raise ValueError("the weights are not of single precision")
