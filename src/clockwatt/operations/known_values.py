"""Values of tensors on the meta device that follow from constants: ranges, masks, shapes, buffers.

A small tensor on meta that is computed from constants has a copy of its values on the CPU. What a network reads from it
(a branch, `.item()`, `.nonzero()`) is then answered as on a GPU. Values of inputs and parameters are unknown. A few
results of unknown values are assumed: `KnownValues` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from clockwatt.operations.build.values import argument
from clockwatt.operations.spec.encode import tensors_in

MOST_ELEMENTS = 2**22
"""Of a tensor whose values are kept."""

_FROM_SHAPES = frozenset(
    {
        *(torch.zeros_like, torch.ones_like, torch.full_like, torch.empty_like),
        *(torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full, torch.Tensor.new_empty),
        *(torch.Tensor.new_tensor,),
    }
)
"""Functions that take only shape and dtype of their first argument."""

_NOT_FINITE = (torch.isnan, torch.isinf, torch.Tensor.isnan, torch.Tensor.isinf)
_TO_CPU = (torch.Tensor.cpu, torch.Tensor.to)
"""Functions that fail on meta where they move a tensor to the CPU; there it stays."""
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class _Known:
    """The values of a tensor on meta."""

    value: torch.Tensor
    assumptions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Computed:
    """What a call gives on the CPU, and what was assumed of the values that it was given."""

    result: Any
    assumptions: frozenset[str]


_INITIALISERS = frozenset(
    {
        *(torch.Tensor.fill_, torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.zero_),
        *(torch.nn.init.constant_, torch.nn.init.kaiming_uniform_, torch.nn.init.normal_, torch.nn.init.uniform_),
    }
)
"""Functions that change nothing but the values of their first argument."""


class _RandomError(Exception):
    """A call draws random numbers."""


class _RefuseRandom(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as PyTorch declares it

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise _RandomError
        return func(*args, **(kwargs or {}))


class KnownValues:
    """The values of tensors on meta, as far as they are known; keeps no tensor on meta alive."""

    def __init__(self) -> None:
        self._known: MutableMapping[torch.Tensor, _Known] = WeakIdKeyDictionary()
        # storages of tensors that are known, and whether they were changed in a way that is not known
        self._lost: MutableMapping[torch.UntypedStorage, bool] = WeakIdKeyDictionary()

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The values of a tensor on the CPU, None if they are unknown; a tensor off meta has its own."""
        if not tensor.is_meta:
            return tensor
        known = self._known.get(tensor)
        return None if known is None or self._lost[tensor.untyped_storage()] else known.value

    def highest(self, indices: torch.Tensor, *, without: int | None = None) -> int | None:
        """The highest of indices, but for `without`; None if there are none, they are unknown, assumed or a mask."""
        values = self.of(indices)
        if values is None or values.dtype == torch.bool or self._assumptions([indices]):
            return None
        with _disable_current_modes():
            used = values if without is None else values[values != without]
            return int(used.max()) if used.numel() else None

    def none_in(self, tensor: torch.Tensor) -> bool:
        """Return whether nothing is known of what lies in the storage of a tensor."""
        return tensor.untyped_storage() not in self._lost

    def keep(self, tensor: torch.Tensor, value: torch.Tensor, assumptions: Iterable[str] = ()) -> None:
        """Know a tensor's values, if it is on meta, dense and of the same shape and dtype."""
        if (
            tensor.is_meta
            and tensor.layout is torch.strided
            and tensor.shape == value.shape
            and tensor.dtype == value.dtype
        ):
            self._lost.setdefault(tensor.untyped_storage(), False)
            with _disable_current_modes():
                self._known[tensor] = _Known(value.detach(), frozenset(assumptions))

    def follow_copy(self, copy: torch.Tensor, tensor: torch.Tensor) -> None:
        """Know of a copy what is known of a tensor."""
        if (value := self.of(tensor)) is not None:
            self.keep(copy, value, self._assumptions([tensor]))

    def answer(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Computed | None:
        """What a call that fails on meta gives for known values: Python's values, or tensors on meta; None if unknown.

        Where only the subscript, the mask or the repetitions are known, the call runs with what they select.
        """
        computed = self.compute(func, args, kwargs)
        if computed is not None:
            result = _cloned(computed.result) if func in _TO_CPU else self._on_meta(computed)
            return Computed(result, computed.assumptions)
        if func in (torch.bincount, torch.Tensor.bincount):
            return _counts(args, kwargs)
        selected = self._selected(func, args, kwargs)
        if selected is None:
            return None
        (func, args, kwargs), selectors = selected
        return Computed(func(*args, **kwargs), self._assumptions(selectors))

    def _selected(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The call with what is known of its subscript, mask or repetitions in numbers, and the tensors that say so."""
        if func in (torch.masked_select, torch.Tensor.masked_select):
            given, mask = argument(args, kwargs, (0, "input")), argument(args, kwargs, (1, "mask"))
            func, args, kwargs = torch.Tensor.__getitem__, (given, mask.expand(given.shape)), {}
            self.follow(torch.Tensor.expand, (mask, given.shape), {}, args[1], ())
        if func is torch.Tensor.__getitem__:
            entries = args[1] if isinstance(args[1], tuple) else (args[1],)
            selectors = [one for entry in entries for one in tensors_in(entry)]
            if all(self.of(one) is not None for one in selectors):
                subscript = tuple(number for entry in entries for number in self._numbers(entry))
                return (func, (args[0], subscript), kwargs), selectors
        if func in (torch.repeat_interleave, torch.Tensor.repeat_interleave):
            repeats = argument(args, kwargs, (1, "repeats"))
            values = self.of(repeats) if isinstance(repeats, torch.Tensor) else None
            if values is not None:
                size = int(values.sum()) if values.numel() > 1 else int(values) * args[0].shape[kwargs.get("dim", 0)]
                return (func, args, {**kwargs, "output_size": size}), [repeats]
        return None

    def _numbers(self, entry: Any) -> list[Any]:
        """A subscript's entry as numbers, or as indices on meta for a mask."""
        if isinstance(entry, slice):
            return [self._on_cpu(entry)]
        if not isinstance(entry, torch.Tensor):
            return [entry]
        value = self.of(entry)
        assert value is not None
        if entry.dtype == torch.bool:
            return [indices.to("meta") for indices in value.nonzero(as_tuple=True)]
        return [int(value)] if entry.dim() == 0 else [entry]

    def compute(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Computed | None:
        """Call a function on the CPU, None where it needs values that are unknown, draws random numbers or fails."""
        given = tensors_in((args, kwargs))
        if func in _FROM_SHAPES and given and given[0] is args[0] and self.of(args[0]) is None:
            args, given = (torch.empty((), dtype=args[0].dtype).expand(args[0].shape), *args[1:]), given[1:]
        if any(self.of(tensor) is None for tensor in given):
            return None
        try:
            with _disable_current_modes(), torch.no_grad(), _RefuseRandom():
                result = func(*self._on_cpu(args), **self._on_cpu(dict(kwargs)))
        except Exception:  # noqa: BLE001  # whatever fails here fails where the network calls it, too
            return None
        return Computed(result, self._assumptions(given))

    def _assumptions(self, given: Iterable[torch.Tensor]) -> frozenset[str]:
        return frozenset(text for tensor in given if tensor.is_meta for text in self._known[tensor].assumptions)

    def follow(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        changed: Iterable[torch.Tensor],
    ) -> None:
        """Know what a call gave, or forget what it changed.

        Parameters
        ----------
        func, args, kwargs
            The call, which has run on meta.
        result
            What it gave.
        changed
            Tensors that it changed in place.
        """
        outputs, changed = tensors_in(result), list(changed)
        if outputs or changed:
            with _disable_current_modes():  # those of a compiler take no values
                self._follow(func, args, kwargs, result, outputs, changed)

    def _follow(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any,
        outputs: Sequence[torch.Tensor], changed: Sequence[torch.Tensor],
    ) -> None:  # fmt: skip
        small = all(output.numel() <= MOST_ELEMENTS for output in outputs)
        computed = self.compute(func, args, kwargs) if small else None
        if computed is None:
            self._lost.update((one, True) for tensor in changed if (one := tensor.untyped_storage()) in self._lost)
            if not changed:
                self._assume(func, args, kwargs, result)
            return
        values = tensors_in(computed.result)
        if len(values) == len(outputs):
            views = {tensor.untyped_storage()._cdata for tensor in tensors_in((args, kwargs))}
            for output, value in zip(outputs, values, strict=True):
                self.keep(
                    output, value if output.untyped_storage()._cdata in views else value.clone(), computed.assumptions
                )

    def _assume(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Assume what a call gives for unknown values: finite numbers, and choices spread evenly.

        A router of a mixture of experts chooses experts by `topk` or `argmax`; tokens go to the experts in turn.
        """
        if func in _NOT_FINITE:
            self.keep(result, torch.zeros((), dtype=torch.bool).expand(result.shape), ["values are finite"])
        elif func is torch.rand and result.numel() == 1:  # whether a layer is skipped
            self.keep(result, torch.full_like(result, 0.5, device=_CPU), ["random numbers are 0.5"])
        elif func in (torch.topk, torch.Tensor.topk):
            dim = argument(args, kwargs, (2, "dim"))
            self._spread(result[1], args[0].shape[-1 if dim is None else dim], -1 if dim is None else dim)
        elif func in (torch.argmax, torch.Tensor.argmax):
            dim = argument(args, kwargs, (1, "dim"))
            if dim is not None:
                self._spread(result, args[0].shape[dim], None)

    def _spread(self, indices: torch.Tensor, choices: int, dim: int | None) -> None:
        """Assume indices that go round below `choices`, along `dim` first where several are chosen."""
        if indices.numel() > MOST_ELEMENTS or indices.dim() == 0:
            return
        shape = list(indices.shape)
        if dim is not None:
            shape.append(shape.pop(dim))
        value = torch.arange(indices.numel()).remainder(choices).view(shape)
        value = value if dim is None else value.movedim(-1, dim).contiguous()
        self.keep(indices, value, [evenly_spread(choices)])

    def _on_meta(self, computed: Computed) -> Any:
        """What was computed, its tensors moved to meta and known."""

        def move(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
                self.keep(moved, value.clone(), computed.assumptions)
                return moved
            return value

        return _mapped(move, computed.result)

    def _on_cpu(self, value: Any) -> Any:
        """A copy of nested arguments, with the values of tensors, and on the CPU where they say meta."""

        def move(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self.of(value)
            return _CPU if value == "meta" or (isinstance(value, torch.device) and value.type == "meta") else value

        return _mapped(move, value)


def _counts(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Computed | None:
    """What `bincount` gives for unknown values: as many counts as it is asked for; None if it is asked for none."""
    weights, least = (argument(args, kwargs, place) for place in ((1, "weights"), (2, "minlength")))
    if not least:
        return None
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype == torch.float32 else torch.float64
    return Computed(torch.empty(least, dtype=dtype, device="meta"), frozenset([f"values counted are below {least}"]))


class Constructing(TorchFunctionMode):
    """Follows the values of buffers while a network is constructed and moved to meta."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__()
        self._values = values

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run `func`, and follow the values that it takes."""
        kwargs = kwargs or {}
        given = [tensor for tensor in tensors_in((args, kwargs)) if tensor.is_meta and not is_lazy(tensor)]
        if not given:
            return func(*args, **kwargs)
        if func in _INITIALISERS and (args or (given[0],))[0] is given[0] and self._values.none_in(given[0]):
            return given[0]  # PyTorch would take long to find that meta keeps no values
        versions = [tensor._version for tensor in given]
        result = func(*args, **kwargs)
        changed = [tensor for tensor, version in zip(given, versions, strict=True) if tensor._version != version]
        self._values.follow(func, args, kwargs, result, changed)
        return result


def evenly_spread(experts: int) -> str:
    """What is assumed of a mixture of experts."""
    return f"tokens spread evenly over {experts} experts"


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """A copy of nested lists, tuples, dictionaries and slices with every leaf changed."""
    if isinstance(value, list | tuple):
        entries = [_mapped(change, entry) for entry in value]
        if isinstance(value, list):
            return entries
        kind: Any = type(value)
        return kind(*entries) if hasattr(value, "_fields") else tuple(entries)
    if isinstance(value, dict):
        return {key: _mapped(change, entry) for key, entry in value.items()}
    if isinstance(value, slice):
        return slice(*(_mapped(change, entry) for entry in (value.start, value.stop, value.step)))
    return change(value)


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
