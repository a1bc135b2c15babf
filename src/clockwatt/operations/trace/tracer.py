"""The mode that intercepts calls of public PyTorch functions and writes each down."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from clockwatt.config import NetworkConfig
from clockwatt.operations.build.values import argument
from clockwatt.operations.known_values import KnownValues, evenly_spread
from clockwatt.operations.networks import FAULTS, NetworkError, summary
from clockwatt.operations.spec import functions
from clockwatt.operations.spec.encode import NotEncodableError, tensors_in
from clockwatt.operations.spec.operation import Operation
from clockwatt.operations.trace.call import InterceptedCall, storage_of
from clockwatt.operations.trace.gradients import GradientGraph
from clockwatt.operations.trace.meta import fused
from clockwatt.operations.trace.recurrent import is_packed

FORWARD = "forward"
LOSS = "loss"

_multi_head_attention = torch.nn.functional.multi_head_attention_forward

# The one composite function that is entered: it would hide linears and attention. Under a mode it calls itself for
# ever, so this copy of it is told that there is no mode to defer to.
_entered_attention = types.FunctionType(
    _multi_head_attention.__code__,
    {**_multi_head_attention.__globals__, "has_torch_function": lambda arguments: False},  # noqa: ARG005  # as PyTorch's
    _multi_head_attention.__name__,
    _multi_head_attention.__defaults__,
    _multi_head_attention.__closure__,
)
_entered_attention.__kwdefaults__ = _multi_head_attention.__kwdefaults__

_BRANCHES = (torch.Tensor.__bool__, torch.Tensor.is_nonzero, torch.is_nonzero)
_AUTOCAST_DEVICES = ("cpu", "cuda")


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


_FITTING = "The network's input must fit it, and what it gives, or its shape, must not depend on the values of tensors."
_TOKENS = (
    "It takes token ids: say what they are below with the network's `input_dtype: int64` and `input_below` (each with "
    "`inputs` by its own), typed --input-below, or NAME=SHAPE:int64:BELOW."
)


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
        self.phase = FORWARD
        self.recorded: list[Recorded] = []
        self.graph = GradientGraph()
        self.module_calls = 0
        self.assumed_branches: list[str] = []
        self._values = KnownValues() if values is None else values
        self._branch = network.data_dependent_branch
        self._grad = grad
        self._paths = {id(part): path for path, part in module.named_modules()}
        self._stack: list[str] = []
        self._innermost = ""
        state = (*module.parameters(), *module.buffers())
        self._state_storages = {storage_of(tensor) for tensor in state}
        self._ids_below: dict[int, int] = {}  # storages of the network's inputs that are indices
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = [state]  # a tensor's id and its storage's address stay its own while it lives

    def takes(self, inputs: Iterable[torch.Tensor], below: Iterable[int | None]) -> None:
        """Know the network's inputs, and what those that are indices stay below."""
        for tensor, bound in zip(inputs, below, strict=True):
            self._alive.append(tensor)
            if bound is not None:
                self._ids_below[storage_of(tensor)] = bound

    def enter(self, module: torch.nn.Module) -> None:
        """A module's forward begins."""
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
        if func is _multi_head_attention:
            with self:
                return _entered_attention(*args, **kwargs)
        if func in _BRANCHES:
            return self._decide(func, args, kwargs)
        if is_packed(func, args, kwargs):
            raise UntraceableError(
                f"network {self.name}: {self.place()} packs sequences, or takes packed ones, whose lengths are not "
                "known without data. Give its recurrent layers padded ones, as a tensor."
            )
        name = functions.name_of(func)
        if name is None:
            return self._run_unlisted(func, args, kwargs)
        if func is torch._grouped_mm:
            self._note([evenly_spread(kwargs["offs"].shape[0])] if kwargs.get("offs") is not None else [])
        if func is torch.nn.functional.embedding:
            self._check_ids(func, *(argument(args, kwargs, place) for place in ((0, "input"), (1, "weight"))))
        try:
            call = InterceptedCall(
                name, args, kwargs, grad=self._grad, is_state=self._is_state, value_of=self._values.of
            )
            result = self._run(func, args, kwargs)
            changed = call.changed()
            self._values.follow(func, args, kwargs, result, [call.given[number] for number in changed])
            outputs = list(tensors_in(result)) or [call.given[number] for number in changed]
            if outputs:
                self._check_autocast(func)
                self._record(call, outputs, changed)
        except NotEncodableError as error:
            raise UntraceableError(f"{self._at(func)} involves {error}, which an operation cannot keep.") from error
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
            floats = args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point()
            raise UntraceableError(
                f"{self._at(func)} fails without data ({summary(error)}). "
                f"{_TOKENS if func is torch.nn.functional.embedding and floats else _FITTING}"
            ) from error

    def _run_unlisted(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.Tensor.__iter__ and self._values.of(args[0]) is not None:
            with self:
                return iter(args[0].unbind())
        result = self._run(func, args, kwargs)
        if any(tensor.is_meta for tensor in tensors_in(result)):
            raise UntraceableError(f"{self._at(func)} is no public PyTorch function that can be measured alone.")
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
        if not self._grad:
            return
        self.graph.add(position, outputs)
        if entry.kind != "identity" and torch.is_grad_enabled():
            for number, output in enumerate(outputs):
                if output.requires_grad:
                    output.register_hook(functools.partial(_note_gradient, entry.grad_out, number))

    def _decide(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Where a branch on a tensor goes: by its values, or as the network's configuration assumes."""
        known = self._values.compute(func, args, kwargs)
        if known is not None:
            self._note(known.assumptions)
            return bool(known.result)
        if self._branch == "refuse":
            raise UntraceableError(
                f"{self._at(func)} decides a branch by the values of a tensor, which are not known without data. "
                'Remove it, or say with the network\'s `data_dependent_branch: "true"` (or "false"), typed '
                "--assume-branch, where it goes."
            )
        self._note([self._branch], again=True)
        return self._branch == "true"

    def _note(self, assumptions: Iterable[str], *, again: bool = False) -> None:
        for text in assumptions:
            entry = f"{self._stack[-1] if self._stack else ''}: {text}"
            if again or entry not in self.assumed_branches:
                self.assumed_branches.append(entry)

    def _check_autocast(self, func: Callable[..., Any]) -> None:
        if any(torch.is_autocast_enabled(device) for device in _AUTOCAST_DEVICES):
            raise UntraceableError(
                f"{self._at(func)} runs under autocast, which has no effect without data. "
                "Remove it and give the network's `dtype`: casts are then explicit."
            )

    def _check_ids(self, func: Callable[..., Any], ids: torch.Tensor, weight: torch.Tensor) -> None:
        """Refuse token ids that the embedding has no rows for; only the network's own inputs are known to be some."""
        below = self._ids_below.get(storage_of(ids))
        if below is not None and below > len(weight):
            raise UntraceableError(
                f"{self._at(func)} is given token ids below {below}, but it has {len(weight)} rows. "
                f"Give what ids are below as the network has it (`input_below` or `below`, typed --input-below "
                f"{len(weight)})."
            )

    def _at(self, func: Callable[..., Any]) -> str:
        return f"network {self.name}: {functions.described(func)}, called in {self.place()},"

    def _is_state(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a parameter or buffer of the network, or a view of one."""
        return storage_of(tensor) in self._state_storages


def _note_gradient(strides: list[tuple[int, ...] | None], number: int, gradient: torch.Tensor | None) -> None:
    if gradient is not None:  # nothing uses this output of several
        strides[number] = tuple(gradient.stride())
