"""The optimizer's step as one operation: on a GPU one fused run over all parameters, which no traced call shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from clockwatt.config import TrainingConfig
from clockwatt.operations.spec.operation import OPTIMIZER_PREFIX, Operation, OperationSpecError, TensorSpec

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
_BY_FUNCTION = {f"{OPTIMIZER_PREFIX}{kind.__name__}": kind for kind in _OPTIMIZERS.values()}
_GRADIENT_SIZE = 1e-6
"""Gradients of a measured step: parameters stay finite over 100,000 steps."""

FLOPS_PER_PARAMETER = {"SGD": 2, "SGD with momentum": 4, "Adam": 13, "AdamW": 13}
"""Arithmetic of one step for one parameter, without weight decay.

SGD p ← p − lr·g; with momentum b ← m·b + g before it (Polyak 1964). Adam (Kingma and Ba 2015): 3 for the first moment
by lerp, 4 for the second, 3 for √v/√c + ε, 3 for the update.
"""


def settings(training: TrainingConfig) -> dict[str, Any]:
    """Keyword arguments of the configured optimizer."""
    chosen: dict[str, Any] = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
    return chosen | ({"momentum": training.momentum} if training.optimizer == "sgd" else {})


def described(training: TrainingConfig) -> str:
    """The configured optimizer as canonical JSON."""
    return json.dumps({"optimizer": training.optimizer, **settings(training)}, sort_keys=True, separators=(",", ":"))


def make(training: TrainingConfig, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """The configured optimizer of some parameters."""
    optimizer: torch.optim.Optimizer = _OPTIMIZERS[training.optimizer](parameters, **settings(training))
    return optimizer


def hold_still(optimizer: torch.optim.Optimizer) -> None:
    """Let steps do all their work and leave the parameters as they are.

    Steps on one batch again and again end in dead or infinite activations within seconds where nothing normalises
    them, and a GPU draws up to a third less power for zeros and NaN.
    """
    for group in optimizer.param_groups:
        group["lr"] = 0.0


def operation_of(training: TrainingConfig, parameters: Sequence[TensorSpec]) -> Operation:
    """One step of the configured optimizer as an operation, known by the shapes of its parameters."""
    return Operation(
        f"{OPTIMIZER_PREFIX}{_OPTIMIZERS[training.optimizer].__name__}",
        args=([{"tensor": number} for number in range(len(parameters))],),
        kwargs=settings(training),
        tensors=tuple(parameters),
    )


def step(operation: Operation, parameters: Sequence[torch.Tensor]) -> Callable[[], Any]:
    """Bind one step to parameters, each with a small gradient; the first step, which makes the state, is taken.

    Raises
    ------
    OperationSpecError
        If the optimizer is none of those that a campaign can choose, or takes other settings.
    """
    if operation.function not in _BY_FUNCTION:
        raise OperationSpecError(f"{operation.function} is none of {', '.join(_BY_FUNCTION)}.")
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, _GRADIENT_SIZE)
    try:
        optimizer = _BY_FUNCTION[operation.function](parameters, **operation.kwargs)
    except (TypeError, ValueError) as error:
        raise OperationSpecError(f"{operation.function} cannot be built: {error}.") from error
    optimizer.step()
    return optimizer.step


def states(operation: Operation) -> int:
    """Tensors of state per parameter."""
    if operation.operation_class == "SGD":
        return 1 if operation.kwargs.get("momentum") else 0
    return 2


def flops(operation: Operation) -> int:
    """FLOPs of one step; weight decay costs two more per parameter."""
    name = operation.operation_class
    if name == "SGD" and operation.kwargs.get("momentum"):
        name = "SGD with momentum"
    per_parameter = FLOPS_PER_PARAMETER[name] + (2 if operation.kwargs.get("weight_decay") else 0)
    return per_parameter * sum(parameter.elements for parameter in operation.tensors)
