"""Read a backward pass from autograd's graph: its number of nodes, and the gradients that are summed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from clockwatt.operations.trace.recurrent import Recurrent

_OWN: Any = Recurrent._backward_cls  # the node that stands for a fused kernel's backward pass

Edge = tuple[Any, int]
"""A node of the graph and which of its inputs a gradient goes to."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A tensor whose gradient comes from several calls, which autograd adds up one by one."""

    producer: int | None  # position of the call that gave the tensor, None for a parameter
    output: int  # which of its outputs; 0 for a parameter
    parameter: torch.Tensor | None
    additions: int


class GradientGraph:
    """Grows with the calls of a forward pass; each new node belongs to the call that made it."""

    def __init__(self) -> None:
        self._owner: dict[Any, int] = {}
        self._produced: dict[Edge, tuple[int, int]] = {}

    def add(self, call: int, outputs: Iterable[torch.Tensor]) -> None:
        """Take in the nodes behind what a call gave or changed.

        Parameters
        ----------
        call
            Its position.
        outputs
            Tensors that it gave, in order.
        """
        for number, output in enumerate(outputs):
            if output.grad_fn is not None:
                self._produced.setdefault((output.grad_fn, output.output_nr), (call, number))
                self._own(output.grad_fn, call)

    def _own(self, node: Any, call: int) -> None:
        pending = [node]
        while pending:
            node = pending.pop()
            if node in self._owner or _is_leaf(node):
                continue
            self._owner[node] = call
            pending.extend(source for source, _ in node.next_functions if source is not None)

    def custom_functions(self) -> list[tuple[int, str]]:
        """Calls behind which a `torch.autograd.Function` stands, with its name: its backward pass cannot be seen."""
        custom = torch.autograd.function.BackwardCFunction
        return [
            (call, type(node).__name__)
            for node, call in self._owner.items()
            if isinstance(node, custom) and not isinstance(node, _OWN)
        ]

    def reachable(self, loss: torch.Tensor) -> list[Any]:
        """Every node of the backward pass of `loss`, from the loss on."""
        found: dict[Any, None] = {loss.grad_fn: None}  # keeps the order, so that a catalogue is the same each time
        pending: list[Any] = [loss.grad_fn]
        while pending:
            node = pending.pop()
            for source, _ in node.next_functions:
                if source is not None and source not in found:
                    found[source] = None
                    pending.append(source)
        return list(found)

    def accumulations(self, nodes: Iterable[Any]) -> list[Accumulation]:
        """Gradients that are added up between calls, in the order of the backward pass.

        A tensor used by n calls costs n − 1 additions. One that a call uses twice costs that call one more, which is
        part of the call's own backward pass and not counted here.
        """
        consumers: defaultdict[Edge, set[int | None]] = defaultdict(set)
        for node in nodes:
            owner = self._owner.get(node)
            for source, number in node.next_functions:
                if source is not None and (self._owner.get(source) != owner or _is_leaf(source)):
                    consumers[source, number].add(owner)
        shared = ((edge, len(calls) - 1) for edge, calls in consumers.items() if len(calls) > 1)
        found = [entry for edge, additions in shared if (entry := self._accumulation(edge, additions)) is not None]
        return sorted(found, key=lambda entry: -1 if entry.producer is None else entry.producer, reverse=True)

    def _accumulation(self, edge: Edge, additions: int) -> Accumulation | None:
        if edge in self._produced:
            return Accumulation(*self._produced[edge], parameter=None, additions=additions)
        if _is_leaf(edge[0]):
            return Accumulation(None, 0, edge[0].variable, additions)
        return None


def _is_leaf(node: Any) -> bool:
    return hasattr(node, "variable")
