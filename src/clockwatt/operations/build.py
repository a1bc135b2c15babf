"""Real tensors and a call from an operation: what is measured."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from clockwatt.operations import functions, optimizers, values
from clockwatt.operations.encode import decode, dtype_of, tensors_in
from clockwatt.operations.operation import Operation, OperationSpecError, TensorSpec
from clockwatt.records import TRAINING

_unsafe_view = torch.ops.aten._unsafe_view.default


class BuiltOperation:
    """An operation with tensors of its own, ready to be called any number of times.

    The caller decides on the grad mode: `torch.inference_mode()` for inference, the default for training.

    Attributes
    ----------
    operation, pass_, device
        What was built.
    tensors
        The tensors that the operation takes, in the order of its spec.
    parameter_bytes
        Bytes of those that are parameters or buffers of a network.
    tensor_bytes
        Bytes of all of them, with the gradients that arrive and, for an optimizer, gradients and state.
    forward
        Calls the function once and returns what it gives.
    backward
        Takes what `forward` gave; returns fresh gradients of every tensor that requires one, by `torch.autograd.grad`.
    call
        One pass: forward in inference; in training forward and, where a gradient arrives, backward.
    """

    def __init__(
        self, operation: Operation, device: torch.device, pass_: str, tensors: list[torch.Tensor], seed: int
    ) -> None:
        self.operation = operation
        self.device = device
        self.pass_ = pass_
        self.tensors = tensors
        self.parameter_bytes = sum(spec.bytes for spec in operation.tensors if spec.parameter)
        self.tensor_bytes = sum(spec.bytes for spec in operation.tensors)
        self.forward: Callable[[], Any]
        self.backward: Callable[[Any], tuple[torch.Tensor | None, ...]] = _no_gradients
        if operation.is_optimizer:
            self.tensor_bytes *= 2 + optimizers.states(operation)
            self.forward = optimizers.step(operation, tensors)
        else:
            self.forward = _forward(self)
        self.call = self.forward
        if pass_ == TRAINING and operation.has_backward:
            gradients = [
                _strided(TensorSpec(output.shape, output.dtype, stride), device, "plain", _generator(device, seed + 1))
                for output, stride in zip(operation.out, operation.grad_out, strict=True)
                if stride is not None
            ]
            self.tensor_bytes += sum(gradient.numel() * gradient.element_size() for gradient in gradients)
            self.backward = _backward(self, gradients)
            self.call = functools.partial(_forward_and_backward, self.forward, self.backward)


def build(
    operation: Operation,
    device: torch.device | str,
    *,
    pass_: str,
    seed: int = 0,
    share_inputs_with: BuiltOperation | None = None,
) -> BuiltOperation:
    """Make an operation's tensors and bind its function to them.

    Parameters
    ----------
    operation
        From the catalogue.
    device
        Where the tensors live; `meta` allocates nothing.
    pass_
        `inference` or `training`. In training, tensors that the network's pass differentiates are leaves that require a
        gradient; those that the call changes in place are aliased anew in each call (2.5 µs on the host, nothing on the
        device), since PyTorch forbids it on leaves.
    seed
        Of the values in the tensors.
    share_inputs_with
        Another instance of the same operation, whose tensors that are not parameters this one uses too. Then only
        parameters lie in memory of their own: several instances called in turn find them in DRAM and activations in the
        cache. Without it all tensors are new.

    Raises
    ------
    OperationSpecError
        If the function is not on the allow-list or the spec is none that could have been traced.
    torch.OutOfMemoryError
        If the device has too little memory.
    """
    device = torch.device(device)
    generator = _generator(device, seed)
    storages: dict[int, torch.Tensor] = {}
    tensors: list[torch.Tensor] = []
    for number, spec in enumerate(operation.tensors):
        if share_inputs_with is not None and not spec.parameter:
            tensors.append(share_inputs_with.tensors[number])
            continue
        if spec.storage is None:
            tensor = _strided(spec, device, values.role(operation, number), generator)
        else:
            if spec.storage not in storages:
                storages[spec.storage] = _shared_storage(
                    operation, spec, device, values.role(operation, number), generator
                )
            tensor = _view(storages[spec.storage], spec)
        tensors.append(tensor.requires_grad_() if spec.grad and pass_ == TRAINING else tensor)
    return BuiltOperation(operation, device, pass_, tensors, seed)


def _forward(built: BuiltOperation) -> Callable[[], Any]:
    operation = built.operation
    function = functions.resolve(operation.function)
    args = [decode(arg, built.tensors, built.device) for arg in operation.args]
    kwargs = {name: decode(arg, built.tensors, built.device) for name, arg in operation.kwargs.items()}
    if operation.no_grad:
        function = torch.no_grad()(function)
    aliases = list(_aliases(built))
    if not aliases:
        return functools.partial(function, *args, **kwargs)

    def call() -> Any:
        for position, alias in aliases:
            if isinstance(position, int):
                args[position] = alias()
            else:
                kwargs[position] = alias()
        result = function(*args, **kwargs)
        if result is None:  # as of x[i] = y
            return tuple(args[position] if isinstance(position, int) else kwargs[position] for position, _ in aliases)
        return result

    return call


def _aliases(built: BuiltOperation) -> Iterator[tuple[int | str, Callable[[], torch.Tensor]]]:
    """Arguments that the call changes and that are to be new in each call, each with what makes an alias of it."""
    operation = built.operation
    for number in operation.mutates:
        spec, tensor = operation.tensors[number], built.tensors[number]
        reshaped = bool(operation.out) and operation.out[0].shape != spec.shape
        if built.pass_ != TRAINING and not reshaped:
            continue
        entry = {"tensor": number}
        places: list[int | str] = [position for position, arg in enumerate(operation.args) if arg == entry]
        places += [name for name, arg in operation.kwargs.items() if arg == entry]
        if not places:
            raise OperationSpecError(f"{operation.function} changes tensor {number}, which is no argument of its own.")
        for place in places:
            # not a view to autograd, so that the alias of a leaf may be changed in place
            alias = functools.partial(_unsafe_view, tensor, tensor.shape) if tensor.requires_grad else tensor.detach
            yield place, alias


def _backward(built: BuiltOperation, gradients: list[torch.Tensor]) -> Callable[[Any], tuple[torch.Tensor | None, ...]]:
    leaves = [tensor for tensor, spec in zip(built.tensors, built.operation.tensors, strict=True) if spec.grad]
    arriving = [number for number, stride in enumerate(built.operation.grad_out) if stride is not None]

    def backward(outputs: Any) -> tuple[torch.Tensor | None, ...]:
        if isinstance(outputs, torch.Tensor):
            return torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)
        given = list(tensors_in(outputs))
        return torch.autograd.grad([given[number] for number in arriving], leaves, gradients, allow_unused=True)

    return backward


def _forward_and_backward(forward: Callable[[], Any], backward: Callable[[Any], Any]) -> Any:
    return backward(forward())


def _no_gradients(outputs: Any) -> tuple[torch.Tensor | None, ...]:  # noqa: ARG001  # as every backward
    return ()


def _strided(spec: TensorSpec, device: torch.device, role: str, generator: torch.Generator | None) -> torch.Tensor:
    storage = torch.empty(spec.extent, dtype=dtype_of(spec.dtype), device=device)
    values.fill(storage, spec, role=role, generator=generator)
    return _view(storage, spec)


def _shared_storage(
    operation: Operation, spec: TensorSpec, device: torch.device, role: str, generator: torch.Generator | None
) -> torch.Tensor:
    """A storage that holds every tensor of the operation that views it."""
    elements = max(other.offset + other.extent for other in operation.tensors if other.storage == spec.storage)
    storage = torch.empty(elements, dtype=dtype_of(spec.dtype), device=device)
    values.fill(storage, spec, role=role, generator=generator)
    return storage


def _view(storage: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    return storage.as_strided(spec.shape, spec.stride, spec.offset)


def _generator(device: torch.device, seed: int) -> torch.Generator | None:
    return None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
