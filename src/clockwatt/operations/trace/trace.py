"""A network's pass as the list of its operations, found by running it on the meta device, where nothing is computed.

Every call of a public PyTorch function is intercepted by a `TorchFunctionMode`: above the dispatcher, where the user's
code stands, so that an operation's identity does not depend on the device it will run on. In training the loss and
the backward pass run too; autograd builds its graph on meta as it does anywhere, and hooks on outputs see gradients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations import numerics, optimizers
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.networks import FAULTS, Loss, NetworkError, construct, example_inputs, summary, without_memory
from clockwatt.operations.spec.encode import dtype_of
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec
from clockwatt.operations.trace.call import tensor_spec
from clockwatt.operations.trace.gradients import Accumulation
from clockwatt.operations.trace.meta import MetaLayouts
from clockwatt.operations.trace.tracer import LOSS, Recorded, Tracer, UntraceableError
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import TRAINING

ACCUMULATION = "accumulation"
OPTIMIZER = "optimizer"

_META = torch.device("meta")

Build = Callable[[KnownValues], torch.nn.Module]
"""Gives a network on the meta device, and keeps the values of its small buffers."""
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of an operation."""

    operation: Operation
    kind: str  # as far as the call shows it: compute, view, identity, loss, accumulation or optimizer
    phase: str  # forward, loss, accumulation or optimizer
    module_path: str
    tensors_in: list[int]
    tensors_out: list[int]


@dataclass(frozen=True)
class Trace:
    """A network's pass."""

    calls: list[TracedCall]
    module_calls: int
    backward_nodes: int
    parameters: int
    parameter_bytes: int
    assumed_branches: list[str]


def trace_network(network: NetworkConfig, pass_: str, training: TrainingConfig, build: Build | None = None) -> Trace:
    """Trace one pass of a network.

    Parameters
    ----------
    network
        Built without memory for its weights.
    pass_
        `inference` or `training`.
    training
        Decides on the optimizer's step.
    build
        Gives the network on the meta device; None to build it by its name.

    Raises
    ------
    NetworkError
        If the network cannot be found, built or run on its input.
    UntraceableError
        If a call cannot be traced; the message names it and the module that makes it.
    """
    numerics.apply(TF32)
    learns = pass_ == TRAINING
    values = KnownValues()
    with without_memory(values), torch.random.fork_rng(devices=[]):
        module = construct(network, training=learns).to(_META) if build is None else build(values).train(learns)
    tracer = Tracer(module, network, values, grad=learns)
    given = example_inputs(network, _META, 0)
    tracer.takes([*given[0], *given[1].values()], [one.below for one in network.by_keyword.values()])
    _know_masks(values, network, given[1])
    loss = Loss(network, _META, 0)
    with MetaLayouts(), torch.set_grad_enabled(learns), _module_paths(tracer):
        outputs = _run(tracer, module, *given)
        nodes = _backward(tracer, loss, outputs) if learns else []
        calls = [traced_call(entry) for entry in tracer.recorded]
        if learns:
            calls += [call for entry in tracer.graph.accumulations(nodes) for call in _accumulation(tracer, entry)]
            calls.append(_optimizer_step(tracer, module, training))
    parameters = list(module.parameters())
    return Trace(
        calls,
        tracer.module_calls,
        len(nodes),
        sum(parameter.numel() for parameter in parameters),
        sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        tracer.assumed_branches,
    )


def _know_masks(values: KnownValues, network: NetworkConfig, by_keyword: dict[str, torch.Tensor]) -> None:
    """Know inputs that are no data but masks: ones, or ones up to a length of each row's own."""
    masks = {name: one for name, one in network.by_keyword.items() if one.values != "random"}
    if masks:
        for name, value in example_inputs(network, _CPU, 0)[1].items():
            if name in masks:
                values.keep(by_keyword[name], value)


def _run(
    tracer: Tracer, module: torch.nn.Module, given: list[torch.Tensor], by_keyword: dict[str, torch.Tensor]
) -> object:
    hint = "clockwatt cannot see what checkpointing or hooks on saved tensors do in the backward pass; switch them off"
    try:
        # the default device lies inside: what a factory makes without a device is on meta
        with torch.autograd.graph.disable_saved_tensors_hooks(hint), tracer, _META:
            return module(*given, **by_keyword)
    except NetworkError:
        raise
    except FAULTS as error:
        shapes = [str(list(x.shape)) for x in given] + [f"{key} {list(x.shape)}" for key, x in by_keyword.items()]
        raise UntraceableError(
            f"network {tracer.name}: its forward pass fails in {tracer.place()} ({summary(error)}). "
            f"Check that the network takes an input of shape {', '.join(shapes)}."
        ) from error


def _backward(tracer: Tracer, loss: Loss, outputs: object) -> list[object]:
    loss.prepare(outputs)
    with tracer:
        tracer.phase = LOSS
        value = loss(outputs)
        seed = torch.ones_like(value)
    for position, name in tracer.graph.custom_functions():
        raise UntraceableError(
            f"network {tracer.name}: {tracer.recorded[position].module_path or 'the network itself'} uses "
            f"the custom autograd function {name.removesuffix('Backward')}, whose backward pass cannot be seen. "
            "Use the plain PyTorch functions (and no checkpointing) in what you trace."
        )
    if not value.requires_grad:
        raise NetworkError(
            f"network {tracer.name}: no parameter takes part in its output; leave `training` out of passes."
        )
    nodes = tracer.graph.reachable(value)
    try:
        value.backward(seed)
    except NetworkError:
        raise
    except FAULTS as error:
        raise UntraceableError(
            f"network {tracer.name}: its backward pass fails ({summary(error)}). Check what it hooks on to gradients."
        ) from error
    return nodes


def traced_call(entry: Recorded) -> TracedCall:
    """A call as it was recorded, once the backward pass has run."""
    operation = replace(entry.operation, grad_out=tuple(entry.grad_out))
    return TracedCall(
        operation if operation.has_backward else entry.operation,
        "loss" if entry.phase == LOSS and entry.kind == "compute" else entry.kind,
        entry.phase,
        entry.module_path,
        entry.tensors_in,
        entry.tensors_out,
    )


def _accumulation(tracer: Tracer, entry: Accumulation) -> Iterator[TracedCall]:
    """The additions that autograd makes to add up the gradient of one tensor."""
    if entry.producer is None:
        assert entry.parameter is not None
        spec, path = tensor_spec(entry.parameter), ""
        shape, stride, dtype, tensor = spec.shape, spec.stride, spec.dtype, tracer.number_of(entry.parameter)
    else:
        call = tracer.recorded[entry.producer]
        output = call.operation.out[entry.output]
        shape, dtype, path, tensor = output.shape, output.dtype, call.module_path, call.tensors_out[entry.output]
        stride = call.grad_out[entry.output] or output.stride
    term = TensorSpec(shape, dtype, stride)
    one, other = (torch.empty_strided(shape, stride, dtype=dtype_of(dtype), device=_META) for _ in range(2))
    operation = Operation(
        "torch.add",
        args=({"tensor": 0}, {"tensor": 1}),
        tensors=(term, term),
        out=(OutputSpec(shape, dtype, torch.add(one, other).stride()),),
    )
    for _ in range(entry.additions):
        yield TracedCall(operation, ACCUMULATION, ACCUMULATION, path, [tensor, tensor], [tensor])


def _optimizer_step(tracer: Tracer, module: torch.nn.Module, training: TrainingConfig) -> TracedCall:
    learnt = [parameter for parameter in module.parameters() if parameter.grad is not None]
    specs = [replace(tensor_spec(parameter), grad=True, parameter=True) for parameter in learnt]
    numbers = [tracer.number_of(parameter) for parameter in learnt]
    return TracedCall(optimizers.operation_of(training, specs), OPTIMIZER, OPTIMIZER, "", numbers, numbers)


@contextlib.contextmanager
def _module_paths(tracer: Tracer) -> Iterator[None]:
    """Tell the tracer which module is running."""

    def enter(module: torch.nn.Module, args: object) -> None:  # noqa: ARG001  # as PyTorch calls it
        tracer.enter(module)

    def leave(module: torch.nn.Module, args: object, output: object) -> None:  # noqa: ARG001  # as PyTorch calls it
        tracer.leave()

    hooks = register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
