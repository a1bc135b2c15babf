"""Real tensors and a call from an operation: what is measured."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from clockwatt.operations import optimizers
from clockwatt.operations.build import values
from clockwatt.operations.spec import functions
from clockwatt.operations.spec.encode import decode, dtype_of, tensors_in
from clockwatt.operations.spec.operation import Operation, OperationSpecError, TensorSpec
from clockwatt.schema.records import TRAINING

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
    gradients
        The gradients that arrive at its outputs; empty where it has no backward pass.
    leaves
        Those of `tensors` that require a gradient.
    arriving
        Numbers of the outputs that `gradients` arrive at.
    parameter_bytes
        Bytes of the tensors that are parameters or buffers of a network.
    tensor_bytes
        Bytes of all tensors and gradients; of an optimizer with its state.
    forward
        Calls the function once and returns what it gives.
    backward
        Takes what `forward` gave; returns fresh gradients of every tensor that requires one, by `torch.autograd.grad`.
    call
        One pass: forward in inference; in training forward and, where a gradient arrives, backward.
    """

    def __init__(
        self,
        operation: Operation,
        device: torch.device,
        pass_: str,
        tensors: list[torch.Tensor],
        gradients: list[torch.Tensor],
    ) -> None:
        self.operation = operation
        self.device = device
        self.pass_ = pass_
        self.tensors = tensors
        self.gradients = gradients
        self.leaves = [tensor for tensor, spec in zip(tensors, operation.tensors, strict=True) if spec.grad]
        self.arriving = [number for number, stride in enumerate(operation.grad_out) if stride is not None]
        given = sum(spec.bytes for spec in operation.tensors)
        self.parameter_bytes = sum(spec.bytes for spec in operation.tensors if spec.parameter)
        self.tensor_bytes = given + sum(gradient.numel() * gradient.element_size() for gradient in gradients)
        self.forward: Callable[[], Any]
        self.backward: Callable[[Any], tuple[torch.Tensor | None, ...]] = _no_gradients
        if operation.is_optimizer:
            self.tensor_bytes = 2 * given + optimizers.state_bytes(operation)
            self.forward = optimizers.step(operation, tensors)
        else:
            self.forward = _forward(self)
        self.call = self.forward
        if gradients:
            self.backward = _backward(self)
            self.call = functools.partial(_forward_and_backward, self.forward, self.backward)

    def on(self, tensors: list[torch.Tensor]) -> BuiltOperation:
        """The same operation on other tensors, with the same gradients arriving."""
        return BuiltOperation(self.operation, self.device, self.pass_, tensors, self.gradients)


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
        Another instance of the same operation in the same pass, whose gradients, and tensors that are not parameters,
        this one uses too. Then only parameters lie in memory of their own: several instances called in turn find them
        in DRAM and activations in the cache. Without it everything is new.

    Raises
    ------
    OperationSpecError
        If the function is not on the allow-list or the spec is none that could have been traced.
    torch.OutOfMemoryError
        If the device has too little memory.
    """
    device = torch.device(device)
    generator = None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
    shared = share_inputs_with
    tensors = _tensors(operation, device, generator, shared.tensors if shared else None)
    gradients: list[torch.Tensor] = []
    if pass_ == TRAINING:
        for tensor, spec in zip(tensors, operation.tensors, strict=True):
            tensor.requires_grad_(spec.grad)
        gradients = shared.gradients if shared else _gradients(operation, device, generator)
    else:
        tensors = _as_parameters(operation, tensors)
    return BuiltOperation(operation, device, pass_, tensors, gradients)


def _as_parameters(operation: Operation, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors of an inference pass, those that are a network's parameters made what they are there.

    PyTorch looks at that though nothing is recorded: a matrix product with a `Parameter` folds the batch of a strided
    input into a single product, which takes a quarter of the time. The statistics of a normalisation are buffers.
    """
    if operation.operation_class == "batch_norm":
        return tensors
    with torch.inference_mode(mode=False):
        return [
            torch.nn.Parameter(tensor) if spec.parameter and tensor.is_floating_point() else tensor
            for tensor, spec in zip(tensors, operation.tensors, strict=True)
        ]


def _tensors(
    operation: Operation,
    device: torch.device,
    generator: torch.Generator | None,
    shared: list[torch.Tensor] | None,
) -> list[torch.Tensor]:
    extents: dict[int, int] = {}
    for spec in operation.tensors:
        if spec.storage is not None:
            extents[spec.storage] = max(extents.get(spec.storage, 0), spec.offset + spec.extent)
    storages: dict[int, torch.Tensor] = {}
    tensors = []
    for number, spec in enumerate(operation.tensors):
        if shared is not None and not spec.parameter:
            tensors.append(shared[number])
            continue
        storage = None if spec.storage is None else storages.get(spec.storage)
        with torch.inference_mode(mode=torch.is_inference_mode_enabled() and not spec.parameter):
            if storage is None:
                elements = spec.extent if spec.storage is None else extents[spec.storage]
                storage = torch.empty(elements, dtype=dtype_of(spec.dtype), device=device)
                values.fill(
                    storage, spec, role=values.role(operation, number), generator=generator,
                    scale=values.scale(operation, number),
                )  # fmt: skip
                if spec.storage is not None:
                    storages[spec.storage] = storage
            tensors.append(storage.as_strided(spec.shape, spec.stride, spec.offset))
    return tensors


def _gradients(operation: Operation, device: torch.device, generator: torch.Generator | None) -> list[torch.Tensor]:
    arriving = zip(operation.out, operation.grad_out, strict=False)
    specs = [TensorSpec(output.shape, output.dtype, stride) for output, stride in arriving if stride is not None]
    gradients = []
    for spec in specs:
        storage = torch.empty(spec.extent, dtype=dtype_of(spec.dtype), device=device)
        values.fill(storage, spec, role="plain", generator=generator)
        gradients.append(storage.as_strided(spec.shape, spec.stride))
    return gradients


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
        changed = []
        for place, alias in aliases:
            changed.append(alias())
            if isinstance(place, str):
                kwargs[place] = changed[-1]
            else:
                args[place] = changed[-1]
        result = function(*args, **kwargs)
        return tuple(changed) if result is None else result  # None as of x[i] = y

    return call


def _aliases(built: BuiltOperation) -> Iterator[tuple[int | str, Callable[[], torch.Tensor]]]:
    """Positions or keywords of arguments that the call changes anew each time, with what makes an alias of each."""
    operation = built.operation
    for number in operation.mutates:
        tensor = built.tensors[number]
        if built.pass_ != TRAINING and operation.out[0].shape == operation.tensors[number].shape:
            continue
        given: list[tuple[int | str, Any]] = [*enumerate(operation.args), *operation.kwargs.items()]
        place = next((place for place, arg in given if arg == {"tensor": number}), None)
        if place is None:
            raise OperationSpecError(f"{operation.function} changes tensor {number}, which is none of its arguments.")
        # not a view to autograd, so that the alias of a leaf may be changed in place
        alias = functools.partial(_unsafe_view, tensor, tensor.shape) if tensor.requires_grad else tensor.detach
        yield place, alias


def _backward(built: BuiltOperation) -> Callable[[Any], tuple[torch.Tensor | None, ...]]:
    leaves, gradients, arriving = built.leaves, built.gradients, built.arriving

    def backward(outputs: Any) -> tuple[torch.Tensor | None, ...]:
        if isinstance(outputs, torch.Tensor):
            return torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)
        given = tensors_in(outputs)
        return torch.autograd.grad([given[number] for number in arriving], leaves, gradients, allow_unused=True)

    return backward


def _forward_and_backward(forward: Callable[[], Any], backward: Callable[[Any], Any]) -> Any:
    return backward(forward())


def _no_gradients(outputs: Any) -> tuple[torch.Tensor | None, ...]:  # noqa: ARG001  # as every backward
    return ()
