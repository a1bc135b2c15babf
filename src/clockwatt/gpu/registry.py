"""The only place where GPUs are found and opened, whoever made them.

A vendor is added by one object, here in `_VENDORS` or by `register`. Where PyTorch does not address its GPUs as CUDA
devices, they need a bench of their own, too (see `measure.bench.registry`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

from clockwatt.gpu.amd.vendor import AmdVendor
from clockwatt.gpu.interface import Gpu, GpuNotFoundError, InstalledGpu, Vendor
from clockwatt.gpu.jetson.vendor import JetsonVendor
from clockwatt.gpu.nvidia.vendor import NvidiaVendor
from clockwatt.gpu.virtual.vendor import VirtualVendor

_VENDORS: list[Vendor] = [VirtualVendor(), JetsonVendor(), AmdVendor(), NvidiaVendor()]
"""Vendors in the order in which they may claim a device: NVIDIA claims all remaining names."""


@contextlib.contextmanager
def register(vendor: Vendor) -> Iterator[None]:
    """Put a vendor before all others within the context."""
    _VENDORS.insert(0, vendor)
    try:
        yield
    finally:
        _VENDORS.remove(vendor)


def open_gpu(device: str, *, seed: int, key: str = "device", environ: Mapping[str, str] = os.environ) -> Gpu:
    """Open the GPU that a config asks for.

    For a real GPU this is the first one that this process may compute on, so that the GPU that is read is the one that
    computes.

    Parameters
    ----------
    device
        NVML name, compared without regard to case, or `virtual:MODEL`.
    seed
        The seed of the campaign; used by virtual GPUs.
    key
        Config key that `device` stands in, e.g. `gpus.a30.device`, named in errors.
    environ
        Where `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` are read.

    Raises
    ------
    GpuNotFoundError
        If no GPU is visible, or the first one is of another model.
    NotSupportedError
        If it is a MIG instance.
    UnknownGpuError
        If there is no such virtual model.
    """
    return _vendor_of(device).open_configured(device, seed=seed, key=key, environ=environ)


def open_model(device: str, *, seed: int) -> Gpu | None:
    """Open any GPU of a model, to see what it supports; None if this machine has none.

    Raises
    ------
    GpuError
        If no driver answers.
    UnknownGpuError
        If there is no such virtual model.
    """
    return _vendor_of(device).open_model(device, seed=seed)


def open_installed(found: InstalledGpu) -> Gpu:
    """Open a GPU that `installed_gpus` or `visible_gpus` named.

    Raises
    ------
    GpuError
        If it is gone.
    """
    return _vendor_named(found.vendor).open(found.uuid)


def installed_gpus() -> list[InstalledGpu]:
    """Return GPUs that this process may open, vendor by vendor.

    A card that a cgroup hides or that fell off the bus is left out.

    Raises
    ------
    GpuNotFoundError
        If no driver answers.
    """
    return _from_all(lambda vendor: vendor.installed())


def lost_gpus() -> int:
    """Return how many GPUs fell off the bus, of vendors whose driver answers."""
    lost = 0
    for vendor in _VENDORS:
        with contextlib.suppress(GpuNotFoundError):
            lost += vendor.lost()
    return lost


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[InstalledGpu]:
    """Return the GPUs that a process with these environment variables may compute on, in its order.

    Raises
    ------
    GpuNotFoundError
        If no driver answers, or `CUDA_VISIBLE_DEVICES` names what is not there or cannot be resolved.
    NotSupportedError
        If it names a MIG instance.
    """
    return _from_all(lambda vendor: vendor.visible(environ))


def _from_all(found_by: Callable[[Vendor], list[InstalledGpu]]) -> list[InstalledGpu]:
    """Return the GPUs of all vendors. A vendor without a driver is an error only if no other has GPUs."""
    found: list[InstalledGpu] = []
    without_driver: GpuNotFoundError | None = None
    for vendor in reversed(_VENDORS):  # NVIDIA's stand first: a campaign measures the first that is visible
        try:
            found += found_by(vendor)
        except GpuNotFoundError as error:
            without_driver = error
    if without_driver is not None and not found:
        raise without_driver
    return found


def _vendor_of(device: str) -> Vendor:
    for vendor in _VENDORS:
        if vendor.claims(device):
            return vendor
    raise GpuNotFoundError(f"{device!r}: no such GPU.")


def _vendor_named(name: str) -> Vendor:
    return next(vendor for vendor in _VENDORS if vendor.name == name)
