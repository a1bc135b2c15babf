"""Holding a GPU at an operating point: applied on entry, released on every exit."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from clockwatt.config import CampaignConfig, ControlConfig, GpuConfig, OperatingPoint
from clockwatt.control.registry import method_named
from clockwatt.gpu.clocks import check_clock, check_power_limit
from clockwatt.gpu.interface import Gpu, GpuError, NotSupportedError
from clockwatt.gpu.registry import open_model
from clockwatt.gpu.specs import UnknownGpuError


@dataclass(frozen=True)
class Applied:
    """An operating point that was requested and accepted; `verify` checks whether the GPU runs at it."""

    point: OperatingPoint
    warnings: list[str]


@contextlib.contextmanager
def operating_point(gpu: Gpu, point: OperatingPoint, control: ControlConfig) -> Iterator[Applied]:
    """Hold a GPU at an operating point.

    Released on every exit that Python sees. SIGINT and SIGTERM are such exits if the caller's handlers raise; while the
    GPU is being set or released they wait, so that neither is cut in half.

    Parameters
    ----------
    gpu
        The GPU to set; it must stay open meanwhile.
    point
        What to ask for; the default point asks for nothing and needs no privilege.
    control
        In which way.

    Raises
    ------
    NotSupportedError
        If the GPU has no such clock or limit; the nearest are named and nothing was set.
    NoPermissionError, ControlError
        If the method may not set it.
    ReleaseError
        On exit, if the GPU could not be put back; the message says how to.
    """
    check_supported(gpu, point)
    method = method_named(control.method)(gpu, control)
    try:
        with _signals_wait():
            method.apply(point)
        yield Applied(point, _warnings(gpu, point))
    finally:
        with _signals_wait():
            method.release()


def check_supported(gpu: Gpu, point: OperatingPoint) -> None:
    """Check that a GPU has the clocks and the power limit of an operating point.

    Raises
    ------
    NotSupportedError
        Naming the nearest ones that it has.
    """
    name = gpu.identity.name
    if point.memory_clock_mhz is not None:
        check_clock(name, "memory", point.memory_clock_mhz, gpu.supported_memory_clocks_mhz())
    if point.sm_clock_mhz is not None:
        check_clock(name, "SM", point.sm_clock_mhz, gpu.supported_sm_clocks_mhz(point.memory_clock_mhz))
    if point.power_limit_w is not None:
        check_power_limit(name, point.power_limit_w, gpu.power_limit_range_w())


def check_campaign(campaign: CampaignConfig) -> None:
    """Check every operating point of a campaign on those of its GPUs whose clocks are known on this machine.

    Those are virtual GPUs and the cards that are installed here; others are checked inside their jobs.

    Raises
    ------
    NotSupportedError, UnknownGpuError
        Naming the GPU's key, and the nearest clocks that it has.
    """
    for label, gpu_config in campaign.gpus.items():
        try:
            gpu = known_gpu(gpu_config, campaign.seed)
        except UnknownGpuError as error:
            raise UnknownGpuError(f"gpus.{label}.device: {error}") from None
        if gpu is None:
            continue
        with contextlib.closing(gpu):
            for key, points in campaign.points_asked(label).items():
                for point in points:
                    try:
                        check_supported(gpu, point)
                    except NotSupportedError as error:
                        raise NotSupportedError(f"{key}: {error}") from None


def known_gpu(gpu_config: GpuConfig, seed: int) -> Gpu | None:
    """Return a GPU of the configured model, if there is one on this machine or it is virtual.

    Raises
    ------
    UnknownGpuError
        If there is no such virtual model.
    """
    try:
        return open_model(gpu_config.device, seed=seed)
    except UnknownGpuError:
        raise
    except GpuError:  # no driver: a login node
        return None


def persistence_warning(gpu: Gpu) -> str | None:
    """Return a warning if locks are lost with the driver's last client; None where they are kept or unknown."""
    try:
        kept = gpu.persistence_mode()
    except NotSupportedError:
        return None
    if kept:
        return None
    return (
        f"{gpu.identity.name} ({gpu.identity.uuid}): persistence mode is off, so locked clocks are lost when the last "
        "process lets go of the driver. An administrator switches it on by `nvidia-smi -pm 1`."
    )


def _warnings(gpu: Gpu, point: OperatingPoint) -> list[str]:
    warning = None if point.is_default else persistence_warning(gpu)
    return [] if warning is None else [warning]


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back and deliver them at the end; only the main thread ever sees them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {
        number: signal.signal(number, lambda received, _: arrived.append(received))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for received in arrived:
            signal.raise_signal(received)
