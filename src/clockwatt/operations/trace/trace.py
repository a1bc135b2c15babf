"""A network's pass as the list of its operations, found by running it on the meta device, where nothing is computed.

Every call of a public PyTorch function is intercepted by a `TorchFunctionMode`: above the dispatcher, where the user's
code stands, so that an operation's identity does not depend on the device it will run on. In training the loss and
the backward pass run too; autograd builds its graph on meta as it does anywhere, and hooks on outputs see gradients.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import checkpoint

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations import numerics, optimizers
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.networks import (
    FAULTS,
    Loss,
    NetworkError,
    arranged,
    construct_on_meta,
    example,
    example_tensors,
    floating_outputs,
    laid_out,
    materialise,
    without_memory,
)
from clockwatt.operations.spec.encode import dtype_of
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec
from clockwatt.operations.trace.autocast import contexts_followed
from clockwatt.operations.trace.call import TracedCall, tensor_spec
from clockwatt.operations.trace.fusion import fused, is_laid_out_channels_last
from clockwatt.operations.trace.gradients import Accumulation
from clockwatt.operations.trace.meta import MetaLayouts
from clockwatt.operations.trace.refusals import NO_SAVED_TENSORS_HOOKS, cause, refused_wrapper
from clockwatt.operations.trace.tracer import LOSS, Recorded, Tracer, UntraceableError
from clockwatt.schema.execution import TF32
from clockwatt.schema.optimizers import NO_OPTIMIZER
from clockwatt.schema.records import FORWARD, TRAINING

_UNSCALING = "GradScaler unscales all gradients in one call and does not wait for the GPU"
_CLIPPING = "gradients are clipped by one norm and one multiplication of all of them"
_MULTIPLIED, _NORM = "torch.Tensor.mul_", "torch.linalg.vector_norm"
ACCUMULATION = "accumulation"
OPTIMIZER = "optimizer"

_CHECKPOINT = "_checkpoint_impl"
_META = torch.device("meta")

Build = Callable[[KnownValues], torch.nn.Module]
"""Gives a network on the meta device, and keeps the values of its small buffers."""
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Trace:
    """A network's pass."""

    calls: list[TracedCall]
    module_calls: int
    backward_nodes: int
    parameters: int
    parameter_bytes: int
    assumed_branches: list[str]
    batch_norms: int  # calls before they are fused


def count_batch_norms(calls: Sequence[TracedCall]) -> int:
    """Return how many calls are batch normalisations."""
    return sum(call.operation.operation_class == "batch_norm" for call in calls)


@numerics.applied(TF32)
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
    try:
        trace = _trace(network, pass_, training, build)
        return _compiled(trace, network, pass_, training, build) if network.execution[0].compiled else trace
    except SystemExit as error:
        if error.code == 128 + signal.SIGTERM:  # this process was asked to end
            raise
        raise NetworkError(f"network {network.name}: its code calls exit({error.code}). Leave that out.") from error


def called_modules(network: NetworkConfig, pass_: str, build: Build | None = None) -> list[tuple[str, str]]:
    """Return path and class of each module of a network, in the order of their first calls in a pass.

    `build` and errors are those of `trace_network`. Modules that the forward pass does not call are left out.
    """
    modules: dict[torch.nn.Module, None] = {}
    hook = register_module_forward_pre_hook(lambda module, _: modules.setdefault(module))
    try:
        trace_network(network, pass_, TrainingConfig(), build)
    finally:
        hook.remove()
    paths = {module: path for path, module in next(iter(modules)).named_modules()}
    return [(paths[module], type(module).__name__) for module in modules if module in paths]


def _compiled(trace: Trace, network: NetworkConfig, pass_: str, training: TrainingConfig, build: Build | None) -> Trace:
    """Return a traced pass as TorchInductor compiles it; the loss and the optimizer's step stay as they are."""
    learns, execution = pass_ == TRAINING, network.execution[0]
    if not execution.channels_last and is_laid_out_channels_last(trace.calls, training=learns):
        settings = [f"{execution.precision}+channels_last"]
        trace = _trace(network.model_copy(update={"precision": settings}), pass_, training, build)
    regions = [execution if call.phase == FORWARD else None for call in trace.calls]
    return replace(trace, calls=fused(trace.calls, regions, training=learns))


def on_meta(
    network: NetworkConfig, values: KnownValues, build: Build | None, *, training: bool
) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return a network, which `build` gives if it is not constructed by its name, and its inputs, on meta.

    NetworkError if it cannot be found or built.
    """
    with torch.random.fork_rng(devices=[]):
        if build is None:
            module = construct_on_meta(network, values, training=training)
        else:
            with without_memory(values):
                module = laid_out(build(values), network.execution[0]).train(training)
    given = example_tensors(network, _META, 0)
    with _META:
        materialise(module, given)
    return module, given


def _trace(network: NetworkConfig, pass_: str, training: TrainingConfig, build: Build | None) -> Trace:
    learns = pass_ == TRAINING
    values = KnownValues()
    module, given = on_meta(network, values, build, training=learns)
    reason = refused_wrapper(module, training=learns)
    if reason is not None:
        raise UntraceableError(f"network {network.name}: {reason}")
    tracer = Tracer(module, network, values, grad=learns)
    tracer.takes(given.values(), [one.below for one in network.by_keyword.values()])
    know_masks(values, network, given)
    loss = Loss(network, _META, 0, training.loss)
    autocast = network.execution[0].autocast
    with MetaLayouts(), torch.set_grad_enabled(learns), module_paths(tracer):
        with contexts_followed(tracer.enter_autocast, tracer.leave_autocast):
            tracer.enter_autocast(None if autocast is None else dtype_of(autocast))
            outputs = _run(tracer, module, given)
            value = _loss(tracer, loss, outputs) if learns else None
            tracer.leave_autocast()
        batches = training.accumulate if learns else 1
        scaled = autocast == "float16"
        nodes = _backward(tracer, value, batches, scaled=scaled) if value is not None else []
        calls = [traced_call(entry) for entry in tracer.recorded]
        if learns:
            calls += [call for entry in tracer.graph.accumulations(nodes) for call in accumulation(tracer, entry)]
            calls = calls * batches + _accumulated(tracer, module, batches)
            if scaled:
                tracer.assumed_branches.append(f": {_UNSCALING}")
                calls.append(_of_all_gradients(module, _MULTIPLIED))
            if training.clip_norm is not None:
                tracer.assumed_branches.append(f": {_CLIPPING}")
                calls += [_of_all_gradients(module, name) for name in (_NORM, _MULTIPLIED)]
            if training.optimizer != NO_OPTIMIZER:
                learnt = [parameter for parameter in module.parameters() if parameter.grad is not None]
                calls.append(optimizer_step(tracer, learnt, training))
    parameters = list(module.parameters())
    return Trace(
        calls,
        tracer.module_calls * batches,
        len(nodes) * batches,
        sum(parameter.numel() for parameter in parameters),
        sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        tracer.assumed_branches,
        count_batch_norms(calls),
    )


def know_masks(values: KnownValues, network: NetworkConfig, given: dict[str, torch.Tensor]) -> None:
    """Know inputs that are no data but masks: ones, or ones up to a length of each row's own."""
    for name, mask in network.by_keyword.items():
        if mask.values != "random":
            values.keep(given[name], example(mask, network.dtype, _CPU, torch.Generator().manual_seed(0)))


def _run(tracer: Tracer, module: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> object:
    given, by_keyword = arranged(tensors)
    unhooked = torch.autograd.graph.disable_saved_tensors_hooks(NO_SAVED_TENSORS_HOOKS)
    # the default device lies inside: what a factory makes without a device is on meta
    with (
        _faults_of_forward(tracer),
        unhooked,
        _checkpoints_recomputed(tracer),
        stance("fail_on_recompile"),
        tracer,
        _META,
    ):
        outputs = module(*given, **by_keyword)
    if outputs is None or isinstance(outputs, bool | int | float | str):
        raise UntraceableError(
            f"network {tracer.name}: its forward returns {type(outputs).__name__}, not a tensor. Return a tensor."
        )
    return outputs


@contextlib.contextmanager
def _faults_of_forward(tracer: Tracer) -> Iterator[None]:
    """Whatever the network's own code raises is one message."""
    try:
        yield
    except NetworkError:
        raise
    except FAULTS as error:
        what, fix = cause(error, None, tracer.fitting)
        raise tracer.refusal(f"its forward pass {what}", fix, error) from error


def _checkpoints_recomputed(tracer: Tracer) -> contextlib.AbstractContextManager[None]:
    """Within, what `torch.utils.checkpoint` runs is called without gradients, and again for the backward pass."""

    def run(_: object, function: Callable[..., Any], args: Any, kwargs: Any, **settings: Any) -> Any:
        if torch.is_grad_enabled():
            if settings["context_fn"] is not checkpoint.noop_context_fn:
                fix = "Checkpoint without `context_fn`."
                raise tracer.refusal("uses selective activation checkpointing", fix)
            with torch.no_grad():
                function(*args, **kwargs)
        return function(*args, **kwargs)

    return checkpoints_replaced(run)


@contextlib.contextmanager
def checkpoints_replaced(run: Callable[..., Any]) -> Iterator[None]:
    """Within, `run` is called in place of what `torch.utils.checkpoint` calls, which is its first argument."""
    before = getattr(checkpoint, _CHECKPOINT, None)
    if before is None:  # another version of PyTorch: its hooks on saved tensors are refused
        yield
        return
    setattr(checkpoint, _CHECKPOINT, functools.partial(run, before))
    try:
        yield
    finally:
        setattr(checkpoint, _CHECKPOINT, before)


def stance(name: str) -> contextlib.AbstractContextManager[object]:
    """Within, functions compiled by torch.compile run so; nothing where none can have been compiled."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    of_functions: contextlib.AbstractContextManager[object] = torch.compiler.set_stance(name)
    return of_functions


def _loss(tracer: Tracer, loss: Loss, outputs: object) -> torch.Tensor:
    if any(output.is_inference() for output in floating_outputs(outputs)):
        raise UntraceableError(
            f"network {tracer.name}: its output is of torch.inference_mode, which has no gradients. Leave the mode out."
        )
    loss.prepare(outputs)
    with tracer:
        tracer.phase = LOSS
        return loss(outputs)


def _backward(tracer: Tracer, value: torch.Tensor, batches: int, *, scaled: bool) -> list[object]:
    """Run the backward pass of the loss of one of several batches, scaled by GradScaler or not; gives its nodes."""
    scale = torch.empty((), device=_META)
    with tracer:
        value = value / batches if batches > 1 else value
        value = value * scale if scaled else value
        seed = torch.ones_like(value)
    for position, name in tracer.graph.custom_functions():
        if name.startswith("Checkpoint"):
            where = tracer.recorded[position].module_path
            raise UntraceableError(
                f"network {tracer.name}: {f'module {where!r}' if where else 'it'} uses activation checkpointing. "
                "Switch it off: clockwatt cannot trace it."
            )
    if not value.requires_grad:
        raise NetworkError(
            f"network {tracer.name}: its output depends on no parameter. Leave `training` out of passes."
        )
    nodes = tracer.graph.reachable(value)
    try:
        with tracer, _META:  # what custom autograd functions call
            tracer.phase = ACCUMULATION
            # torch.autograd.backward, were it called, would leave the mode for as long as it runs
            torch.autograd.Variable._execution_engine.run_backward(
                (value,), (seed,), False, False, (), allow_unreachable=True, accumulate_grad=True
            )
    except NetworkError:
        raise
    except FAULTS as error:
        what, fix = cause(error, None, "Correct its custom autograd functions and hooks on gradients.")
        raise tracer.refusal(f"its backward pass {what}", fix, error) from error
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


def accumulation(tracer: Tracer, entry: Accumulation) -> Iterator[TracedCall]:
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


def _accumulated(tracer: Tracer, module: torch.nn.Module, batches: int) -> list[TracedCall]:
    """The additions of each further batch's gradients to those that are there."""
    entries = [
        Accumulation(None, 0, parameter, batches - 1) for parameter in module.parameters() if parameter.grad is not None
    ]
    return [call for entry in entries for call in accumulation(tracer, entry)]


def _of_all_gradients(module: torch.nn.Module, function: str) -> TracedCall:
    """A call for all gradients together, as one tensor: their norm, or their product with a number, in place."""
    elements = sum(parameter.numel() for parameter in module.parameters() if parameter.grad is not None)
    gradients, number = TensorSpec((elements,), "float32", (1,)), TensorSpec((), "float32", ())
    multiplied = function == _MULTIPLIED
    given = (gradients, number) if multiplied else (gradients,)
    made = gradients if multiplied else number
    operation = Operation(
        function,
        args=tuple({"tensor": place} for place in range(len(given))),
        tensors=given,
        out=(OutputSpec(made.shape, made.dtype, made.stride),),
        mutates=(0,) if multiplied else (),
    )
    return TracedCall(operation, ACCUMULATION, OPTIMIZER, "", [], [])


def optimizer_step(tracer: Tracer, learnt: Sequence[torch.Tensor], training: TrainingConfig) -> TracedCall:
    """The step of the configured optimizer on parameters that have a gradient."""
    specs = [replace(tensor_spec(parameter), grad=True, parameter=True) for parameter in learnt]
    numbers = [tracer.number_of(parameter) for parameter in learnt]
    return TracedCall(optimizers.operation_of(training, specs), OPTIMIZER, OPTIMIZER, "", numbers, numbers)


@contextlib.contextmanager
def module_paths(tracer: Tracer) -> Iterator[None]:
    """Notify the tracer of the running module of this thread; the hooks are called in all."""
    thread = threading.get_ident()

    def enter(module: torch.nn.Module, args: object) -> Any:
        return tracer.enter(module, args) if threading.get_ident() == thread else None

    def leave(module: torch.nn.Module, args: object, output: object) -> None:  # noqa: ARG001  # as PyTorch calls it
        if threading.get_ident() == thread:
            tracer.leave()

    hooks = register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
