"""NVIDIA's GPUs, through NVML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clockwatt.gpu.interface import Gpu, GpuNotFoundError, InstalledGpu, Vendor
from clockwatt.gpu.nvidia.installed import installed_gpus, lost_gpus
from clockwatt.gpu.nvidia.nvml import NvmlGpu
from clockwatt.gpu.nvidia.visible import VARIABLE, resolve_visible


class NvidiaVendor(Vendor):
    """Every GPU that NVML lists. A device that no other vendor claims is taken to be its NVML name."""

    name = NvmlGpu.vendor

    def claims(self, device: str) -> bool:
        """See `Vendor.claims`."""
        return bool(device)

    def installed(self) -> list[InstalledGpu]:
        """See `Vendor.installed`: in NVML's order, that of their PCI bus ids."""
        return installed_gpus()

    def lost(self) -> int:
        """See `Vendor.lost`."""
        return lost_gpus()

    def visible(self, environ: Mapping[str, str]) -> list[InstalledGpu]:
        """See `Vendor.visible`: those that CUDA would show, in CUDA's order."""
        return resolve_visible(environ, installed_gpus())

    def open(self, uuid: str) -> Gpu:
        """See `Vendor.open`."""
        return NvmlGpu(uuid)

    def open_configured(self, device: str, *, seed: int, key: str, environ: Mapping[str, str]) -> Gpu:
        """See `Vendor.open_configured`: the first GPU that CUDA would show, so that what is read is what computes."""
        visible = self.visible(environ)
        if not visible:
            raise GpuNotFoundError(
                f"{key}: {device!r} is wanted, but no GPU is visible here "
                f"({VARIABLE} is {environ.get(VARIABLE, 'not set')!r}). Ask Slurm for one (gpus.<label>.slurm.gres), "
                f"or unset {VARIABLE}."
            )
        first = visible[0]
        if not _same_name(first.name, device):
            raise GpuNotFoundError(
                f"{key}: {device!r} is wanted, but this GPU is {first.name!r}. {_way_out(device, visible)}"
            )
        return NvmlGpu(first.uuid)

    def open_model(self, device: str, *, seed: int) -> Gpu | None:
        """See `Vendor.open_model`."""
        here = [found.uuid for found in installed_gpus() if _same_name(found.name, device)]
        return NvmlGpu(here[0]) if here else None


def _same_name(found: str, wanted: str) -> bool:
    return " ".join(found.split()).casefold() == " ".join(wanted.split()).casefold()


def _way_out(device: str, visible: Sequence[InstalledGpu]) -> str:
    for gpu in visible[1:]:
        if _same_name(gpu.name, device):
            return f"One of that name is visible, but not first: set {VARIABLE}={gpu.uuid}."
    return (
        "Write the name of this GPU there, or have the job sent to the right one "
        "(gpus.<label>.slurm: partition, gres or gpu_model)."
    )
