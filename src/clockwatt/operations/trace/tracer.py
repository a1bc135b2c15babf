"""The mode that intercepts calls of public PyTorch functions and writes each down."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from clockwatt.config import NetworkConfig
from clockwatt.errors import IndexBeyondEndError
from clockwatt.operations.build.values import argument, ignored_index, index_bounds
from clockwatt.operations.known_values import KnownValues, evenly_spread
from clockwatt.operations.networks import FAULTS, NetworkError
from clockwatt.operations.spec import functions
from clockwatt.operations.spec.encode import NotEncodableError, dtype_name, tensors_in
from clockwatt.operations.spec.operation import Operation
from clockwatt.operations.trace.autocast import Autocast
from clockwatt.operations.trace.call import InterceptedCall, storage_of
from clockwatt.operations.trace.gradients import GradientGraph
from clockwatt.operations.trace.meta import fused, restricts_attention
from clockwatt.operations.trace.recurrent import is_packed
from clockwatt.operations.trace.refusals import cause, line_of_network

FORWARD = "forward"
LOSS = "loss"


def _entered(composite: Any) -> types.FunctionType:
    """Copy a function so that it sees no active mode to defer to; otherwise it would call itself without end."""
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    told = composite.__globals__ | dict.fromkeys(checks, lambda *tensors: False)  # noqa: ARG005  # as PyTorch's
    copy = types.FunctionType(
        composite.__code__, told, composite.__name__, composite.__defaults__, composite.__closure__
    )
    copy.__kwdefaults__ = composite.__kwdefaults__
    return copy


_COMPOSITES = {
    composite: _entered(composite)
    for composite in (
        torch.nn.functional.multi_head_attention_forward,  # it would hide linears and attention
        torch.nn.functional.gaussian_nll_loss,  # branches on its variances
        torch.nn.functional.triplet_margin_with_distance_loss,  # takes a function
    )
}
"""Functions that are no operations, but run as the calls that they make."""

_BRANCHES = (torch.Tensor.__bool__, torch.Tensor.__contains__, torch.Tensor.is_nonzero, torch.is_nonzero)


class UntraceableError(NetworkError):
    """A network makes a call that cannot be traced; the message names the call and the module."""


@dataclass(slots=True)
class Recorded:
    """A call, as it was intercepted; gradients arrive later."""

    operation: Operation
    kind: str  # compute, view or identity
    phase: str
    module_path: str
    tensors_in: list[int]
    tensors_out: list[int]
    grad_out: list[tuple[int, ...] | None]


_OF_ONE_DTYPE = frozenset(
    {
        *("linear", "matmul", "rmatmul", "mm", "addmm", "conv1d", "conv2d", "conv3d"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    }
)
"""Operation classes that run on meta with tensors of several dtypes, but on no device."""


class Tracer(TorchFunctionMode):
    """Writes down every call that takes or gives tensors, and lets it run on meta.

    Parameters
    ----------
    module
        The network, on meta.
    network
        For its name, and what it says about branches that depend on data.
    values
        Of buffers.
    grad
        Whether this is a training pass.
    """

    def __init__(
        self, module: torch.nn.Module, network: NetworkConfig, values: KnownValues | None = None, *, grad: bool
    ) -> None:
        super().__init__()
        self.name = network.name
        self.named = f"network {network.name}"
        self.phase = FORWARD
        self.recorded: list[Recorded] = []
        self.graph = GradientGraph()
        self.module_calls = 0
        self.assumed_branches: list[str] = []
        shapes = [f"{name} {one.shape}".strip() for name, one in network.by_keyword.items()]
        self.fitting = f"Check that it takes an input of shape {', '.join(shapes)}."
        self.autocast: list[torch.dtype | None] = [None]
        self._autocast = Autocast()
        self._cast_weights: dict[tuple[int, bool], torch.Tensor] = {}
        self._values = KnownValues() if values is None else values
        self._branch = network.data_dependent_branch
        self._grad = grad
        for path, tensor in module.named_buffers():
            if tensor.layout is not torch.strided:
                raise UntraceableError(f"network {self.name}: buffer {path!r} is sparse. Keep it as a dense tensor.")
        self._paths = {id(part): path for path, part in module.named_modules()}
        self._stack: list[str] = []
        self._innermost = ""
        state = (*module.parameters(), *module.buffers())
        self._state_storages = {storage_of(tensor) for tensor in state}
        self._inputs = set[int]()  # storages of the network's inputs
        self._ids_below: dict[int, int] = {}  # storages of the network's inputs that are indices
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = [state]  # a tensor's id and its storage's address stay its own while it lives

    def takes(self, inputs: Iterable[torch.Tensor], below: Iterable[int | None]) -> None:
        """Know the network's inputs, and what those that are indices stay below."""
        for tensor, bound in zip(inputs, below, strict=True):
            self._alive.append(tensor)
            self._inputs.add(storage_of(tensor))
            if bound is not None:
                self._ids_below[storage_of(tensor)] = bound

    def enter(self, module: torch.nn.Module, args: Any = ()) -> Any:  # noqa: ARG002  # for tracers that change them
        """A module's forward begins; gives its arguments, or None to leave them."""
        self.module_calls += 1
        self._stack.append(self._paths.get(id(module), self._stack[-1] if self._stack else ""))

    def leave(self) -> None:
        """The innermost module's forward ends."""
        self._innermost = self._stack.pop()

    def place(self) -> str:
        """The module that is running, or that ran last, for messages."""
        path = self._stack[-1] if self._stack else self._innermost
        return f"module {path!r}" if path else "the network itself"

    def number_of(self, tensor: torch.Tensor) -> int:
        """Number of a tensor within this trace."""
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self._numbers)
            self._alive.append(tensor)
        return self._numbers[id(tensor)]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a call and write it down."""
        kwargs = dict(kwargs or {})
        if func in _COMPOSITES:
            with self:
                return _COMPOSITES[func](*args, **kwargs)
        if func in _BRANCHES:
            return self._decide(func, args, kwargs)
        if is_packed(func, args, kwargs):
            raise self.refusal("packs sequences, or takes packed ones", "Give its recurrent layers padded ones.")
        if func is torch.Tensor.__format__ and (text := self._values.compute(func, args, kwargs)) is not None:
            self._note(text.assumptions)
            return text.result
        name = functions.name_of(func)
        if name is None:
            return self._run_unlisted(func, args, kwargs)
        if func is torch._grouped_mm:
            self._note([evenly_spread(kwargs["offs"].shape[0])] if kwargs.get("offs") is not None else [])
        if func is torch.nn.functional.scaled_dot_product_attention and restricts_attention():
            self._note(["attention takes the kernel that PyTorch chooses where all are allowed"])
        if self.autocast[-1] is not None:
            args, kwargs = self._under_autocast(self.autocast[-1], func, args, kwargs)
        operation_class = Operation(name).operation_class
        if operation_class in _OF_ONE_DTYPE:
            self._check_dtypes(func, args, kwargs)
        result = self._listed(name, func, args, kwargs)
        if operation_class != "grouped_mm":  # whose groups end at the end of a dimension
            self._check_indices(func, operation_class, args, kwargs)
        return result

    def _listed(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call that operations have a name for, and write it down."""
        try:
            call = InterceptedCall(
                name, args, kwargs, grad=self._grad, is_state=self._is_state, value_of=self._values.of
            )
            result = self._run(func, args, kwargs)
            changed = call.changed()
            self._values.follow(func, args, kwargs, result, [call.given[number] for number in changed])
            outputs = tensors_in(result) or [call.given[number] for number in changed]
            if outputs:
                self._record(call, outputs, changed)
        except NotEncodableError as error:
            raise self.refusal(
                f"{functions.described(func)} takes or gives {error}, which an operation cannot keep",
                "Give the part of the network without it.",
            ) from error
        return result

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            given = fused(func, args, kwargs)
            return func(*args, **kwargs) if given is None else given
        except NetworkError:
            raise
        except FAULTS as error:
            answered = self._values.answer(func, args, kwargs)
            if answered is not None:
                self._note(answered.assumptions)
                return answered.result
            what, fix = cause(error, func, self._fix_of_ids(func, args, kwargs) or self.fitting)
            raise self.refusal(f"{functions.described(func)} {what}", fix) from error

    def _fix_of_ids(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The fix where an embedding is given an input of the network that should be token ids."""
        if func is not torch.nn.functional.embedding:
            return None
        ids, weight = (argument(args, kwargs, place) for place in ((0, "input"), (1, "weight")))
        if not (isinstance(ids, torch.Tensor) and ids.is_floating_point() and storage_of(ids) in self._inputs):
            return None
        shape, rows = ",".join(map(str, ids.shape)), len(weight)
        return (
            f"It takes token ids: give `--input {shape}:int64:{rows}` (shape, dtype, what ids are below), or "
            f"`input_dtype: int64` and `input_below: {rows}`."
        )

    def _run_unlisted(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.Tensor.__iter__ and self._values.of(args[0]) is not None:
            with self:
                return iter(args[0].unbind())
        if func in (torch.autograd.grad, torch.Tensor.backward):
            raise self.refusal(
                f"{functions.described(func)} computes gradients, which clockwatt cannot trace",
                "Predict training (`--pass training`, `training=True`) of the module that it differentiates.",
            )
        result = self._run(func, args, kwargs)
        if any(tensor.is_meta for tensor in tensors_in(result)):
            raise self.refusal(
                f"{functions.described(func)} is no public function of PyTorch",
                "Give the part of the network without it.",
            )
        return result

    def _record(self, call: InterceptedCall, outputs: list[torch.Tensor], changed: list[int]) -> None:
        position = len(self.recorded)
        entry = Recorded(
            call.operation(outputs, changed),
            call.kind(outputs, changed),
            self.phase,
            self._stack[-1] if self._stack else "",
            [self.number_of(tensor) for tensor in call.given],
            [self.number_of(tensor) for tensor in outputs],
            [None] * len(outputs),
        )
        self.recorded.append(entry)
        if not self._grad or _recomputes():
            return
        self.graph.add(position, outputs)
        if entry.kind != "identity" and torch.is_grad_enabled():
            for number, output in enumerate(outputs):
                if output.grad_fn is not None:
                    output.register_hook(functools.partial(_note_gradient, entry.grad_out, number))

    def _decide(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Where a branch on a tensor goes: by its values, or as the network's configuration assumes."""
        known = self._values.compute(func, args, kwargs)
        if known is not None:
            self._note(known.assumptions)
            return bool(known.result)
        if self._branch == "refuse":
            raise self.refusal(
                f"{functions.described(func)} decides a branch by the values of data",
                'Give its outcome, `data_dependent_branch: "true"` or "false" (`--assume-branch` in '
                "commands, `assume_branch` in Python), or remove it.",
            )
        self._note([self._branch], again=True)
        return self._branch == "true"

    def _note(self, assumptions: Iterable[str], *, again: bool = False) -> None:
        for text in assumptions:
            entry = f"{self._stack[-1] if self._stack else ''}: {text}"
            if again or entry not in self.assumed_branches:
                self.assumed_branches.append(entry)

    def _under_autocast(
        self, dtype: torch.dtype, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a call as autocast casts them; each cast is a call of its own, that of a trained weight once."""
        casts = self._autocast.of(dtype, func, args, kwargs)
        if casts is None:
            return args, kwargs
        leaves, structure = tree_flatten((args, kwargs))
        for number, to in enumerate(casts.dtypes):
            if to is not None:
                leaves[number] = self._cast(leaves[number], to, keep=to == dtype)
        args, kwargs = tree_unflatten(leaves, structure)
        return args, kwargs if casts.result is None else {**kwargs, "dtype": casts.result}

    def _cast(self, tensor: torch.Tensor, dtype: torch.dtype, *, keep: bool) -> torch.Tensor:
        is_weight = tensor.dtype == torch.float32 and tensor.requires_grad and tensor.is_leaf and not tensor._is_view()
        key = id(tensor), torch.is_grad_enabled()  # what is recomputed for the backward pass is cast again
        kept = keep and is_weight and self._grad  # under `torch.inference_mode` none is
        if kept and key in self._cast_weights:
            return self._cast_weights[key]
        with self:
            cast = tensor.to(dtype)
        if kept:
            self._cast_weights[key] = cast
            self._alive.append(tensor)
        return cast

    def enter_autocast(self, dtype: torch.dtype | None) -> None:
        """Autocast to `dtype` begins; None: it is disabled."""
        self.autocast.append(dtype)

    def leave_autocast(self) -> None:
        """The innermost autocast ends; with the outermost, PyTorch forgets the weights that it has cast."""
        self.autocast.pop()
        if len(self.autocast) == 1:
            self._cast_weights.clear()

    def _check_dtypes(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Refuse a product of tensors of several dtypes, which PyTorch checks on a device only."""
        dtypes = dict.fromkeys(dtype_name(tensor.dtype) for tensor in tensors_in((args, kwargs)))
        if len(dtypes) > 1:
            raise self.refusal(
                f"{functions.described(func)} takes tensors of several dtypes, {' and '.join(dtypes)}",
                "Give the input in the dtype of the weights, or cast one of them.",
            )

    def _check_indices(
        self, func: Callable[..., Any], operation_class: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Refuse indices, as far as they are known, that lie beyond the end of a dimension."""
        for indices, size in index_bounds(operation_class, args, kwargs):
            below = self._ids_below.get(storage_of(indices))
            if below is not None and below > size:
                raise self.refusal(
                    f"{functions.described(func)} is given token ids below {below}, but has {size} rows",
                    f"Give ids below that: `input_below` or `below` (--input SHAPE:int64:{size}).",
                )
            highest = self._values.highest(indices, without=ignored_index(operation_class, args, kwargs))
            if highest is not None and highest >= size:
                error = self.refusal(
                    f"{functions.described(func)} reads index {highest} of a dimension of size {size}",
                    "Give a shorter input or smaller indices, or make that dimension larger.",
                )
                raise IndexBeyondEndError(str(error))

    def refusal(self, what: str, fix: str, error: BaseException | None = None) -> UntraceableError:
        """The error that says what is wrong, in which line of the network's code and in which module, and the fix."""
        place = ", ".join(part for part in (line_of_network(error), self.place()) if part)
        return UntraceableError(f"{self.named}: {what} ({place}). {fix}")

    def _is_state(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a parameter or buffer of the network, or a view of one."""
        return storage_of(tensor) in self._state_storages


def _recomputes() -> bool:
    """Whether a checkpoint computes again what it did not keep: its nodes, if kept here, would keep its tensors."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and hooks[0].__qualname__.startswith("_recomputation_hook")


def _note_gradient(strides: list[tuple[int, ...] | None], number: int, gradient: torch.Tensor | None) -> None:
    if gradient is not None:  # nothing uses this output of several
        strides[number] = tuple(gradient.stride())
