"""Blocks: a few calls as a network makes them, and the operations that the tracer finds in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from clockwatt.config import NetworkConfig
from clockwatt.operations.spec.encode import dtype_of, tensors_in
from clockwatt.operations.trace.call import TracedCall
from clockwatt.operations.trace.meta import MetaLayouts
from clockwatt.operations.trace.trace import traced_call
from clockwatt.operations.trace.tracer import Tracer

_META = torch.device("meta")
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class Input:
    """A tensor that a block takes."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    grad: bool = True  # whether the pass differentiates it: all but the first layer's input
    channels_last: bool = False

    def make(self, *, learns: bool) -> torch.Tensor:
        """The tensor on meta; where it requires a gradient it is no leaf, so that it may be changed in place."""
        tensor = torch.empty(self.shape, dtype=dtype_of(self.dtype), device=_META)
        if self.channels_last:
            tensor = tensor.to(memory_format=_FORMATS[len(self.shape)])
        if learns and self.grad and tensor.is_floating_point():
            tensor = tensor.requires_grad_().clone()
        return tensor


@dataclass(frozen=True)
class Block:
    """What is traced: a module on meta and its inputs."""

    module: nn.Module
    inputs: Sequence[Input]


class Calls(nn.Module):
    """A module that is one function of its inputs and of modules beside.

    Parameters
    ----------
    function
        Called with the inputs, after the modules.
    modules
        Whose parameters are the block's.
    """

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self._function = function
        self._parts = nn.ModuleList(modules)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Call the function."""
        return self._function(*self._parts, *inputs)


def trace_block(block: Block, label: str, *, learns: bool) -> list[TracedCall]:
    """Trace one pass of a block, as `trace_network` does with a network; a gradient arrives at each output.

    Parameters
    ----------
    block
        On meta.
    label
        Named in errors.
    learns
        Whether the pass is a training one.

    Raises
    ------
    UntraceableError
        If a call cannot be traced.
    """
    module = block.module.train(learns)
    inputs = [entry.make(learns=learns) for entry in block.inputs]
    tracer = Tracer(module, NetworkConfig(name=label, input=[1]), grad=learns)
    with MetaLayouts(), torch.set_grad_enabled(learns):
        with tracer, _META:
            outputs = module(*inputs)
        if learns:
            roots = [tensor for tensor in tensors_in(outputs) if tensor.requires_grad]
            torch.autograd.backward(roots, [torch.empty_like(root) for root in roots])
    return [traced_call(entry) for entry in tracer.recorded]
