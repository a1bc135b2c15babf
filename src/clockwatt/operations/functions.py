"""Modules that a callable uses, wherever it holds them, and the callable with copies in their place."""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

BY_POSITION = "input_"
"""Begins the name of an input of a function that is given by position."""
_HOLD_NONE = (str, bytes, int, float, complex, type, types.ModuleType, types.BuiltinFunctionType, torch.Tensor)
"""Types of values in which no module is looked for."""


class Function(torch.nn.Module):
    """A callable as a module; modules that it uses are its parts.

    These are variables of a function, attributes of a method's object and arguments of a partial, and what lies in
    them: entries of lists and dicts, attributes of objects, variables of functions of the same file.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.name = str(getattr(function, "__name__", type(function).__name__)).strip("<>")
        called = inspect.getattr_static(type(function), "__call__", None)  # of an object
        self._held = _Held(types.MethodType(called, function) if isinstance(called, types.FunctionType) else function)
        self._modules.update(self._held.modules)  # add_module refuses names that modules have, such as name and half

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; inputs of numbered names are given by position, in this order."""
        function = self._held.function(self._modules)
        if all(name.removeprefix(BY_POSITION).isdecimal() for name in kwargs):
            return function(*args, *kwargs.values())
        return function(*args, **kwargs)


class _Held:
    """A callable and what it holds; a copy of it is itself.

    Attributes
    ----------
    modules
        By the name that the code of the callable has for each, such as `layers.0`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._given = function
        self.modules: dict[str, torch.nn.Module] = {}
        known, holders = {id(function): function}, dict[int, list[int]]()
        waiting = [("", function)]
        for path, value in waiting:
            for name, one in _content(value):
                if isinstance(one, _HOLD_NONE):
                    continue
                holders.setdefault(id(one), []).append(id(value))
                if id(one) not in known:
                    known[id(one)] = one
                    inner = f"{path}.{name}".strip(".")
                    if isinstance(one, torch.nn.Module):
                        self.modules[inner or "module"] = one
                    else:
                        waiting.append((inner, one))
        self._changed = {id(module) for module in self.modules.values()}
        outward = [*self._changed]
        for place in outward:
            new = set(holders.get(place, ())) - self._changed
            self._changed |= new
            outward += new
        self._known = known  # an id is that of one value while this lives

    def __deepcopy__(self, _memo: dict[int, Any]) -> _Held:
        """Return itself: modules are copied as parts of the function."""
        return self

    def function(self, modules: Mapping[str, torch.nn.Module | None]) -> Callable[..., Any]:
        """Return the callable with other modules of the same names; the given one and what it holds do not change."""
        made: dict[int, Any] = {id(module): modules[name] for name, module in self.modules.items()}
        changed: Callable[..., Any] = self._with(self._given, made)
        return changed

    def _with(self, value: Any, made: dict[int, Any]) -> Any:
        """Return a value with what was `made` in place of what it holds, by id; itself if it holds no module."""
        if id(value) not in self._changed:
            return value
        if id(value) in made:
            return made[id(value)]
        if isinstance(value, types.MethodType):
            return types.MethodType(self._with(value.__func__, made), self._with(value.__self__, made))
        if isinstance(value, functools.partial):
            given = [self._with(one, made) for one in value.args]
            keywords = {name: self._with(one, made) for name, one in value.keywords.items()}
            return functools.partial(self._with(value.func, made), *given, **keywords)
        if isinstance(value, tuple):
            entries = [self._with(one, made) for one in value]
            return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
        copied = made[id(value)] = _copy(value)
        if isinstance(value, types.FunctionType):
            copied.__defaults__ = tuple(self._with(one, made) for one in value.__defaults__ or ()) or None
            copied.__kwdefaults__ = {name: self._with(one, made) for name, one in (value.__kwdefaults__ or {}).items()}
            copied.__globals__.update((name, self._with(one, made)) for name, one in _globals(value))
            for cell, old in zip(copied.__closure__ or (), value.__closure__ or (), strict=True):
                with contextlib.suppress(ValueError):  # not assigned yet
                    cell.cell_contents = self._with(old.cell_contents, made)
        elif isinstance(value, list):
            copied[:] = [self._with(one, made) for one in value]
        elif isinstance(value, dict):
            copied.update((key, self._with(one, made)) for key, one in value.items())
        else:
            vars(copied).update((name, self._with(one, made)) for name, one in vars(value).items())
        return copied


def _content(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds, with the names that code has for it."""
    if isinstance(value, types.FunctionType):
        yield from _globals(value)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not assigned yet
                yield name, cell.cell_contents
        defaults = value.__defaults__ or ()
        names = value.__code__.co_varnames[: value.__code__.co_argcount]
        yield from zip(names[len(names) - len(defaults) :], defaults, strict=True)
        yield from (value.__kwdefaults__ or {}).items()
    elif isinstance(value, types.MethodType):
        yield from (("self", value.__self__), ("", value.__func__))
    elif isinstance(value, functools.partial):
        yield "", value.func
        yield from ((str(number), one) for number, one in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, list | tuple):
        yield from ((str(number), one) for number, one in enumerate(value))
    elif isinstance(value, dict):
        yield from ((str(key), one) for key, one in value.items())
    elif hasattr(value, "__dict__"):
        yield from vars(value).items()


def _globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the global variables that the code of a function names; of functions, those of the same file."""
    codes = [function.__code__]
    for code in codes:
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    loads = (one for code in codes for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
    names = dict.fromkeys(one.argval for one in loads)  # co_names has those of attributes too
    for name in filter(function.__globals__.__contains__, names):  # not of built-in functions
        value = function.__globals__[name]
        if not isinstance(value, types.FunctionType) or value.__globals__ is function.__globals__:
            yield name, value


def _copy(value: Any) -> Any:
    """Return a shallow copy; of a function with global variables and cells of its own."""
    if isinstance(value, types.FunctionType):
        cells = tuple(types.CellType() for _ in value.__closure__ or ())
        return types.FunctionType(value.__code__, {**value.__globals__}, value.__name__, None, cells)
    if isinstance(value, list | dict):
        return copy.copy(value)
    copied: Any = object.__new__(type(value))  # __copy__ of a class might give the object itself
    vars(copied).update(vars(value))
    return copied
