"""One intercepted call: what it was given, before it runs, and the operation that it turns out to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from clockwatt.operations.build import values
from clockwatt.operations.spec.encode import dtype_name, encode, tensors_in
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of an operation."""

    operation: Operation
    kind: str  # as far as the call shows it: compute, view, identity, loss, accumulation, optimizer or fused
    phase: str  # forward, loss, accumulation or optimizer
    module_path: str
    tensors_in: list[int]
    tensors_out: list[int]


class InterceptedCall:
    """Record a call before it runs, since it may change its arguments in place.

    Parameters
    ----------
    function
        Public name.
    args, kwargs
        Its arguments.
    grad
        Whether the pass computes gradients.
    is_state
        Returns whether a tensor is a parameter or buffer of the network, or a view of one.
    value_of
        Returns the values of a tensor, None where they are unknown.

    Raises
    ------
    NotEncodableError
        If a tensor has a dtype that operations do not support.
    """

    def __init__(
        self,
        function: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        grad: bool,
        is_state: Callable[[torch.Tensor], bool],
        value_of: Callable[[torch.Tensor], torch.Tensor | None],
    ) -> None:
        self.given = list({id(tensor): tensor for tensor in tensors_in((args, kwargs))}.values())
        self._function = function
        self._arguments = (args, kwargs)
        self._grad = grad
        self._value_of = value_of
        self._versions = [tensor._version for tensor in self.given]
        self._storages = [storage_of(tensor) for tensor in self.given]
        self._no_grad = grad and not torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.given)
        self._specs = [
            replace(tensor_spec(tensor), grad=grad and tensor.requires_grad, parameter=is_state(tensor))
            for tensor in self.given
        ]

    def changed(self) -> list[int]:
        """Which of the given tensors the call has changed in place."""
        pairs = zip(self.given, self._versions, strict=True)
        return [number for number, (tensor, before) in enumerate(pairs) if tensor._version != before]

    def kind(self, outputs: Sequence[torch.Tensor], changed: Sequence[int]) -> str:
        """Whether it gave back what it was given (`identity`), views of it (`view`), or more (`compute`)."""
        if changed:
            return "compute"
        identities = {id(tensor) for tensor in self.given}
        if all(id(output) in identities for output in outputs):
            return "identity"
        return "view" if all(storage_of(output) in self._storages for output in outputs) else "compute"

    def operation(self, outputs: Sequence[torch.Tensor], changed: Sequence[int]) -> Operation:
        """The operation, as yet without gradients.

        Parameters
        ----------
        outputs
            What it gave, or what it changed if it gave nothing.
        changed
            Which of the given tensors it changed.

        Raises
        ------
        NotEncodableError
            If it takes an argument that JSON cannot keep.
        """
        out = (
            OutputSpec(
                tuple(output.shape), dtype_name(output.dtype), output.stride(), self._grad and output.requires_grad
            )
            for output in outputs
        )
        operation = Operation(self._function, out=tuple(out), mutates=tuple(changed), no_grad=self._no_grad)
        args, kwargs = values.without_values(operation.operation_class, bool(changed), *self._arguments)
        numbers = {id(tensor): number for number, tensor in enumerate(self.given)}
        return replace(
            operation,
            args=tuple(encode(arg, lambda tensor: numbers[id(tensor)]) for arg in args),
            kwargs={key: encode(arg, lambda tensor: numbers[id(tensor)]) for key, arg in kwargs.items()},
            tensors=tuple(self._with_storages(self._with_values(operation.operation_class, numbers))),
        )

    def _with_values(self, operation_class: str, numbers: dict[int, int]) -> list[TensorSpec]:
        specs = list(self._specs)
        for tensor, below in values.index_bounds(operation_class, *self._arguments):
            number = numbers[id(tensor)]
            if not (specs[number].floating or specs[number].dtype == "bool"):
                specs[number] = replace(specs[number], below=int(below))
        positive = values.positive_argument(operation_class, *self._arguments)
        if isinstance(positive, torch.Tensor) and positive.is_floating_point():
            specs[numbers[id(positive)]] = replace(specs[numbers[id(positive)]], positive=True)
        for tensor in values.selectors(operation_class, *self._arguments):
            value = self._value_of(tensor)
            if value is not None:
                number = numbers[id(tensor)]
                specs[number] = replace(specs[number], nonzero=int(value.count_nonzero()))
        return specs

    def _with_storages(self, specs: list[TensorSpec]) -> list[TensorSpec]:
        groups: dict[int, list[int]] = {}
        for number, storage in enumerate(self._storages):
            groups.setdefault(storage, []).append(number)
        offsets = [int(tensor.storage_offset()) for tensor in self.given]
        for group, members in enumerate(members for members in groups.values() if len(members) > 1):
            first = min(offsets[number] for number in members)
            for number in members:
                specs[number] = replace(specs[number], storage=group, offset=offsets[number] - first)
        return specs


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype and strides of a tensor.

    Raises
    ------
    NotEncodableError
        If specs know no such dtype.
    """
    return TensorSpec(tuple(tensor.shape), dtype_name(tensor.dtype), tensor.stride())


def storage_of(tensor: torch.Tensor) -> int:
    """Address of a tensor's storage: the tensors that view it have the same, as long as one of them lives."""
    address: int = tensor.untyped_storage()._cdata
    return address
