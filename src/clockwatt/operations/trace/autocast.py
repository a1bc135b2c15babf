"""What `torch.autocast` casts on a GPU: found by asking PyTorch, with CUDA tensors that hold no memory.

Autocast does nothing on the meta device. Each kind of call is therefore run once on fake CUDA tensors under autocast,
and the casts that it makes of its arguments are seen. So PyTorch's own lists decide, those of the installed version.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.amp.autocast_mode import autocast
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from clockwatt.operations.trace.recurrent import BY_FUNCTION

_DEVICE = "cuda"
_DEVICES = (_DEVICE, "meta")
"""Devices whose autocast a network on a GPU, traced on meta, runs under."""
_CONVERSIONS = frozenset(
    {
        *(torch.Tensor.to, torch.Tensor.type, torch.Tensor.type_as, torch.Tensor.float, torch.Tensor.double),
        *(torch.Tensor.half, torch.Tensor.bfloat16, torch.Tensor.copy_, torch.Tensor.clone, torch.Tensor.detach),
    }
)
"""Functions that convert by themselves, or never."""
_FAULTS = (RuntimeError, TypeError, NotImplementedError, ValueError, AssertionError)
"""What a call on fake tensors may raise."""


@dataclass(frozen=True)
class Casts:
    """What autocast does to one kind of call.

    Attributes
    ----------
    dtypes
        The dtype that each leaf of the arguments is cast to; None where it stays.
    result
        The dtype that the call is told to compute in; None for none.
    """

    dtypes: tuple[torch.dtype | None, ...]
    result: torch.dtype | None = None


class Autocast:
    """The casts of calls under autocast to one dtype; what is once found is kept."""

    def __init__(self) -> None:
        self._known: dict[object, Casts | None] = {}

    def of(
        self, dtype: torch.dtype, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Casts | None:
        """Return what autocast to `dtype` does to a call; None where it does nothing."""
        leaves, _ = tree_flatten((args, dict(kwargs)))
        if func in _CONVERSIONS or not any(_can_be_cast(leaf) for leaf in leaves):
            return None
        key = (dtype, func, tuple(_kind(leaf) for leaf in leaves), tuple(kwargs))
        if key not in self._known:
            self._known[key] = _recurrent(dtype, leaves) if func in BY_FUNCTION else _ask(dtype, func, args, kwargs)
        return self._known[key]


def _can_be_cast(leaf: object) -> TypeGuard[torch.Tensor]:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dtype != torch.float64


def _kind(leaf: object) -> object:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.dim()
    return leaf if isinstance(leaf, bool | str | torch.dtype | None) else type(leaf)


def _recurrent(dtype: torch.dtype, leaves: Sequence[object]) -> Casts:
    """CuDNN's recurrent layers take all their tensors in the low precision."""
    return Casts(tuple(dtype if _can_be_cast(leaf) else None for leaf in leaves))


def _ask(
    dtype: torch.dtype, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Casts | None:
    """Run a call on fake CUDA tensors with and without autocast; None where both are the same, or it cannot be run."""
    with _disable_current_modes(), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), _unlogged():
        given = tree_map_only(torch.Tensor, _fake, (args, dict(kwargs)))
        leaves, _ = tree_flatten(given)
        with _SeenCasts() as plain, contextlib.suppress(*_FAULTS):  # of two dtypes, a call may fail without autocast
            func(*given[0], **given[1])
        try:
            with _SeenCasts() as seen, _enabled(dtype):
                wanted = _dtypes(func(*given[0], **given[1]))
        except _FAULTS:
            return None
        own = {id(leaf) for leaf in leaves}
        cast = {key: to for key, to in seen.dtypes.items() if key in own and plain.dtypes.get(key) != to}
        candidates = _candidates(tuple(cast.get(id(leaf)) for leaf in leaves), leaves, wanted)
        casts = next((one for one in candidates if _result_of(one, func, given) == wanted), None)
        return casts if casts is not None and (casts.result or any(casts.dtypes)) else None


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Keep PyTorch from logging each call that fails on fake tensors."""
    logger = logging.getLogger(FakeTensorMode.__module__)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _candidates(
    dtypes: tuple[torch.dtype | None, ...], leaves: Sequence[object], wanted: Sequence[torch.dtype]
) -> Iterator[Casts]:
    """Yield what may give the dtype that autocast gives: the casts seen, `dtype=` beside them, all tensors cast.

    Calls such as a cross-entropy are several to autocast, and the cast is that of what passes between them.
    """
    yield Casts(dtypes)
    if not wanted:
        return
    yield Casts(dtypes, wanted[0])
    yield Casts(tuple(wanted[0] if _can_be_cast(leaf) and leaf.dtype != wanted[0] else None for leaf in leaves))


def _result_of(casts: Casts, func: Callable[..., Any], given: Any) -> list[torch.dtype]:
    """Return the dtypes that a call gives with its arguments cast; an empty list if it cannot be run so."""
    leaves, structure = tree_flatten(given)
    cast = [leaf if to is None else leaf.to(to) for leaf, to in zip(leaves, casts.dtypes, strict=True)]
    args, kwargs = tree_unflatten(cast, structure)
    try:
        return _dtypes(func(*args, **kwargs | ({} if casts.result is None else {"dtype": casts.result})))
    except _FAULTS:
        return []


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=_DEVICE)


def _dtypes(result: object) -> list[torch.dtype]:
    return [leaf.dtype for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]


class _SeenCasts(TorchDispatchMode):
    """Keeps the dtype that each tensor is cast to, by its id."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as PyTorch declares it
        self.dtypes: dict[int, torch.dtype] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `func`."""
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") is not None:
            self.dtypes[id(args[0])] = kwargs["dtype"]
        return func(*args, **kwargs)


@contextlib.contextmanager
def _enabled(dtype: torch.dtype) -> Iterator[None]:
    """Within, CUDA tensors are under autocast, without its cache; `torch.autocast` refuses where no GPU is."""
    before = torch.is_autocast_enabled(_DEVICE), torch.get_autocast_dtype(_DEVICE), torch.is_autocast_cache_enabled()
    torch.set_autocast_enabled(_DEVICE, True)
    torch.set_autocast_dtype(_DEVICE, dtype)
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_enabled(_DEVICE, before[0])
        torch.set_autocast_dtype(_DEVICE, before[1])
        torch.set_autocast_cache_enabled(before[2])


@contextlib.contextmanager
def contexts_followed(enter: Callable[[torch.dtype | None], None], leave: Callable[[], None]) -> Iterator[None]:
    """Within, `torch.autocast` in a network's own code calls `enter` and `leave`, with or without a GPU.

    `enter` is given the dtype, None where autocast is disabled. Contexts of other devices are ignored.
    """
    before = {name: getattr(autocast, name) for name in ("__init__", "__enter__", "__exit__")}

    def init(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,  # as PyTorch declares it
        cache_enabled: bool | None = None,  # noqa: ARG001  # likewise
    ) -> None:
        self.device, self.fast_dtype, self._enabled = device_type, dtype, enabled

    def entered(self: Any) -> Any:
        if self.device in _DEVICES:
            enter((self.fast_dtype or torch.get_autocast_dtype(_DEVICE)) if self._enabled else None)
        return self

    def left(self: Any, *_: object) -> None:
        if self.device in _DEVICES:
            leave()

    try:
        for name, own in zip(before, (init, entered, left), strict=True):
            setattr(autocast, name, own)
        yield
    finally:
        for name, own in before.items():
            setattr(autocast, name, own)
