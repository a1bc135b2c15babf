"""Record what a network's pass allocates and frees, by running it on the meta device without keeping any tensor.

The pass runs twice, as the first step of training creates the optimizer's state. What CUDA kernels allocate inside
themselves is not seen there: convolutions, recurrent layers and attention are recorded with what their size depends on.
"""

from __future__ import annotations

import contextlib
import json
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import set_checkpoint_early_stop

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations import numerics, optimizers
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.networks import (
    FAULTS,
    Loss,
    NetworkError,
    arranged,
    floating_outputs,
    summary,
)
from clockwatt.operations.spec.encode import dtype_name, dtype_of, tensors_in
from clockwatt.operations.trace.autocast import contexts_followed
from clockwatt.operations.trace.call import storage_of
from clockwatt.operations.trace.meta import MetaLayouts
from clockwatt.operations.trace.trace import Build, checkpoints_replaced, know_masks, module_paths, on_meta
from clockwatt.operations.trace.tracer import Tracer, UntraceableError
from clockwatt.schema.execution import CUDA_GRAPH, TF32, mode_of_variant
from clockwatt.schema.records import (
    ACTIVATIONS,
    CAPTURE,
    CUBLAS,
    CUBLASLT,
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    STREAM,
    TEMPORARY,
    TRAINING,
    UNCOMPILED,
    WORKSPACE,
    MemoryRow,
)

if TYPE_CHECKING:
    from clockwatt.operations.trace.compiled_memory import Function

_META = torch.device("meta")
_PASSES = 2
_aten = torch.ops.aten
_CONVOLUTIONS = {_aten.convolution.default: False, _aten.convolution_backward.default: True}
"""Calls of convolutions, and whether each is a backward pass."""
_ATTENTION = (
    _aten._scaled_dot_product_flash_attention_backward.default,
    _aten._scaled_dot_product_efficient_attention_backward.default,
)
_MATRIX_PRODUCTS = frozenset(
    {
        _aten.mm,
        _aten.addmm,
        _aten.bmm,
        _aten.baddbmm,
        _aten.addmv,
        _aten.mv,
    }
)
_RECURRENT = {torch.lstm: "lstm", torch.gru: "gru", torch.rnn_tanh: "rnn", torch.rnn_relu: "rnn"}


class Storages(TorchDispatchMode):
    """Record each storage on meta when it appears and when the last reference to it goes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as PyTorch declares it
        self.events: list[MemoryRow] = []
        self.kind = PARAMETERS
        self.paused = False
        self.module: Callable[[], str] = str
        self._alive: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._handles: set[tuple[str, bool]] = set()

    def add(self, tensors: Iterable[torch.Tensor], module: str | None = None) -> None:
        """Record the storages of tensors that are not known yet."""
        for tensor in tensors:
            if tensor.is_meta and storage_of(tensor) not in self._alive:
                self._add(tensor.untyped_storage(), self.module() if module is None else module)

    def _add(self, storage: torch.UntypedStorage, module: str) -> None:
        address, number = storage._cdata, self.allocated(storage.nbytes(), self.kind, module)

        def freed(_reference: object) -> None:
            self._alive.pop(address, None)
            self.freed(number)

        self._alive[address] = number, weakref.ref(storage, freed)

    def allocated(self, size: int, kind: str, module: str, description: Mapping[str, Any] | None = None) -> int:
        """Record an allocation and return its number; what has a description has no size yet."""
        number = len(self.events)
        text = None if description is None else json.dumps(description, sort_keys=True, separators=(",", ":"))
        self.events.append(MemoryRow(number, size, kind, module, text))
        return number

    def freed(self, number: int) -> None:
        """Record that an allocation is freed."""
        self.events.append(MemoryRow(number, None, self.events[number].kind, self.events[number].module_path))

    def workspace(self, description: Mapping[str, Any]) -> None:
        """Record a call that allocates memory of its own and frees it at its end."""
        self.freed(self.allocated(0, WORKSPACE, self.module(), description))

    def begin_stream(self, kind: str) -> None:
        """Record that another stream runs from here on, with its own workspaces: `STREAM`, or `CAPTURE` of a graph."""
        self._handles.clear()
        self.allocated(0, WORKSPACE, "", {"kind": kind})

    def _handle(self, kind: str) -> None:
        """Record the workspace of a library, which each thread allocates once."""
        in_backward = self.kind == TEMPORARY  # which runs in a thread of its own
        if (kind, in_backward) not in self._handles:
            self._handles.add((kind, in_backward))
            self.allocated(0, WORKSPACE, "", {"kind": kind})

    def uncompiled(self) -> None:
        """Record that the pass is compiled, though its allocations are those of the eager one."""
        self.allocated(0, WORKSPACE, "", {"kind": UNCOMPILED})

    def relabel(self, tensors: Iterable[torch.Tensor], kind: str, module: str) -> None:
        """Give what these tensors, which are alive, lie in another kind, and to a module."""
        for tensor in tensors:
            if (entry := self._alive.get(storage_of(tensor))) is not None:
                self.events[entry[0]].kind, self.events[entry[0]].module_path = kind, module

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `func` and record what it allocates, unless paused."""
        with torch._C.DisableTorchFunction():  # what the backward pass calls is no call of the network's
            result = func(*args, **(kwargs or {}))
            if not self.paused:
                self._take(func, args, result)
            return result

    def _take(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Record what a call has allocated, and its workspaces."""
        self.add(tensors_in(result))
        if getattr(func, "overloadpacket", None) in _MATRIX_PRODUCTS:
            self._handle(CUBLAS)
            if func is _aten.addmm.default and args[0].dim() == 1:  # a bias, which cuBLASLt adds
                self._handle(CUBLASLT)
        if func is _aten.sum.dim_IntList and (leading := len(args[1] or ())) < args[0].dim():
            x = args[0]
            if list(args[1]) == list(range(leading)) and x.is_contiguous():
                rows = math.prod(x.shape[:leading])
                self.workspace({"kind": "column_sum", "rows": rows, "columns": math.prod(x.shape[leading:])})
        if func in _CONVOLUTIONS:
            self.workspace(_convolution(args, result, backward=_CONVOLUTIONS[func]))
        elif func in _ATTENTION:
            query, key = args[1], args[2]
            self.workspace({"kind": "attention", "dtype": dtype_name(query.dtype), "query": list(query.shape),
                            "key": list(key.shape)})  # fmt: skip


def _convolution(args: tuple[Any, ...], result: Any, *, backward: bool) -> dict[str, Any]:
    """Describe a convolution by what its workspace depends on."""
    if backward:
        y, x, weight, _, stride, padding, dilation, transposed, _, groups, mask = args[:11]
    else:
        (x, weight, _, stride, padding, dilation, transposed, _, groups), y, mask = args[:9], result, None
    return {
        "kind": "convolution", "dtype": dtype_name(x.dtype), "x": list(x.shape), "weight": list(weight.shape),
        "y": list(y.shape), "stride": list(stride), "padding": list(padding), "dilation": list(dilation),
        "transposed": transposed, "groups": groups, "channels_last": x.dim() > 2 and x.stride(1) == 1 < x.shape[1],
        "gradients": None if mask is None else [bool(wanted) for wanted in mask],
    }  # fmt: skip


class _Scalars(TorchDispatchMode):
    """Gives 1 for the scalars that an optimizer reads on the CPU."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return 1.0 if func is _aten._local_scalar_dense.default else func(*args, **(kwargs or {}))


class _Follower(Tracer):
    """Lets the calls of a network run on meta as `Tracer` does, and keeps none of their tensors."""

    def __init__(self, storages: Storages, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._storages = storages
        storages.module = lambda: self._stack[-1] if self._stack else ""

    def _listed(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002  # as `Tracer` calls it
        """Run a call, and follow the values that it gives."""
        given = tensors_in((args, kwargs))
        versions = [tensor._version for tensor in given]
        result = self._run(_AS_ON_CUDA.get(func, func), args, kwargs)
        if func in _RECURRENT:
            self._recurrent(_RECURRENT[func], args, tensors_in(result))
        changed = [tensor for tensor, version in zip(given, versions, strict=True) if tensor._version != version]
        self._values.follow(func, args, kwargs, result, changed)
        return result

    def _under_autocast(
        self, dtype: torch.dtype, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a call as autocast casts them; `cross_entropy` casts by itself."""
        if func is torch.nn.functional.cross_entropy:
            return args, kwargs | {"cast": True}
        return super()._under_autocast(dtype, func, args, kwargs)

    def checkpoint(self, run: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a checkpoint, which computes again under the autocast of its first run."""
        dtype = self.autocast[-1]

        def followed(*given: Any, **by_keyword: Any) -> Any:
            if self._storages.kind != TEMPORARY:
                return function(*given, **by_keyword)
            self.enter_autocast(dtype)
            with torch._C._EnableTorchFunction(), self, _META:
                found = function(*given, **by_keyword)
            self.leave_autocast()
            return found

        return run(followed, *args, **kwargs)

    def _recurrent(self, kind: str, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> None:
        """Record a recurrent layer, and in training what cuDNN keeps from it for the backward pass."""
        x, output, weights = args[0], outputs[0], [one for one in args[2] if isinstance(one, torch.Tensor)]
        if len(args) != 9 or x.dim() != 3:
            return
        batch, length = x.shape[:2] if args[8] else (x.shape[1], x.shape[0])
        described = {
            "kind": kind, "dtype": dtype_name(x.dtype), "batch": batch, "length": length, "layers": args[4],
            "bidirectional": args[7], "batch_first": args[8], "input": x.shape[-1], "output": output.shape[-1],
            "weight": sum(one.numel() for one in weights),
        }  # fmt: skip
        module = self._storages.module()
        workspace = self._storages.allocated(0, WORKSPACE, module, described)
        if output.grad_fn is None:
            self._storages.freed(workspace)
            return
        reserve = self._storages.allocated(0, ACTIVATIONS, module, described | {"reserve": True})
        self._storages.freed(workspace)  # which `_cudnn_rnn` holds while it allocates the reserve

        kept = [output.untyped_storage()]  # which the backward pass reads

        def release(*_gradients: object) -> None:
            self._storages.workspace(described)
            self._storages.freed(reserve)
            kept.clear()

        output.grad_fn.register_hook(release)


def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:  # noqa: A002  # as PyTorch calls it
    """Dropout as CUDA runs it: one kernel, which keeps a mask of one byte an element."""
    if training and not inplace and 0 < p < 1 and input.numel():
        return torch.native_dropout(input, p, True)[0]
    return torch.dropout(input, p, training) if not inplace else torch.dropout_(input, p, training)


def cross_entropy(
    input: torch.Tensor, target: torch.Tensor, *args: Any, cast: bool = False, **kwargs: Any  # noqa: A002  # likewise
) -> torch.Tensor:  # fmt: skip
    """Cross-entropy; under autocast (`cast`) the logarithms keep their dtype, and their mean is in float32."""
    if not cast:
        return torch.nn.functional.cross_entropy(input, target, *args, **kwargs)
    if args or target.is_floating_point() or input.element_size() == 4:
        return torch.nn.functional.cross_entropy(input.float(), target, *args, **kwargs)
    kwargs.pop("label_smoothing", None)
    logarithms = torch.log_softmax(input, min(1, input.dim() - 1))
    return torch.nn.functional.nll_loss(logarithms.float(), target, **kwargs)


_AS_ON_CUDA: dict[object, Callable[..., Any]] = {
    torch.nn.functional.dropout: dropout, torch.nn.functional.cross_entropy: cross_entropy
}  # fmt: skip


@numerics.applied(TF32)
def record_memory(
    network: NetworkConfig, pass_: str, training: TrainingConfig, build: Build | None = None
) -> list[MemoryRow]:
    """Record what a pass allocates and frees, that of the eager pass where a compiled graph breaks.

    Parameters are those of `trace_network`.

    Raises
    ------
    NetworkError
        If the network cannot be found, built or run on its input.
    """
    learns = pass_ == TRAINING
    values = KnownValues()
    module, given = on_meta(network, values, build, training=learns)
    know_masks(values, network, given)
    storages = Storages()
    tracer = _Follower(storages, module, network, values, grad=learns)
    tracer.takes(given.values(), [one.below for one in network.by_keyword.values()])
    for path, part in module.named_modules():
        storages.add((*part.parameters(recurse=False), *part.buffers(recurse=False)), path)
    storages.kind = INPUTS
    storages.add(given.values(), "")
    try:
        forward = None
        if network.execution[0].compiled:
            try:
                forward = _compiled(module, network, values, given, learns=learns)
            except UntraceableError:  # a graph that breaks at a branch on data
                storages.uncompiled()
        with (
            MetaLayouts(),
            storages,
            torch.set_grad_enabled(learns),
            module_paths(tracer),
            contexts_followed(tracer.enter_autocast, tracer.leave_autocast),
            checkpoints_replaced(tracer.checkpoint),
            set_checkpoint_early_stop(False),  # an exception, which would be a fault of the network
        ):
            run = _Pass(module, network, given, tracer, storages, training if learns else None, forward)
            captured = mode_of_variant(network.variant) == CUDA_GRAPH
            if captured:
                storages.begin_stream(STREAM)
            for _ in range(_PASSES):
                run()
            if captured:
                storages.begin_stream(CAPTURE)
                run()
            run.label_gradients()  # they are alive until the next pass begins
    except NetworkError:
        raise
    except FAULTS as error:
        raise NetworkError(
            f"network {network.name}: its memory cannot be predicted ({summary(error)}). Its time and energy can."
        ) from error
    return storages.events[:]


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _compiled(
    module: torch.nn.Module,
    network: NetworkConfig,
    values: KnownValues,
    given: Mapping[str, torch.Tensor],
    *,
    learns: bool,
) -> Function:
    """Return what torch.compile makes of a network's forward pass."""
    from clockwatt.operations.trace.compiled_memory import compiled  # imports TorchInductor, which takes seconds

    state = _state(module)
    tracer = _Follower(Storages(), module, network, values, grad=learns)
    autocast = network.execution[0].autocast

    def forward(*tensors: torch.Tensor) -> list[torch.Tensor]:
        lifted = dict(zip(state, tensors[: len(state)], strict=True))
        inputs = dict(zip(given, tensors[len(state) :], strict=True))
        for name, tensor in (*lifted.items(), *inputs.items()):
            values.follow_copy(tensor, state[name] if name in lifted else given[name])
        positional, by_keyword = arranged(inputs)
        with contexts_followed(tracer.enter_autocast, tracer.leave_autocast):
            tracer.enter_autocast(None if autocast is None else dtype_of(autocast))
            with tracer, _META:
                found = torch.func.functional_call(module, lifted, tuple(positional), by_keyword)
            tracer.leave_autocast()
        scores = floating_outputs(found)
        return [*scores, *(one for one in tensors_in(found) if all(one is not score for score in scores))]

    with torch.set_grad_enabled(learns), module_paths(tracer):
        return compiled(forward, [*state.values(), *given.values()], len(state))


class _Pass:
    """One pass at a time: forward in inference; forward, loss, backward and the optimizer's step in training."""

    def __init__(
        self, module: torch.nn.Module, network: NetworkConfig, given: Mapping[str, torch.Tensor], tracer: Tracer,
        storages: Storages, training: TrainingConfig | None, forward: Function | None,
    ) -> None:  # fmt: skip
        self._compiled = forward
        self._tensors = (*_state(module).values(), *given.values())
        self._module, self._tracer, self._storages = module, tracer, storages
        self._modules = {
            one: path for path, part in module.named_modules() for one in part.parameters(recurse=False)
        }  # fmt: skip
        self._positional, self._by_keyword = arranged(given)
        self._loss, self._first = Loss(network, _META, 0, "auto" if training is None else training.loss), True
        autocast = network.execution[0].autocast
        self._dtype = None if autocast is None else dtype_of(autocast)
        self._optimizer, self._batches = None, 1
        if training is not None:
            self._batches = min(2, training.accumulate)  # gradients of the first stay alive in all others
            self._optimizer = optimizers.make(training, module.parameters(), as_on_cuda=True)

    def __call__(self) -> None:
        """Run it and drop what it gives."""
        storages, optimizer = self._storages, self._optimizer
        if optimizer is None:
            with self._autocast():
                self._forward()
            return
        self.label_gradients()
        optimizer.zero_grad(set_to_none=True)
        for _ in range(self._batches):
            self.label_gradients()
            with self._autocast():
                value = self._loss_of(self._forward())
            storages.kind = TEMPORARY
            with torch._C.DisableTorchFunction():
                torch.autograd.Variable._execution_engine.run_backward(
                    (value,), (torch.ones_like(value),), False, False, (), allow_unreachable=True, accumulate_grad=True
                )
                del value
        with torch._C.DisableTorchFunction(), _Scalars():  # type: ignore[no-untyped-call]  # as PyTorch declares it
            optimizer.step()
        for parameter, module in self._modules.items():
            if parameter in optimizer.state:
                states = tensors_in(list(optimizer.state[parameter].values()))
                storages.relabel(states, OPTIMIZER_STATE, module)

    def label_gradients(self) -> None:
        """Give the gradients of parameters to their modules."""
        for parameter, module in self._modules.items():
            if parameter.grad is not None:
                self._storages.relabel([parameter.grad], GRADIENTS, module)

    @contextlib.contextmanager
    def _autocast(self) -> Iterator[None]:
        """Run under autocast if the network does."""
        self._tracer.enter_autocast(self._dtype)
        yield
        self._tracer.leave_autocast()

    def _forward(self) -> Any:
        self._storages.kind = ACTIVATIONS
        if self._compiled is not None:
            return self._compiled(*self._tensors)
        with self._tracer, _META:
            return self._module(*self._positional, **self._by_keyword)

    def _loss_of(self, outputs: Any) -> torch.Tensor:
        with self._tracer, _META:
            if self._first:
                self._storages.kind, self._first = INPUTS, False
                self._loss.prepare(outputs)
                self._storages.kind = ACTIVATIONS
            return self._loss(outputs)
