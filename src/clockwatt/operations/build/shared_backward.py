"""Several calls of an operation with one backward pass, as calls of a network have it."""

from __future__ import annotations

from typing import Any

import torch

from clockwatt.operations.build.build import BuiltOperation
from clockwatt.operations.spec.encode import tensors_in


class SharedBackward:
    """A pass of several calls of an operation: forward each, then one backward pass through all, as in a network.

    Parameters
    ----------
    built
        In training, with a backward pass.
    calls
        How many; each has parameters and activations of its own, on the same memory.

    Attributes
    ----------
    parameters
        Those of all calls, in order; a pass leaves its gradients there, fresh ones each time.
    activations
        Tensors of all calls that a network's pass differentiates and that are no parameters, in order. As in a network
        their gradients go on to one node, which drops them; as leaves they would be kept, and many copied for that.
    """

    def __init__(self, built: BuiltOperation, calls: int) -> None:
        specs = built.operation.tensors
        numbers = [number for number, spec in enumerate(specs) if spec.grad and not spec.parameter]
        memory = [built.tensors[number].detach() for _ in range(calls) for number in numbers]
        self.activations: tuple[torch.Tensor, ...] = ()
        if memory:
            self.activations = _Activations.apply(torch.ones((), requires_grad=True), *memory)
        self.parameters: list[torch.Tensor] = []
        self._forwards = []
        arriving = iter(self.activations)
        for _ in range(calls):
            tensors = [
                tensor if not spec.grad else tensor.detach().requires_grad_() if spec.parameter else next(arriving)
                for tensor, spec in zip(built.tensors, specs, strict=True)
            ]
            self.parameters += [
                tensor for tensor, spec in zip(tensors, specs, strict=True) if spec.grad and spec.parameter
            ]
            self._forwards.append(built.on(tensors).forward)
        self._gradients = built.gradients * calls
        self._arriving = built.arriving
        self._start = torch.ones((), device=built.device)

    def __call__(self) -> None:
        """Run one pass."""
        for parameter in self.parameters:
            parameter.grad = None
        outputs: list[torch.Tensor] = []
        for forward in self._forwards:
            given = forward()
            if isinstance(given, torch.Tensor):
                outputs.append(given)
            else:
                tensors = tensors_in(given)
                outputs.extend(tensors[number] for number in self._arriving)
        _Loss.apply(self._start, self._gradients, *outputs).backward(self._start)


class _Activations(torch.autograd.Function):
    """What earlier calls gave: the end of the backward pass, made once for any number of them."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, *memory: torch.Tensor) -> tuple[torch.Tensor, ...]:  # noqa: ARG004  # it requires the gradient
        ctx.set_materialize_grads(False)
        return tuple(tensor.detach() for tensor in memory)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[None, ...]:  # noqa: ARG004  # as autograd calls it
        return (None, *(None for _ in gradients))


class _Loss(torch.autograd.Function):
    """Something scalar of several tensors, with gradients that are given: one root for one backward pass."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, gradients: list[torch.Tensor], *outputs: torch.Tensor) -> torch.Tensor:  # noqa: ARG004  # as autograd calls it
        ctx.gradients = gradients
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, None, *ctx.gradients
