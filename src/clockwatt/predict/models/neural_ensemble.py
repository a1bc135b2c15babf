"""Neural network ensemble (MLPs) that predicts device time together with a forest, where there are enough data.

A forest is constant within its leaves. An MLP interpolates more smoothly between the sizes in the training data, and in
products of sizes. Each MLP is a stack of layers with normalisation (Ba, Kiros and Hinton, arXiv 1607.06450) and sigmoid
linear units (Hendrycks and Gimpel, arXiv 1606.08415), trained by AdamW (Loshchilov and Hutter, ICLR 2019) on Huber's
loss with one cycle of the learning rate (Smith and Topin, arXiv 1708.07120). Training needs PyTorch; prediction needs
NumPy alone. The weights are stored as plain arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

LEAST_ROWS = 5000
"""Fewest rows to train on; with fewer rows a forest alone is more accurate."""
WIDTH, DEPTH = 256, 4
EPOCHS, BATCH = 45, 512
_RATE, _DECAY, _HUBER = 4e-3, 1e-3, 0.1
_FARTHEST = 4.0
"""Standard deviations from a feature's mean at which its values are clipped."""
_EPSILON = 1e-5
_LEAST_SCALE = 1e-6
_MOST = 1e15
"""Means of features are bytes and such at most."""
_KINDS = {
    "perceptrons_centre": ("float32", 1), "perceptrons_scale": ("float32", 1), "perceptrons_first": ("float16", 3),
    "perceptrons_inner": ("float16", 4), "perceptrons_vectors": ("float32", 4), "perceptrons_last": ("float32", 2),
}  # fmt: skip
"""Arrays in a file: type and number of dimensions."""

Floats = NDArray[np.float32]


class MalformedPerceptronsError(ValueError):
    """The arrays are not the weights of a neural network ensemble."""


@dataclass(frozen=True)
class Perceptrons:
    """Ensemble of MLPs on the same features; its prediction is their mean.

    Attributes
    ----------
    perceptrons_centre, perceptrons_scale
        Mean and deviation of each feature; shape (features,).
    perceptrons_first
        Weights of the first layers; shape (MLPs, width, features).
    perceptrons_inner
        Weights of the other layers; shape (MLPs, layers − 1, width, width).
    perceptrons_vectors
        Offset of each layer, and gain and offset of its normalisation; shape (MLPs, layers, 3, width).
    perceptrons_last
        Weights of the output, then its offset; shape (MLPs, width + 1).
    """

    perceptrons_centre: Floats
    perceptrons_scale: Floats
    perceptrons_first: NDArray[np.float16]
    perceptrons_inner: NDArray[np.float16]
    perceptrons_vectors: Floats
    perceptrons_last: Floats

    @classmethod
    def fit(
        cls, matrix: Floats, learnt: NDArray[np.float64], number: int, *, seed: int, jobs: int,
        beside: tuple[Floats, NDArray[np.float64]] | None = None,
    ) -> Self:  # fmt: skip
        """Train an ensemble.

        Parameters
        ----------
        matrix
            Shape (rows, features).
        learnt
            Values to train on; shape (rows,).
        number
            Number of MLPs; each has its own initial weights and its own order of the rows.
        seed
            Seed of the initial weights and of the order.
        jobs
            Threads; the result does not depend on it.
        beside
            Features and values of related rows (the other pass) to train on too. One more feature marks them; it is
            constant in predictions, so it is added to the first offset and not stored.
        """
        import torch

        if beside is not None:
            kindred, theirs = beside
            matrix = np.vstack([_marked(matrix, 1.0), _marked(kindred, -1.0)])
            learnt = np.concatenate([learnt, theirs])
        centre, scale = matrix.mean(axis=0), matrix.std(axis=0) + np.float32(2 * _LEAST_SCALE)
        rows = torch.from_numpy(_scaled(matrix, centre, scale))
        wanted = torch.from_numpy(learnt.astype(np.float32))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # sums depend on the number of threads, MLPs not on each other
        try:
            with ThreadPoolExecutor(min(jobs, number)) as pool:
                trained = list(pool.map(lambda own: _trained(rows, wanted, 1000 * seed + own), range(number)))
        finally:
            torch.set_num_threads(threads)
        first, inner, vectors, last = (np.stack(part) for part in zip(*trained, strict=True))
        if beside is not None:
            own = min((1.0 - centre[-1]) / scale[-1], _FARTHEST)  # as `_scaled` has it
            vectors[:, 0, 0] += first[:, :, -1] * own
            first, centre, scale = first[:, :, :-1], centre[:-1], scale[:-1]
        return cls(centre, scale, first.astype(np.float16), inner.astype(np.float16), vectors, last)

    def predict(self, matrix: Floats) -> NDArray[np.float64]:
        """Return the mean over MLPs, shape (rows,), for a `matrix` of shape (rows, features)."""
        rows, total = _scaled(matrix, self.perceptrons_centre, self.perceptrons_scale), np.zeros(len(matrix))
        for first, inner, vectors, last in zip(
            self.perceptrons_first, self.perceptrons_inner, self.perceptrons_vectors, self.perceptrons_last, strict=True
        ):
            states = rows
            for weights, (offset, gain, shift) in zip([first, *inner], vectors, strict=True):
                states = states @ weights.astype(np.float32).T + offset
                states = states - states.mean(axis=1, keepdims=True)
                states /= np.sqrt((states * states).mean(axis=1, keepdims=True) + np.float32(_EPSILON))
                states = states * gain + shift
                states = states / (1 + np.exp(-states))
            total += states @ last[:-1] + last[-1]
        mean: NDArray[np.float64] = total / len(self.perceptrons_first)
        return mean

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], features: int) -> Self | None:
        """Check the arrays of a file and make an ensemble of them; None where the file has none of them.

        MalformedPerceptronsError if one is missing, of another type or shape, or not finite.
        """
        if not any(name in arrays for name in _KINDS):
            return None
        for name, (kind, dimensions) in _KINDS.items():
            if name not in arrays:
                raise MalformedPerceptronsError(f"array {name!r} is missing")
            if arrays[name].dtype != np.dtype(kind) or arrays[name].ndim != dimensions:
                raise MalformedPerceptronsError(f"array {name!r} is of another type or shape")
            if not (np.abs(arrays[name].astype(np.float64)) <= _MOST).all():
                raise MalformedPerceptronsError(f"array {name!r} holds what is no number, or one that nothing learns")
        found = cls(**{name: arrays[name] for name in _KINDS})
        number, width = found.perceptrons_last.shape[0], found.perceptrons_last.shape[1] - 1
        layers = found.perceptrons_vectors.shape[1]
        shapes = (
            (features,), (features,), (number, width, features), (number, layers - 1, width, width),
            (number, layers, 3, width), (number, width + 1),
        )  # fmt: skip
        if not number or not width or tuple(arrays[name].shape for name in _KINDS) != shapes:
            raise MalformedPerceptronsError("the arrays of the MLPs differ in shape")
        if np.any(found.perceptrons_scale < _LEAST_SCALE):
            raise MalformedPerceptronsError("a feature has no deviation")
        return found


def _marked(matrix: Floats, mark: float) -> Floats:
    """Append a feature that is the same in all rows."""
    return np.hstack([matrix, np.full((len(matrix), 1), mark, dtype=np.float32)])


def _scaled(matrix: Floats, centre: Floats, scale: Floats) -> Floats:
    rows: Floats = np.clip((matrix - centre) / scale, -_FARTHEST, _FARTHEST).astype(np.float32)
    return np.nan_to_num(rows, copy=False)  # a missing value is set to the mean


def _trained(rows: Any, wanted: Any, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Train one MLP; return its first layer, inner layers, vectors and output, as `Perceptrons` has them."""
    import torch
    from torch.nn import functional

    random = torch.Generator().manual_seed(seed)

    def parameter(*shape: int) -> Any:
        bound = shape[-1] ** -0.5
        return ((2 * torch.rand(*shape, generator=random) - 1) * bound).requires_grad_()

    widths = [rows.shape[1], *[WIDTH] * (DEPTH - 1)]
    weights = [parameter(WIDTH, width) for width in widths]
    offsets = [torch.zeros(WIDTH, requires_grad=True) for _ in widths]
    gains = [torch.ones(WIDTH, requires_grad=True) for _ in widths]
    shifts = [torch.zeros(WIDTH, requires_grad=True) for _ in widths]
    last, centre = parameter(WIDTH), wanted.mean().clone().requires_grad_()
    optimizer = torch.optim.AdamW([*weights, *offsets, *gains, *shifts, last, centre], lr=_RATE, weight_decay=_DECAY)
    batches = -(-len(rows) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=EPOCHS * batches)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(rows), generator=random).split(BATCH):
            states = rows[batch]
            for weight, offset, gain, shift in zip(weights, offsets, gains, shifts, strict=True):
                states = functional.linear(states, weight, offset)
                states = functional.silu(functional.layer_norm(states, (WIDTH,), gain, shift, _EPSILON))
            loss = functional.smooth_l1_loss(states @ last + centre, wanted[batch], beta=_HUBER)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    vectors = torch.stack([torch.stack(one) for one in zip(offsets, gains, shifts, strict=True)])
    whole = torch.cat([last, centre[None]])
    found = (weights[0], torch.stack(weights[1:]), vectors, whole)
    first, inner, of_layers, output = (part.detach().numpy() for part in found)
    return first, inner, of_layers, output
