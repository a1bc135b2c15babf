"""Recurrent layers on the meta device as a GPU's library runs them: one call, not one for each step.

The meta device takes an LSTM apart into its steps, which takes minutes for long sequences, and gives the backward pass
a node for each. cuDNN runs all steps of all layers in one call, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

BY_FUNCTION: dict[Callable[..., Any], bool] = {
    torch.lstm: True, torch.gru: False, torch.rnn_tanh: False, torch.rnn_relu: False,
}  # fmt: skip
"""Functions, and whether they keep a cell's state beside what they give."""
_PACK = torch._pack_padded_sequence  # what all of `torch.nn.utils.rnn` that packs comes to
FLOPS_PER_STATE = {"lstm": (9, 18), "gru": (9, 18), "rnn_tanh": (3, 3), "rnn_relu": (1, 1)}
"""Beside the matrix products, FLOPs (forward, backward) per element of what one step gives."""


class Recurrent(torch.autograd.Function):
    """A recurrent layer that computes nothing."""

    @staticmethod
    def forward(ctx: Any, shapes: list[list[int]], batch_first: bool, *tensors: torch.Tensor) -> Any:
        """Tensors of these shapes; the first is laid out as cuDNN gives it, time before batch."""
        ctx.save_for_backward(*tensors)
        like = tensors[0]
        first, *states = (torch.zeros(shape, dtype=like.dtype, device=like.device) for shape in shapes)
        return (first.transpose(0, 1) if batch_first else first, *states)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:  # noqa: ARG004  # as PyTorch calls it
        """Gradients of every tensor that needs one."""
        needed = ctx.needs_input_grad[2:]
        given = zip(ctx.saved_tensors, needed, strict=True)
        return None, None, *(torch.zeros_like(tensor) if wanted else None for tensor, wanted in given)


def is_packed(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call packs sequences by their lengths, which are values of a tensor, or gives such to a layer."""
    if func is _PACK:
        return True
    second = args[1] if len(args) > 1 else kwargs.get("batch_sizes")
    return func in BY_FUNCTION and isinstance(second, torch.Tensor) and not second.is_floating_point()


def fused_recurrent(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any | None:
    """What a recurrent layer gives on meta, or None where the call is none.

    Parameters
    ----------
    func, args, kwargs
        A call of a public function, such as `torch.lstm(input, hx, parameters, has_biases, layers, …)`.
    """
    if func not in BY_FUNCTION or kwargs or len(args) != 9 or not args[0].is_meta:
        return None
    x, state, parameters, _, _, _, _, both, batch_first = args
    states = list(state) if BY_FUNCTION[func] else [state]
    if x.dim() != 3 or not all(isinstance(one, torch.Tensor) for one in states):
        return None
    batch, length = (x.shape[0], x.shape[1]) if batch_first else (x.shape[1], x.shape[0])
    shapes = [[length, batch, states[0].shape[-1] * (2 if both else 1)], *(list(one.shape) for one in states)]
    return Recurrent.apply(shapes, batch_first, x, *states, *parameters)


def flops(operation_class: str, weights: list[int], steps: int, given: int, *, backward: bool) -> int:
    """FLOPs of a recurrent layer.

    Parameters
    ----------
    weights
        Elements of each weight matrix.
    steps
        Batch times length.
    given
        Elements of what it gives.
    backward
        Whether the backward pass is counted, too: twice the matrix products of the forward pass.
    """
    forward, back = FLOPS_PER_STATE[operation_class]
    products = 2 * steps * sum(weights)
    return products + forward * given + backward * (2 * products + back * given)
