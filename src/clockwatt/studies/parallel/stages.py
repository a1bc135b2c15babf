"""Stages of a pipeline: a network of which a rank keeps some modules and replaces those of other ranks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import torch

from clockwatt.errors import ClockwattError
from clockwatt.operations.networks import BuiltNetwork
from clockwatt.operations.partition import balanced, block_of

_LARGEST_COPY = 2**17
"""Elements up to which the output of a replaced module is kept."""
Event = tuple[str, bool]
"""Path of a module, and whether it starts."""


class Stage:
    """Modules of a network from one module to before another; what other ranks compute costs nothing here.

    Parameters
    ----------
    built
        The network with its input, changed in place.
    begins
        Modules with which the second and further stages begin, in the order of the forward pass. Each must be called
        with one tensor, on which alone the later modules depend.
    place
        Number of this stage.

    Attributes
    ----------
    received, sent
        Tensors like those that the forward pass receives and sends; None for the first and the last stage.
    """

    def __init__(self, built: BuiltNetwork, begins: Sequence[str], place: int) -> None:
        self._built, module = built, built.module
        events, inputs, outputs, written = _recorded(built, begins)
        first, last = place == 0, place == len(begins)
        start = 0 if first else events.index((begins[place - 1], True))
        end = len(events) if last else events.index((begins[place], True))
        before, within, after = (
            {name for name, _ in part} for part in (events[:start], events[start:end], events[end:])
        )
        earlier, later = before - within - after, after - before - within
        self.received = None if first else _like(inputs[begins[place - 1]])
        self.sent = None if last else _like(inputs[begins[place]])
        self._given, self._writes = self.received, not first and begins[place - 1] in written
        _replace(module, earlier, later, within - before - after, outputs)
        if not first:
            module.get_submodule(begins[place - 1]).register_forward_pre_hook(self._inject, with_kwargs=True)
        if not last:
            above, _, part = begins[place].rpartition(".")
            setattr(module.get_submodule(above), part, _End())

    def _inject(self, _: Any, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        hidden = self._given
        if self._writes and hidden is not None:  # autograd refuses to write into what was received
            hidden = hidden.clone()
        if given:
            return (hidden, *given[1:]), named
        return given, {**named, "hidden_states": hidden}

    def __call__(self, given: torch.Tensor | None = None) -> torch.Tensor:
        """Return what goes to the next stage, or the loss."""
        self._given = self.received if given is None else given
        try:
            return self._built.loss()
        except _EndedError as ended:
            return ended.tensor


def balanced_begins(built: BuiltNetwork, stages: int) -> list[str]:
    """Return blocks with which the second and further stages begin, so that stages take about the same time.

    Raises
    ------
    ClockwattError
        If the network has fewer blocks than there are stages.
    """
    events: list[tuple[str, float]] = []

    def start(name: str) -> None:
        if built.device.type == "cuda":
            torch.cuda.synchronize()
        if not any(name == known for known, _ in events):
            events.append((name, time.perf_counter()))

    blocks = [name for name, _ in built.module.named_modules() if name and block_of(name) == name]
    hooks = [
        built.module.get_submodule(name).register_forward_pre_hook(lambda *_, name=name: start(name))
        for name in blocks
    ]  # fmt: skip
    with torch.no_grad():
        for _ in range(2):  # the first one is warm-up
            events.clear()
            built.loss()
    start("")
    for hook in hooks:
        hook.remove()
    seconds = [after - begun for (_, begun), (_, after) in itertools.pairwise(events)]
    if len(seconds) < stages:
        raise ClockwattError(
            f"{len(seconds)} blocks cannot be split into {stages} stages: leave pipeline out of "
            "studies.parallel.strategies, or choose fewer GPUs."
        )
    return [events[place][0] for place in balanced(seconds, stages)]


class _EndedError(Exception):
    """Ends a forward pass at the end of a stage."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.tensor = tensor


class _Constant(torch.nn.Module):
    """Stands for a module of another stage."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, *_: Any, **__: Any) -> Any:
        return self.value


class _End(torch.nn.Module):
    """Stands for the first module of the next stage."""

    def forward(self, *given: torch.Tensor, **named: torch.Tensor) -> Any:
        raise _EndedError(_hidden(given, named))


def _like(value: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor of the same shape that can be received."""
    return torch.empty_like(value, memory_format=torch.contiguous_format)


def _hidden(given: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]) -> torch.Tensor:
    return given[0] if given else named["hidden_states"]


def _recorded(
    built: BuiltNetwork, begins: Sequence[str]
) -> tuple[list[Event], dict[str, torch.Tensor], dict[str, Any], set[str]]:
    """Run a forward pass.

    Return starts and ends of its modules, inputs of the modules that begin stages, all outputs, and which of the
    modules that begin stages write into their input.
    """
    events: list[Event] = []
    inputs: dict[str, torch.Tensor] = {}
    outputs: dict[str, Any] = {}
    versions: dict[str, int] = {}
    written: set[str] = set()
    hooks = []

    def hook(name: str, module: torch.nn.Module) -> None:
        def started(_: Any, given: Any, named: Any) -> None:
            events.append((name, True))
            if name in begins:
                inputs[name] = _hidden(given, named)
                versions[name] = inputs[name]._version

        def ended(_: Any, __: Any, output: Any) -> None:
            events.append((name, False))
            outputs[name] = output
            if name in versions and inputs[name]._version > versions[name]:
                written.add(name)

        hooks.append(module.register_forward_pre_hook(started, with_kwargs=True))
        hooks.append(module.register_forward_hook(ended))

    for name, module in built.module.named_modules():
        hook(name, module)
    with torch.no_grad():
        built.loss()
    for one in hooks:
        one.remove()
    return events, inputs, outputs, written


def _replace(
    module: torch.nn.Module,
    earlier: set[str],
    later: set[str],
    whole: set[str],
    outputs: dict[str, Any],
    name: str = "",
) -> None:
    """Replace the outermost modules below one that are of other stages; `whole` are of this one with all parts."""
    for part, child in list(module.named_children()):
        path = f"{name}.{part}" if name else part
        if path in earlier:
            setattr(module, part, _Constant(_cheap(outputs[path])))
        elif path in later:
            setattr(module, part, _Constant(None))
        elif path not in whole:
            _replace(child, earlier, later, whole, outputs, path)


def _cheap(value: Any) -> Any:
    """Return a value whose large tensors hold no memory."""
    if isinstance(value, torch.Tensor):
        large = value.numel() > _LARGEST_COPY
        return torch.zeros((), dtype=value.dtype, device=value.device).expand(value.shape) if large else value.clone()
    if isinstance(value, tuple):
        return tuple(_cheap(one) for one in value)
    return value
