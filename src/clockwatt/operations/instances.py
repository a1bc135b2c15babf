"""Networks given as they are in Python: a module, its class or a callable, with example inputs."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, get_args

import numpy as np
import torch

from clockwatt import config
from clockwatt.config import INDICES, InputConfig, NetworkConfig
from clockwatt.errors import RequestError
from clockwatt.operations.constructors import FAULTS, summary
from clockwatt.operations.functions import BY_POSITION, Function
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.networks import copy_on_meta, with_dtype, without_memory
from clockwatt.schema.execution import ExecutionSettings

_DTYPES = get_args(InputConfig.model_fields["dtype"].annotation)
_INDICES = "input_ids"
"""Inputs of this name are token ids, also where their shape alone is given."""


class Instance:
    """A network that exists in this process.

    Parameters
    ----------
    model
        A `torch.nn.Module`, a class of modules that needs no arguments, or a callable that takes `inputs`.
    inputs
        Example tensors or shapes: one, several by position in a list, or by keyword in a dict.
    execution
        The network is cast to the dtype of these settings; None for the dtype of its first parameter.
    branch
        `true` or `false`: where a branch on the values of a tensor goes; None to refuse it.

    Attributes
    ----------
    config
        The network as a campaign would name it.

    Raises
    ------
    RequestError
        If `model` is none, or an input is none.
    """

    def __init__(
        self, model: Any, inputs: Any, execution: ExecutionSettings | None = None, branch: str | None = None
    ) -> None:
        self._module, self._inputs, self._branch = _module_of(model), inputs, branch
        dtype = self._dtype = None if execution is None else execution.dtype
        given = _by_keyword(self._module, inputs)
        tensors = (*self._module.parameters(), *(one for one in given.values() if isinstance(one, torch.Tensor)))
        floats = [tensor for tensor in tensors if tensor.is_floating_point()]
        chosen = dtype or (_dtype_of(floats[0]) if floats else "float32")
        described = {name: self._input(name, one, chosen) for name, one in given.items()}
        name = type(self._module).__name__ if not isinstance(self._module, Function) else self._module.name
        content: dict[str, Any] = {"name": name, "precision": [str(execution or chosen)]}
        if branch is not None:
            content["data_dependent_branch"] = branch
        only = described.get("", {})
        below, kind = only.get("below"), str(only.get("dtype", "float"))
        if {"shape"} <= only.keys() <= {"shape", "dtype", "below"} and (kind == "int64" if below else "float" in kind):
            content |= {"input": only["shape"], "input_dtype": "int64" if below else "float", "input_below": below}
        else:
            content["inputs"] = {keyword or "0": one for keyword, one in described.items()}
        self.config: NetworkConfig = config.parse_network(content, source=f"network {name}")

    def under(self, execution: ExecutionSettings) -> Instance:
        """The same network and inputs under other execution settings."""
        return Instance(self._module, self._inputs, execution, self._branch)

    def on_meta(self, values: KnownValues) -> torch.nn.Module:
        """A copy on the meta device, without memory for its weights; `values` keeps those of small buffers."""
        if any(map(torch.nn.parameter.is_lazy, (*self._module.parameters(), *self._module.buffers()))):
            raise RequestError(f"network {self.config.name}: has lazy modules. Call it once on an example first.")
        try:
            module = copy_on_meta(self._module, values)
        except FAULTS as error:
            raise RequestError(f"network {self.config.name}: cannot be copied ({summary(error)}).") from error
        return with_dtype(module, getattr(torch, self._dtype)) if self._dtype else module

    def _input(self, name: str, given: Any, dtype: str) -> dict[str, Any]:
        """An input as `InputConfig` has it."""
        if isinstance(given, Mapping):
            described = dict(given)
            if isinstance(given.get("dtype"), torch.dtype):
                described["dtype"] = str(given["dtype"]).removeprefix("torch.")
            if described.get("dtype") in INDICES and self._tables():
                described.setdefault("below", self._tables()[0])
            return described
        if isinstance(given, np.ndarray):
            try:
                given = given.tolist() if given.ndim == 1 and given.dtype.kind == "i" else torch.as_tensor(given)
            except TypeError as error:
                raise RequestError(f"inputs {name}: {error}") from None
        if isinstance(given, torch.Tensor):
            if given.is_nested or given.layout is not torch.strided:
                kind = "nested tensors are" if given.is_nested else f"{given.layout} is"
                raise RequestError(f"inputs {name}: {kind} not supported. Give a dense tensor.")
            given_dtype = _dtype_of(given)
            if given_dtype not in (*_DTYPES, "float64"):
                *most, last = _DTYPES[1:]
                raise RequestError(
                    f"inputs {name}: {given_dtype} is not supported. Convert it to {', '.join(most)} or {last}."
                )
            described = {"shape": list(given.shape)}
            if given_dtype in INDICES:
                return described | {"dtype": given_dtype, "below": self._below(name, given)}
            is_cast = given_dtype == dtype or (self._dtype is not None and given.is_floating_point())
            return described if is_cast else described | {"dtype": given_dtype}
        if isinstance(given, list | tuple | torch.Size) and all(isinstance(size, Integral) for size in given):
            shape = {"shape": [int(size) for size in given]}
            keyword = name or next(iter(inspect.signature(self._module.forward).parameters), "")
            tables = self._tables()
            return shape | {"dtype": "int64", "below": tables[0]} if keyword == _INDICES and tables else shape
        raise RequestError(
            f"inputs {reprlib.repr(given)}: give an example tensor or a shape, batch first, such as (32, 3, 224, 224); "
            "several as a list, or by keyword as a dict."
        )

    def _below(self, name: str, indices: torch.Tensor) -> int:
        """What indices stay below: if they may be token ids, the rows of the first embedding that has enough."""
        known = not indices.is_meta and indices.numel()
        least = int(indices.max()) + 1 if known else 1
        if known and name not in ("", _INDICES):  # such as labels, masks, and ids of token types
            return max(1, least)
        return next((rows for rows in self._tables() if rows >= least), max(1, least))

    def _tables(self) -> list[int]:
        """Rows of the embeddings, that of tokens first."""
        return [part.num_embeddings for part in self._module.modules() if isinstance(part, torch.nn.Embedding)]


def _dtype_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _module_of(model: Any) -> torch.nn.Module:
    if isinstance(model, torch.nn.Module):
        return model
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        try:
            with without_memory(KnownValues()):
                return model()
        except FAULTS as error:
            raise RequestError(
                f"network {model.__name__}: is a class that needs arguments ({summary(error)}). Give an instance."
            ) from error
    owner = getattr(model, "__self__", None)
    if isinstance(owner, torch.nn.Module) and getattr(model, "__name__", "") == "forward":
        return owner
    if callable(model) and not isinstance(model, type):
        return Function(model)
    raise RequestError(f"network {model!r}: give a name, a torch.nn.Module, or a callable with example inputs.")


def _by_keyword(module: torch.nn.Module, inputs: Any) -> dict[str, Any]:
    """Inputs by keyword, entries of dicts and lists as `batch.mask`; the only one, given by position, by ""."""
    if inputs is None:
        raise RequestError("inputs: give an example tensor or a shape, batch first, such as (32, 3, 224, 224).")
    entries = [_entries(name, one) for name, one in _arguments(module, inputs).items()]
    return {name: one for given in entries for name, one in given.items()}


def _entries(name: str, given: Any) -> dict[str, Any]:
    """Tensors and shapes of an argument by the names of `INPUT_NAME`."""
    if isinstance(given, Mapping) and "shape" not in given:
        pairs: Iterable[tuple[Any, Any]] = given.items()
    elif isinstance(given, list | tuple) and not all(isinstance(one, Integral) for one in given):
        pairs = enumerate(given)
    else:
        return {name: given}
    entries = [_entries(f"{name or 0}.{key}", one) for key, one in pairs]
    return {path: one for inner in entries for path, one in inner.items()}


def _arguments(module: torch.nn.Module, inputs: Any) -> dict[str, Any]:
    """Arguments by keyword; the only one, given by position, by an empty one."""
    if isinstance(inputs, Mapping) and "shape" not in inputs:
        return dict(inputs)
    several = isinstance(inputs, list | tuple) and not all(isinstance(one, Integral) for one in inputs)
    if not several or isinstance(inputs, torch.Size):
        return {"": inputs}
    if len(inputs) == 1:
        return {"": inputs[0]}
    if isinstance(module, Function):
        return {f"{BY_POSITION}{number}": one for number, one in enumerate(inputs)}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [one.name for one in inspect.signature(module.forward).parameters.values() if one.kind in kinds]
    if len(names) < len(inputs):
        raise RequestError(f"inputs: are {len(inputs)}, but the network takes {len(names)} by position.")
    return dict(zip(names, inputs, strict=False))
