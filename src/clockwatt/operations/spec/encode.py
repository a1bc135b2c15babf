"""Between the values that a call is given and the JSON that an operation keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from clockwatt.operations.spec.operation import DTYPE_BYTES
from clockwatt.operations.spec.reading import HERE, LAYOUTS, MEMORY_FORMATS

_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPE_BYTES}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_FORMATS: dict[str, torch.memory_format] = {name: getattr(torch, name) for name in MEMORY_FORMATS}
_FORMAT_NAMES = {value: name for name, value in _FORMATS.items()}
_LAYOUTS: dict[str, torch.layout] = {name: getattr(torch, name) for name in LAYOUTS}
_LAYOUT_NAMES = {value: name for name, value in _LAYOUTS.items()}
_WITHOUT_TENSORS = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size})


class NotEncodableError(TypeError):
    """An argument that JSON cannot keep; the message says what it is."""


def dtype_of(name: str) -> torch.dtype:
    """The dtype that a spec names."""
    return _DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    """Name of a dtype in specs.

    Raises
    ------
    NotEncodableError
        If specs know no such dtype.
    """
    if dtype not in _DTYPE_NAMES:
        raise NotEncodableError(f"dtype {dtype}")
    return _DTYPE_NAMES[dtype]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return every tensor in a value of nested lists, tuples, mappings, slices and dataclasses, in order."""
    found: list[torch.Tensor] = []
    _find_tensors(value, found)
    return found


def _find_tensors(value: Any, found: list[torch.Tensor]) -> None:
    if type(value) in _WITHOUT_TENSORS:  # first, as most values are of these types
        return
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    entries: Iterable[Any] = ()
    if isinstance(value, list | tuple):
        entries = value
    elif isinstance(value, Mapping):
        entries = value.values()
    elif is_dataclass(value) and not isinstance(value, type):
        entries = [getattr(value, entry.name) for entry in fields(value)]
    elif isinstance(value, slice):
        entries = value.start, value.stop, value.step
    for entry in entries:
        _find_tensors(entry, found)


def encode(value: Any, number_of: Callable[[torch.Tensor], int]) -> Any:
    """One argument of a call as JSON; see `operation` for the encoding.

    Parameters
    ----------
    value
        What the call was given.
    number_of
        Gives the index of a tensor in the operation's list.

    Raises
    ------
    NotEncodableError
        If JSON cannot keep the value.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            finite = value - value == 0
            return float(value) if finite else {"float": str(float(value))}
        case np.generic():
            return encode(value.item(), number_of)
        case torch.Tensor():
            return {"tensor": number_of(value)}
        case tuple():
            return {"tuple": [encode(entry, number_of) for entry in value]}
        case list():
            return [encode(entry, number_of) for entry in value]
        case slice():
            return {"slice": [encode(entry, number_of) for entry in (value.start, value.stop, value.step)]}
        case dict() if all(isinstance(key, str) for key in value):
            return {"dict": {key: encode(entry, number_of) for key, entry in value.items()}}
        case torch.dtype():
            return {"dtype": dtype_name(value)}
        case torch.device():
            return {"device": HERE}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, torch.memory_format):
        return {"memory_format": _FORMAT_NAMES[value]}
    if isinstance(value, torch.layout) and value in _LAYOUT_NAMES:
        return {"layout": _LAYOUT_NAMES[value]}
    raise NotEncodableError(f"a {type(value).__name__}")


def decode(value: Any, tensors: Sequence[torch.Tensor], device: torch.device) -> Any:
    """What a call is given for an encoded argument (already checked by `Operation.from_json`)."""
    if isinstance(value, list):
        return [decode(entry, tensors, device) for entry in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    match tag:
        case "tensor":
            return tensors[content]
        case "tuple":
            return tuple(decode(entry, tensors, device) for entry in content)
        case "slice":
            return slice(*(decode(entry, tensors, device) for entry in content))
        case "dict":
            return {key: decode(entry, tensors, device) for key, entry in content.items()}
        case "ellipsis":
            return Ellipsis
        case "float":
            return float(content)
        case "dtype":
            return _DTYPES[content]
        case "device":
            return device
        case "memory_format":
            return _FORMATS[content]
        case "layout":
            return _LAYOUTS[content]
    raise AssertionError(tag)
