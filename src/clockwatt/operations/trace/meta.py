"""Where the meta device's answer differs from that of a GPU's kernels: the layouts of convolution and attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from clockwatt.operations.trace.meta_cache import cached
from clockwatt.operations.trace.recurrent import fused_recurrent

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_CHANNELS_LAST = (torch.channels_last, torch.channels_last_3d)


_GRADIENTS_LIKE_SECOND = frozenset(
    {
        *(_aten.multi_margin_loss_backward.default, _aten.multilabel_margin_loss_backward.default),
        *(_aten._ctc_loss_backward.default, _aten._ctc_loss_backward.Tensor),
        _aten.fractional_max_pool3d_backward.default,
    }
)
"""Calls that PyTorch has no meta kernel for; they give a gradient of the shape of their second argument."""


class MetaLayouts(TorchDispatchMode):
    """Gives the outputs of some calls on meta the strides that their kernels give them.

    A convolution's output is channels_last where its input or weight is, as in cuDNN and oneDNN; PyTorch leaves it
    contiguous, because the meta device does not say which backend will run. The gradient of a layer norm's input is
    contiguous; on meta it takes after the gradient that arrives.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as PyTorch declares it

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `func`, and lay its output out anew where that is needed."""
        with torch._C.DisableTorchFunction():  # what the backward pass calls is no call of the network's
            return cached(_run, func, args, kwargs or {})


def _run(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if func in _GRADIENTS_LIKE_SECOND and args[1].is_meta:
        return torch.empty_like(args[1])
    result = func(*args, **kwargs)
    if func is _aten.convolution.default and result.is_meta:
        return _convolution_output(result, *args[:2])
    if func is _aten.native_layer_norm_backward.default and result[0] is not None and result[0].is_meta:
        return (torch.empty_like(result[0], memory_format=torch.contiguous_format), *result[1:])
    return result


def _convolution_output(output: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    chosen = convolution_format(x, weight)
    return output if chosen is torch.contiguous_format else torch.empty_like(output, memory_format=chosen)


def convolution_format(x: torch.Tensor, weight: torch.Tensor, *_backend: object) -> torch.memory_format:
    """Return how cuDNN lays out what a convolution gives."""
    formats = {suggest_memory_format(x), suggest_memory_format(weight)}
    return next((one for one in _CHANNELS_LAST if one in formats), torch.contiguous_format)


def restricts_attention() -> bool:
    """Whether the network, as with `sdpa_kernel`, excludes kernels of attention."""
    allowed = torch.backends.cuda
    return not (
        allowed.flash_sdp_enabled()
        and allowed.mem_efficient_sdp_enabled()
        and allowed.cudnn_sdp_enabled()
        and allowed.math_sdp_enabled()
    )


def fused_attention(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """What scaled_dot_product_attention gives on meta when a fused kernel runs, or None where none would.

    The meta device takes the unfused path, whose output has another layout and whose backward pass is another one. On a
    GPU half precision without a mask goes to FlashAttention, whose output is laid out as the query, and the rest to the
    memory-efficient kernel, whose output lies in memory as (batch, length, heads, width); grouped queries
    run fused in FlashAttention only.

    Parameters
    ----------
    args, kwargs
        Of the call.

    Returns
    -------
    torch.Tensor or None
        Shape (batch, heads, length, width), on meta.
    """
    given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | dict(
        kwargs
    )
    query, key, value, mask = given["query"], given["key"], given["value"], given.get("attn_mask")
    same_rank = query.dim() == key.dim() == value.dim() == 4
    flash = query.dtype in _HALVES and mask is None
    grouped = given.get("enable_gqa", False)
    if not same_rank or not query.is_meta or (grouped and not flash) or (mask is not None and mask.requires_grad):
        return None
    dropout, causal, scale = given.get("dropout_p", 0.0), given.get("is_causal", False), given.get("scale")
    if flash:
        outputs = _aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)
    else:
        outputs = _aten._scaled_dot_product_efficient_attention(
            query, key, value, None, True, dropout, causal, scale=scale
        )
    output: torch.Tensor = outputs[0]
    return output


def fused(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any | None:
    """What a GPU's fused kernel gives on meta in place of many calls, or None where `func` has none."""
    if func is torch.nn.functional.scaled_dot_product_attention:
        return fused_attention(args, kwargs)
    return fused_recurrent(func, args, kwargs)


class MetaFused(TorchFunctionMode):
    """Lets attention and recurrent layers on meta take the path that they take on a GPU; see `fused`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run `func`, or its fused stand-in."""
        kwargs = kwargs or {}
        given = fused(func, args, kwargs)
        return func(*args, **kwargs) if given is None else given
