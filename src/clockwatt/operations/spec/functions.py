"""The allow-list: which functions an operation may name.

These are PyTorch's overridable functions, those that `torch.overrides` lets a mode intercept, under their public names.
What reaches beyond tensors (files, storages, Python callables) is left out, so that a spec from a file can do no harm.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import get_overridable_functions, resolve_name

from clockwatt.operations.spec.operation import OperationSpecError

_NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("torch.nn.functional", torch.nn.functional),
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.special", torch.special),
    ("torch.linalg", torch.linalg),
    ("torch.fft", torch.fft),
    ("torch._C._nn", torch._C._nn),
)
"""Where functions are looked for. A function that stands in several is known by the first."""

_OPERATORS = frozenset(
    f"__{prefix}{name}__"
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
        *("and", "or", "xor", "lshift", "rshift"),
    )
    for prefix in ("", "r", "i")
) | {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__neg__", "__invert__", "__getitem__", "__setitem__"}

_TENSOR_PROPERTIES = ("T", "mT", "H", "mH", "data", "real", "imag")
"""Properties that give a tensor."""

_NOT_OVERRIDABLE: dict[str, tuple[str, ...]] = {
    "torch.nn.functional": ("hardsigmoid", "hardswish", "sigmoid", "tanh"),
    "torch": (
        *("arange", "as_tensor", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "normal", "ones"),
        *("rand", "randint", "randn", "randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros"),
        *("rand_like", "randint_like", "randn_like", "as_strided", "segment_reduce"),
    ),
    "torch.Tensor": (
        *("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros", "unflatten"),
    ),
}
"""What no class can override but a mode is given all the same: factories, and a few that PyTorch does not list."""

_PRIVATE: dict[str, tuple[str, ...]] = {"torch": ("_grouped_mm", "_weight_norm")}
"""Functions without a public name that public modules and functions call."""

_BEYOND_TENSORS = frozenset(
    {
        *(
            "from_file",
            "from_dlpack",
            "frombuffer",
            "set_",
            "share_memory_",
            "storage",
            "untyped_storage",
            "pin_memory",
        ),
        *("apply_", "map_", "map2_", "module_load", "register_hook", "register_post_accumulate_grad_hook"),
        *("backward", "retain_grad", "numpy", "tolist", "item", "data_ptr", "const_data_ptr", "as_subclass"),
        *(
            "resize_",
            "resize_as_",
            "resize",
            "resize_as",
            "cuda",
            "cpu",
            "xpu",
            "ipu",
            "hpu",
            "mtia",
            "rename",
            "rename_",
        ),
        *("dsmm", "hsmm", "spmm"),  # other names of mm
        *("record_stream", "storage_type", "sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_"),
    }
)


@functools.cache
def _table() -> tuple[dict[str, Callable[..., Any]], dict[Any, str]]:
    by_name: dict[str, Callable[..., Any]] = {}
    by_function: dict[Any, str] = {}
    for name, function in _listed():
        by_name[name] = function
        by_function.setdefault(function, name)
    return by_name, by_function


def _listed() -> Iterator[tuple[str, Callable[..., Any]]]:
    overridable = {function for functions in get_overridable_functions().values() for function in functions}
    for prefix, namespace in _NAMESPACES:
        for name in sorted(dir(namespace)):
            private = name in _PRIVATE.get(prefix, ())
            if name in _BEYOND_TENSORS or (name.startswith("_") and name not in _OPERATORS and not private):
                continue
            function = getattr(namespace, name)
            if isinstance(function, type) or not callable(function):
                continue
            in_place = name.endswith("_") and namespace in (torch, torch.nn.functional)
            listed = namespace is torch._C._nn or name in _NOT_OVERRIDABLE.get(prefix, ())
            if private or listed or in_place or function in overridable:
                yield f"{prefix}.{name}", function
    for name in _TENSOR_PROPERTIES:
        yield f"torch.Tensor.{name}.__get__", getattr(torch.Tensor, name).__get__


def name_of(function: Callable[..., Any]) -> str | None:
    """Public name of a function, None if it is not on the allow-list."""
    return _table()[1].get(function)


def described(function: Callable[..., Any]) -> str:
    """A name for messages, of any function that a mode is given."""
    own = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}".strip(".")
    return name_of(function) or resolve_name(function) or own or repr(function)


def resolve(name: str) -> Callable[..., Any]:
    """The function that a spec names.

    Raises
    ------
    OperationSpecError
        If it is not on the allow-list.
    """
    try:
        return _table()[0][name]
    except KeyError:
        raise OperationSpecError(
            f"function {name!r} is not one that an operation may call. Run `clockwatt catalogue` again, "
            "with the installed version of PyTorch, and do not edit its files."
        ) from None


def names() -> list[str]:
    """All names on the allow-list."""
    return list(_table()[0])
