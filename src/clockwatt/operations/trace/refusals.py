"""Why a network is refused, and where: the file and line of its own code, the module, the cause and the fix."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from clockwatt.operations.constructors import summary

NO_SAVED_TENSORS_HOOKS = "clockwatt refuses hooks on saved tensors"
"""What PyTorch raises where a network uses them while it is traced."""

_READERS = (
    torch.Tensor.item,
    torch.Tensor.tolist,
    torch.Tensor.__int__,
    torch.Tensor.__float__,
    torch.Tensor.__index__,
)
_COPIES = (torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.to)
_WITHOUT_VALUES = ("meta tensor", "register_meta function", "without output_size")
_STDLIB = str(Path(os.__file__).parent)
_LIBRARIES = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parents[2]) + os.sep)
_COMMANDS = str(Path(__file__).parents[2] / "cli") + os.sep
_WRAPPERS = {
    "ScriptModule": "is compiled by TorchScript, which clockwatt does not trace. Give the module that it was made of.",
    "OptimizedModule": "is compiled by torch.compile, which clockwatt does not trace. Give the module without it.",
    "DataParallel": "is DataParallel, which runs on several GPUs. Give the module that it wraps.",
    "DistributedDataParallel": "is DistributedDataParallel, which runs on several GPUs. Give the module that it wraps.",
}


def refused_wrapper(module: torch.nn.Module, *, training: bool) -> str | None:
    """Why a network cannot be traced for what it, or a module in it, is; None where it can."""
    for path, part in module.named_modules():
        names = [kind.__name__ for kind in type(part).__mro__ if kind.__module__.startswith("torch.")]
        reason = next((_WRAPPERS[name] for name in names if name in _WRAPPERS), None)
        if reason is None and part._compiled_call_impl is not None:
            reason = _WRAPPERS["OptimizedModule"]
        if reason is not None:
            return f"module {path!r} {reason}" if path else f"it {reason}"
    frameworks = [
        kind.__module__.partition(".")[0] for kind in type(module).__mro__ if kind.__name__ == "LightningModule"
    ]
    if training and frameworks:
        return (
            f"it is a LightningModule of {frameworks[0]}, whose training_step clockwatt does not run. "
            "Give the torch.nn.Module in it, or predict its inference."
        )
    return None


def line_of_network(error: BaseException | None = None) -> str | None:
    """File and line of the network's own code: where `error` arose, else what runs now; None if there is none."""
    if error is None:
        frames: Iterable[tuple[FrameType, int]] = ((frame, frame.f_lineno) for frame in _running())
    else:
        frames = reversed(list(traceback.walk_tb(error.__traceback__)))
    for frame, line in frames:
        path = frame.f_code.co_filename
        if path.startswith(_COMMANDS):  # what called a command is no code of the network
            return None
        installed = f"{os.sep}site-packages{os.sep}"
        if path.startswith(_LIBRARIES) or (path.startswith(_STDLIB) and installed not in path) or path.startswith("<"):
            continue
        if installed in path:
            return f"{path.rpartition(installed)[2]}:{line}"
        here = str(Path.cwd()) + os.sep
        return f"{path.removeprefix(here)}:{line}"
    return None


def _running() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def cause(error: BaseException, func: Callable[..., Any] | None, fitting: str) -> tuple[str, str]:
    """What is wrong, and the fix, from what a call of `func`, or the network's own code, raised.

    Parameters
    ----------
    fitting
        The fix where the input may not fit the network.
    """
    text = str(error)
    if isinstance(error, RecursionError):
        return "calls itself without end", "Correct its forward."
    if NO_SAVED_TENSORS_HOOKS in text:
        return "uses hooks on saved tensors, which clockwatt cannot trace", "Remove them, such as `save_on_cpu`."
    if "storage of BatchedTensor" in text or "storage of TensorWrapper" in text:
        return "uses torch.func, such as vmap or grad, which clockwatt cannot trace", "Write it for the whole batch."
    if "torch.compile stance" in text:
        return "calls a function compiled by torch.compile", "Give the network without torch.compile."
    if func is torch.Tensor.cuda or "CUDA" in text or "NVIDIA" in text:
        return f"asks for a GPU ({summary(error)})", "Make tensors on the device of the input, `x.device`."
    if func in _COPIES and "meta" in text:
        return "copies data to the CPU", "Leave the copy out of forward."
    if func in _READERS or any(words in text for words in _WITHOUT_VALUES):
        return (
            "depends on the values of data, which are not known while tracing",
            "Give the part of the network whose calls and shapes do not depend on its data.",
        )
    if "fake impl" in text or "data-dependent shape" in text:
        return "has no implementation without data", "Give the part of the network without it."
    if "expected device" in text or "same device" in text or "found two different devices" in text:
        return mixture(summary(error))
    by_itself = (ArithmeticError, NameError, AttributeError, KeyError, ImportError, OSError)
    return f"fails ({summary(error)})", "Correct its forward." if isinstance(error, by_itself) else fitting


def mixture(detail: str) -> tuple[str, str]:
    """What is wrong, and the fix, where a call takes tensors on the CPU and on the GPU at once."""
    return (
        f"mixes tensors on the CPU with those of the network ({detail})",
        "Make all on one device: move network and data with `.to`, register constants with `register_buffer`.",
    )
