"""Strict reading of specs: each function checks one value of parsed JSON and names the place where it is wrong."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Collection, Mapping, Set
from typing import Any, NoReturn

_LARGEST = 2**53
"""Sizes, strides and offsets stay below this."""

_MAX_DIMENSIONS = 64
_MAX_DEPTH = 20

MEMORY_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")
LAYOUTS = ("strided",)
NON_FINITE = ("inf", "-inf", "nan")
HERE = "@"
"""The device on which an operation is built."""


class SpecFaultError(ValueError):
    """Something in a spec is wrong; `where` says which part."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


def parse(text: str) -> object:
    """Parse JSON as the standard has it: no NaN, no key twice.

    Raises
    ------
    SpecFaultError
        If it is none.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_each_key_once)
    except SpecFaultError:
        raise
    except (ValueError, RecursionError) as error:
        raise SpecFaultError("spec", f"not JSON ({error})") from None


def mapping(value: object, where: str, *, required: Set[str], known: Set[str]) -> dict[str, Any]:
    """A mapping that has all `required` keys and no unknown one."""
    given = names(value, where)
    if missing := required - given.keys():
        raise SpecFaultError(where, f"{', '.join(sorted(missing))} missing")
    if unknown := given.keys() - known:
        raise SpecFaultError(where, f"unknown key {', '.join(map(repr, sorted(unknown)))}")
    return given


def names(value: object, where: str) -> dict[str, Any]:
    """A mapping with any keys."""
    if not isinstance(value, dict):
        raise SpecFaultError(where, f"{_shown(value)} is no mapping")
    return value


def sequence(value: object, where: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise SpecFaultError(where, f"{_shown(value)} is no list")
    return value


def natural(value: object, where: str) -> int:
    """An integer from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise SpecFaultError(where, f"{_shown(value)} is no number from 0 to 2**53")
    return value


def positive(value: object, where: str) -> int:
    """An integer from 1 on."""
    if natural(value, where) == 0:
        raise SpecFaultError(where, "is 0")
    return natural(value, where)


def index(value: object, where: str, below: int) -> int:
    """An index into a list of length `below`."""
    if natural(value, where) >= below:
        raise SpecFaultError(where, f"{value} is no index into {below} tensors")
    return natural(value, where)


def true(value: object, where: str) -> bool:
    """The value true: a flag that is false is left out, so that each operation has one spelling."""
    if value is not True:
        raise SpecFaultError(where, f"{_shown(value)} is not true; leave the key out")
    return True


def flag(given: Mapping[str, Any], name: str, where: str) -> bool:
    """A flag of a mapping: true, or left out."""
    return name in given and true(given[name], f"{where}.{name}")


def one_of(value: object, choices: Collection[str], where: str) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        raise SpecFaultError(where, f"{_shown(value)} is none of {', '.join(choices)}")
    return value


def shape_and_stride(given: Mapping[str, Any], where: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`shape` and `stride` of a tensor, of equal length, spanning a storage of sensible size."""
    shape, stride = _naturals(given["shape"], f"{where}.shape"), _naturals(given["stride"], f"{where}.stride")
    if len(shape) != len(stride):
        raise SpecFaultError(where, f"{len(shape)} sizes but {len(stride)} strides")
    if len(shape) > _MAX_DIMENSIONS:
        raise SpecFaultError(where, f"{len(shape)} dimensions")
    if math.prod(shape) >= _LARGEST or sum(map(operator.mul, shape, stride)) >= _LARGEST:
        raise SpecFaultError(where, "is larger than any memory")
    return shape, stride


def _naturals(value: object, where: str) -> tuple[int, ...]:
    """Integers from 0 on; all at once, since a catalogue holds a hundred thousand of them."""
    numbers = sequence(value, where)
    if numbers and (set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) >= _LARGEST):
        return tuple(natural(number, where) for number in numbers)
    return tuple(numbers)


def check_argument(value: object, where: str, *, tensors: int, dtypes: Collection[str], depth: int = 0) -> None:
    """Check one encoded argument, and all that it holds.

    Raises
    ------
    SpecFaultError
        Naming the place.
    """
    if depth > _MAX_DEPTH:
        raise SpecFaultError(where, "nested too deep")
    match value:
        case None | bool() | int() | float() | str():
            return
        case list():
            contained = value
        case dict() if len(value) == 1:
            contained = _check_tagged(*next(iter(value.items())), where, tensors, dtypes)
        case _:
            raise SpecFaultError(where, f"{_shown(value)} is no argument")
    for number, entry in enumerate(contained):
        check_argument(entry, f"{where}[{number}]", tensors=tensors, dtypes=dtypes, depth=depth + 1)


def _check_tagged(tag: str, value: object, where: str, tensors: int, dtypes: Collection[str]) -> list[Any]:
    """Check `{tag: value}`; returns what it holds that is to be checked in turn."""
    place = f"{where}.{tag}"
    match tag:
        case "tensor":
            index(value, place, tensors)
        case "tuple":
            return sequence(value, place)
        case "slice":
            if len(sequence(value, place)) != 3:
                raise SpecFaultError(place, "start, stop and step are needed")
            return sequence(value, place)
        case "dict":
            return list(names(value, place).values())
        case "ellipsis":
            true(value, place)
        case "float":
            one_of(value, NON_FINITE, place)
        case "dtype":
            one_of(value, dtypes, place)
        case "device":
            one_of(value, (HERE,), place)
        case "memory_format":
            one_of(value, MEMORY_FORMATS, place)
        case "layout":
            one_of(value, LAYOUTS, place)
        case _:
            raise SpecFaultError(where, f"{tag!r} is no kind of argument")
    return []


def _no_constant(constant: str) -> NoReturn:
    raise SpecFaultError("spec", f"{constant} is not JSON")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise SpecFaultError("spec", "a key is given twice")
    return content


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
