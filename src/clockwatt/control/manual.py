"""Looking at and setting clocks by hand, one GPU at a time."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.control.methods import ControlError
from clockwatt.control.points import check_supported, operating_point, persistence_warning
from clockwatt.control.registry import method_named
from clockwatt.gpu.interface import Gpu, GpuError, GpuNotFoundError, NotSupportedError, throttle_reason_names
from clockwatt.gpu.registry import installed_gpus, open_installed, visible_gpus

T = TypeVar("T")
NVML = ControlConfig()


def show(console: Console | None = None) -> None:
    """Print clocks, limits and what they could be set to, of every GPU of this machine; changes nothing.

    Raises
    ------
    GpuNotFoundError
        If no driver answers.
    """
    table = Table("GPU", "SM clock", "memory clock", "power limit", "throttled by", "persistence")
    for found in installed_gpus():
        with contextlib.closing(open_installed(found)) as gpu:
            table.add_row(*_row(gpu))
    (console or Console()).print(table)


def lock(
    point: OperatingPoint, *, gpu: str | None = None, control: ControlConfig = NVML, console: Console | None = None
) -> None:
    """Set an operating point; leave it set, or hold it until interrupted where the method sets it no longer than that.

    Parameters
    ----------
    point
        What to set; the default point is refused, `reset` is meant for that.
    gpu
        UUID, beginning of one, or index; may be left out on a machine with one GPU.
    control
        In which way.
    console
        Where to say what was done.

    Raises
    ------
    GpuError
        If there is no such GPU, it does not support the point, or the user may not set it.
    """
    if point.is_default:
        raise ControlError(
            "nothing to lock. Give an SM clock, a memory clock or a power limit, or use `clockwatt clocks reset`."
        )
    console = console or Console()
    with _chosen(gpu) as card:
        method = method_named(control.method)(card, control)
        about = f"{card.identity.name} ({card.identity.uuid}): {point}"
        if method.stays_set:
            check_supported(card, point)
            try:
                method.apply(point)
            except GpuError:
                method.release()  # the half of it that was set
                raise
            console.print(f"{about}, until `clockwatt clocks reset`")
            _warn(card, console)
            return
        with operating_point(card, point, control):
            console.print(f"{about}, until you press Ctrl-C")
            _warn(card, console)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()


def reset(*, gpu: str | None = None, control: ControlConfig = NVML, console: Console | None = None) -> None:
    """Give clocks and power limit of a GPU back to the driver; through the helper, what this job had set.

    Parameters
    ----------
    gpu
        UUID, beginning of one, or index; may be left out on a machine with one GPU.
    control
        In which way: one that `resets_by_hand`.
    console
        Where to say what was done.

    Raises
    ------
    GpuError
        If there is no such GPU, or the user may not set it.
    """
    with _chosen(gpu) as card:
        done = method_named(control.method)(card, control).reset()
        (console or Console()).print(f"{card.identity.name} ({card.identity.uuid}): {done}")


def _warn(gpu: Gpu, console: Console) -> None:
    warning = persistence_warning(gpu)
    if warning is not None:
        console.print(f"[yellow]{warning}")


@contextlib.contextmanager
def _chosen(gpu: str | None) -> Iterator[Gpu]:
    installed = (
        installed_gpus()
        if gpu is None
        else visible_gpus({"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    )
    if len(installed) != 1:
        listed = "".join(f"\n  {found.uuid}  {found.name}" for found in installed)
        raise GpuNotFoundError(f"{len(installed)} GPUs: choose one with --gpu UUID.{listed}")
    with contextlib.closing(open_installed(installed[0])) as card:
        yield card


def _row(gpu: Gpu) -> list[str]:
    sm_clocks = _if_supported(gpu.supported_sm_clocks_mhz)
    memory_clocks = _if_supported(gpu.supported_memory_clocks_mhz)
    limits_w = _if_supported(gpu.power_limit_range_w)
    reasons = _if_supported(gpu.throttle_reasons)
    return [
        f"{gpu.identity.name}\n{gpu.identity.uuid}",
        f"{_if_supported(gpu.sm_clock_mhz)} MHz\n"
        + (f"of {sm_clocks[0]}–{sm_clocks[-1]}" if sm_clocks else "cannot be locked"),
        f"{_if_supported(gpu.memory_clock_mhz)} MHz\n"
        + (f"of {', '.join(map(str, memory_clocks))}" if memory_clocks else "cannot be locked"),
        f"{_if_supported(gpu.power_limit_w)} W" + (f"\nof {limits_w[0]:g}–{limits_w[1]:g}" if limits_w else ""),
        "?" if reasons is None else ", ".join(throttle_reason_names(reasons)) or "nothing",
        {True: "on", False: "off", None: "?"}[_if_supported(gpu.persistence_mode)],
    ]


def _if_supported(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except NotSupportedError:
        return None
