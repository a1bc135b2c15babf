"""The optimizer's step as one operation: on a GPU one fused run over all parameters, which no traced call shows."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from clockwatt.config import TrainingConfig
from clockwatt.errors import ClockwattError
from clockwatt.operations.spec.operation import OPTIMIZER_PREFIX, Operation, OperationSpecError, TensorSpec
from clockwatt.schema.optimizers import BY_CLASS, FUSED, NO_OPTIMIZER, Optimizer, kind_of, states_of

_BY_FUNCTION: dict[str, type[torch.optim.Optimizer]] = {
    f"{OPTIMIZER_PREFIX}{name}": getattr(torch.optim, name) for name in BY_CLASS
}
_GRADIENT_SIZE = 1e-6
"""Gradients of a measured step: parameters stay finite over 100,000 steps."""


def settings(training: TrainingConfig) -> dict[str, Any]:
    """Keyword arguments of the configured optimizer."""
    kind = kind_of(training.optimizer)
    chosen: dict[str, Any] = {"lr": training.learning_rate}
    if kind.decays:
        chosen["weight_decay"] = training.weight_decay
    if kind.momentum:
        chosen["momentum"] = training.momentum
    return chosen | ({"fused": True} if training.optimizer.endswith(FUSED) else {})


def described(training: TrainingConfig) -> str:
    """The configured optimizer as canonical JSON, with gradient accumulation, clipping and loss where they are set."""
    extras = training.model_dump(include={"accumulate", "clip_norm", "loss"}, exclude_defaults=True)
    content = {"optimizer": training.optimizer, **settings(training), **extras}
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def make(
    training: TrainingConfig, parameters: Iterable[torch.Tensor], *, as_on_cuda: bool = False
) -> torch.optim.Optimizer:
    """The configured optimizer of some parameters; on other devices it can take the variant that CUDA takes."""
    given = settings(training)
    if training.optimizer == NO_OPTIMIZER or (as_on_cuda and "fused" in given):
        return _StatesAlone(parameters, states_of({"optimizer": training.optimizer, **given}))
    if as_on_cuda:
        given["foreach"] = kind_of(training.optimizer).class_name != "Adafactor"
    return _BY_FUNCTION[_function(training)](parameters, **given)


class _StatesAlone(torch.optim.Optimizer):
    """What a fused kernel's step allocates, on any device: states of each parameter, and nothing else."""

    def __init__(self, parameters: Iterable[torch.Tensor], states: int) -> None:
        super().__init__(parameters, {})
        self._states = states

    def step(self, *_: object) -> None:  # type: ignore[override]
        """Allocate states of parameters that have none."""
        if not self._states:
            return
        for parameter in (one for group in self.param_groups for one in group["params"]):
            if parameter.grad is not None and not self.state[parameter]:
                self.state[parameter] = {str(n): torch.zeros_like(parameter) for n in range(self._states)}


def _function(training: TrainingConfig) -> str:
    return f"{OPTIMIZER_PREFIX}{kind_of(training.optimizer).class_name}"


def hold_still(optimizer: torch.optim.Optimizer) -> None:
    """Let steps do all their work and leave the parameters as they are.

    Steps on one batch again and again end in dead or infinite activations within seconds where nothing normalises
    them, and a GPU draws up to a third less power for zeros and NaN.
    """
    for group in optimizer.param_groups:
        group["lr"] = 0.0


def operation_of(training: TrainingConfig, parameters: Sequence[TensorSpec]) -> Operation:
    """One step of the configured optimizer as an operation, known by the shapes of its parameters.

    Raises
    ------
    ClockwattError
        If the optimizer refuses such parameters.
    """
    given = {name: value for name, value in settings(training).items() if name != "fused"}
    # torch.compile's wrapper of the method imports all of it: 4 s
    method = {"add_param_group": inspect.unwrap(torch.optim.Optimizer.add_param_group)}
    checked = type("Checked", (_BY_FUNCTION[_function(training)],), method)
    try:
        checked([torch.empty(spec.shape, device="meta") for spec in parameters], **given)
    except ValueError as error:
        raise ClockwattError(f"{training.optimizer} cannot train these parameters: {error}. Choose another.") from error
    return Operation(
        _function(training),
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
    _kind(operation)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, _GRADIENT_SIZE)
    try:
        optimizer = _BY_FUNCTION[operation.function](parameters, **operation.kwargs)
    except (TypeError, ValueError) as error:
        raise OperationSpecError(f"{operation.function} cannot be built: {error}.") from error
    optimizer.step()
    return optimizer.step


def state_bytes(operation: Operation) -> int:
    """Return the bytes of the state that an optimizer keeps between steps."""
    kind = _kind(operation)
    if kind.factored:
        return sum(_factored_elements(one.shape) * one.bytes // max(one.elements, 1) for one in operation.tensors)
    states = kind.states + bool(kind.momentum and operation.kwargs.get("momentum"))
    return states * sum(parameter.bytes for parameter in operation.tensors)


def _factored_elements(shape: Sequence[int]) -> int:
    """One value for each row and each column of the last two dimensions; for a vector one for each element."""
    if len(shape) < 2:
        return math.prod(shape)
    return math.prod(shape[:-1]) + math.prod(shape[:-2]) * shape[-1]


def flops(operation: Operation) -> int:
    """Return the FLOPs of one step; momentum and weight decay cost two more per parameter each."""
    kind, settings = _kind(operation), operation.kwargs
    extras = bool(kind.momentum and settings.get("momentum")) + bool(settings.get("weight_decay"))
    return (kind.flops + 2 * extras) * sum(parameter.elements for parameter in operation.tensors)


def _kind(operation: Operation) -> Optimizer:
    if operation.function not in _BY_FUNCTION:
        raise OperationSpecError(f"{operation.function} is none of {', '.join(_BY_FUNCTION)}.")
    return BY_CLASS[operation.function.removeprefix(OPTIMIZER_PREFIX)]
