"""Virtual GPUs: there is one of each model everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from clockwatt.gpu.interface import Gpu, GpuNotFoundError, InstalledGpu, Vendor
from clockwatt.gpu.specs import VIRTUAL_DEVICE
from clockwatt.gpu.virtual.card import VirtualGpu


class VirtualVendor(Vendor):
    """GPUs named `virtual:MODEL`, or `virtual:MODEL#CARD`. None is installed: each process that asks has its own."""

    name = VirtualGpu.vendor

    def claims(self, device: str) -> bool:
        """See `Vendor.claims`."""
        return device.startswith(VIRTUAL_DEVICE)

    def installed(self) -> list[InstalledGpu]:
        """See `Vendor.installed`."""
        return []

    def lost(self) -> int:
        """See `Vendor.lost`."""
        return 0

    def visible(self, environ: Mapping[str, str]) -> list[InstalledGpu]:
        """See `Vendor.visible`."""
        return []

    def open(self, uuid: str) -> Gpu:
        """See `Vendor.open`."""
        raise GpuNotFoundError(f"{uuid}: a virtual GPU is opened by its model, not by a UUID.")

    def open_configured(self, device: str, *, seed: int, key: str, environ: Mapping[str, str]) -> Gpu:
        """See `Vendor.open_configured`."""
        return self.open_model(device, seed=seed)

    def open_model(self, device: str, *, seed: int) -> Gpu:
        """See `Vendor.open_model`."""
        name = device.removeprefix(VIRTUAL_DEVICE)
        model, _, card = name.partition("#")
        return VirtualGpu(model, seed=seed, card=int(card)) if card.isdecimal() else VirtualGpu(name, seed=seed)
