"""PyTorch's global switches, set alike in tracing and in measuring, because they decide which kernels run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from clockwatt.schema.execution import ExecutionSettings

_cudnn: Any = torch.backends.cudnn  # PyTorch replaces this module by an object that type checkers do not see


def apply(execution: ExecutionSettings) -> dict[str, str | bool]:
    """Set the switches.

    The fused fast path of attention is off, since no trace sees it; cuDNN does not search for algorithms, so that a
    first call is like the others; TF32 is set through `fp32_precision` for convolutions and matrix products alike (the
    older flags raise once it is used).

    Parameters
    ----------
    execution
        Whether float32 matrix products and convolutions may use TensorFloat-32.

    Returns
    -------
    dict
        What `settings` then says.
    """
    cudnn = _name(execution.cudnn_tf32)
    _set(False, False, _name(execution.matrix_tf32), cudnn, cudnn)
    return settings()


@contextlib.contextmanager
def applied(execution: ExecutionSettings) -> Iterator[None]:
    """Set the switches within the context; after it they are as before, since the process may be a user's own."""
    before = settings()
    apply(execution)
    try:
        yield
    finally:
        _set(*before.values())


def _set(fast_path: Any, benchmark: Any, matmul: Any, conv: Any, rnn: Any) -> None:
    """Set the switches, in the order of `settings`."""
    torch.backends.mha.set_fastpath_enabled(fast_path)
    _cudnn.benchmark = benchmark
    torch.backends.cuda.matmul.fp32_precision = matmul
    _cudnn.conv.fp32_precision, _cudnn.rnn.fp32_precision = conv, rnn


def _name(tf32: bool) -> str:
    return "tf32" if tf32 else "ieee"


def settings() -> dict[str, str | bool]:
    """The switches as they stand, for recording."""
    return {
        "mha_fastpath": torch.backends.mha.get_fastpath_enabled(),
        "cudnn_benchmark": _cudnn.benchmark,
        "cuda_matmul_fp32_precision": torch.backends.cuda.matmul.fp32_precision,
        "cudnn_conv_fp32_precision": _cudnn.conv.fp32_precision,
        "cudnn_rnn_fp32_precision": _cudnn.rnn.fp32_precision,
    }
