"""A network's pass, cut where modules end into parts that the launch queue holds.

The queue takes about a thousand launches, a training pass of a deep network has several thousand. Where the pass is cut
the host waits for the device: each part can then be issued whole behind a blocking kernel of its own, as a short pass
is. Hooks find the places, in the backward pass too, and leave what the device does as it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook

PART_S = 1.5e-3
"""Host time after which the next module's end ends a part: some hundred launches."""

FORWARD, BACKWARD = "forward", "backward"


@dataclass
class Cuts:
    """Places where a pass is cut.

    Attributes
    ----------
    modules
        Modules after whose forward call (`forward`) or before whose backward part (`backward`) a part ends.
    longest_s
        Host time of the longest part.
    """

    modules: dict[str, set[torch.nn.Module]] = field(default_factory=lambda: {FORWARD: set(), BACKWARD: set()})
    longest_s: float = 0.0


def find_cuts(
    call: Callable[[], Any],
    wait: Callable[[], None],
    part_s: float = PART_S,
    now_s: Callable[[], float] = time.perf_counter,
) -> Cuts:
    """Run a pass once and choose where to cut it.

    Parameters
    ----------
    call
        A pass of a network.
    wait
        Waits for the device, so that the host's time is never that of a full queue.
    part_s
        Host time of a part at least.
    now_s
        The host's clock.
    """
    cuts = Cuts()
    since, part = now_s(), 0.0

    def reached(phase: str, module: torch.nn.Module) -> None:
        nonlocal since, part
        part += now_s() - since
        if part >= part_s:
            cuts.modules[phase].add(module)
            end_of_part()
        wait()
        since = now_s()

    def end_of_part() -> None:
        nonlocal part
        cuts.longest_s, part = max(cuts.longest_s, part), 0.0

    def passed(module: torch.nn.Module, _given: Any, output: Any) -> None:
        reached(FORWARD, module)
        _before_backward(output, lambda: reached(BACKWARD, module))

    handle = register_module_forward_hook(passed)
    wait()
    since = now_s()
    try:
        call()
    finally:
        handle.remove()
    part += now_s() - since
    end_of_part()
    return cuts


@contextlib.contextmanager
def cut_at(cuts: Cuts, between: Callable[[], None]) -> Iterator[None]:
    """Call `between` at every cut of a pass."""

    def after_forward(module: torch.nn.Module, _given: Any, output: Any) -> None:
        if module in cuts.modules[FORWARD]:
            between()
        if module in cuts.modules[BACKWARD]:
            _before_backward(output, between)

    with contextlib.ExitStack() as hooks:
        for module in cuts.modules[FORWARD] | cuts.modules[BACKWARD]:
            hooks.callback(module.register_forward_hook(after_forward).remove)
        yield


def _before_backward(output: Any, then: Callable[[], None]) -> None:
    """Call `then` when the gradient of what a module gave is there."""
    tensor = _first_differentiated(output)
    if tensor is not None:

        def arrived(_gradient: torch.Tensor) -> None:
            then()

        tensor.register_hook(arrived)


def _first_differentiated(output: Any) -> torch.Tensor | None:
    if isinstance(output, torch.Tensor):
        return output if output.requires_grad else None
    items = output.values() if isinstance(output, Mapping) else output if isinstance(output, (list, tuple)) else ()
    return next((found for item in items if (found := _first_differentiated(item)) is not None), None)
