"""The NVIDIA GPUs of this machine: which there are, which CUDA shows a process, and opening one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pynvml

from clockwatt.gpu.interface import Gpu, GpuNotFoundError, InstalledGpu, NotSupportedError, Vendor
from clockwatt.gpu.nvidia.nvml import MIG_REFUSED, NvmlGpu
from clockwatt.gpu.nvidia.nvml_errors import typed_errors

VARIABLE = "CUDA_VISIBLE_DEVICES"

_ENDS_THE_LIST = ("-1", "NoDevFiles")
"""CUDA ignores whatever follows -1; Slurm writes NoDevFiles in a job without GPUs."""


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


def installed_gpus() -> list[InstalledGpu]:
    """Return GPUs that this process may open, in NVML's order (that of their PCI bus ids).

    A card that a cgroup hides or that fell off the bus is left out, as CUDA does not count it either.

    Raises
    ------
    GpuNotFoundError
        If no driver answers.
    """
    return [gpu for gpu in _listed() if isinstance(gpu, InstalledGpu)]


def lost_gpus() -> int:
    """Return how many GPUs fell off the bus.

    Raises
    ------
    GpuNotFoundError
        If no driver answers.
    """
    return sum(isinstance(gpu, pynvml.NVMLError_GpuIsLost) for gpu in _listed())


def _listed() -> list[InstalledGpu | pynvml.NVMLError]:
    """Return every card that NVML counts, or why it cannot be opened."""
    with typed_errors("NVML"):
        pynvml.nvmlInit()
        try:
            return [_opened(index) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()


def _opened(index: int) -> InstalledGpu | pynvml.NVMLError:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
        try:
            return InstalledGpu("nvidia", uuid, name, pynvml.nvmlDeviceGetSerial(handle))
        except pynvml.NVMLError:  # cards for desktops have none
            return InstalledGpu("nvidia", uuid, name)
    except (pynvml.NVMLError_NoPermission, pynvml.NVMLError_GpuIsLost) as error:
        return error


def resolve_visible(environ: Mapping[str, str], installed: Sequence[InstalledGpu]) -> list[InstalledGpu]:
    """Return the GPUs of `installed` that CUDA would show, in CUDA's order.

    Raises
    ------
    GpuNotFoundError
        If `CUDA_VISIBLE_DEVICES` names what is not there or cannot be resolved.
    NotSupportedError
        If it names a MIG instance.
    """
    chosen = environ.get(VARIABLE)
    if chosen is None:
        _check_order_is_known(environ, installed, "without it CUDA counts the fastest GPU first")
        return list(installed)
    visible: list[InstalledGpu] = []
    for entry in (part.strip() for part in chosen.split(",")) if chosen.strip() else ():
        if entry in _ENDS_THE_LIST:
            break
        gpu = _by_index(int(entry), environ, installed) if entry.isdecimal() else _by_uuid(entry, installed)
        if gpu in visible:
            raise GpuNotFoundError(f"{VARIABLE}={chosen}: names {gpu.uuid} twice. Name each GPU once.")
        visible.append(gpu)
    return visible


def _by_index(index: int, environ: Mapping[str, str], installed: Sequence[InstalledGpu]) -> InstalledGpu:
    _check_order_is_known(environ, installed, "it names a GPU by its index, which counts the fastest GPU first")
    if index >= len(installed):
        raise GpuNotFoundError(
            f"{VARIABLE}={environ[VARIABLE]}: there is no GPU {index} among the {len(installed)} that this process may "
            "open (inside a job, indices count its own GPUs only). `nvidia-smi -L` lists them."
        )
    return installed[index]


def _by_uuid(entry: str, installed: Sequence[InstalledGpu]) -> InstalledGpu:
    if entry.upper().startswith("MIG-"):
        raise NotSupportedError(f"{VARIABLE}={entry}: {MIG_REFUSED}")
    matching = [
        gpu for gpu in installed if entry.upper().startswith("GPU-") and gpu.uuid.lower().startswith(entry.lower())
    ]
    if len(matching) != 1:
        found = "several GPUs have" if matching else "no GPU here has"
        raise GpuNotFoundError(f"{VARIABLE}: {found} a UUID that begins with {entry!r}. `nvidia-smi -L` lists them.")
    return matching[0]


def _check_order_is_known(environ: Mapping[str, str], installed: Sequence[InstalledGpu], reason: str) -> None:
    """CUDA's default order depends on speed, NVML's on the bus: with unlike models they may differ."""
    if environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({gpu.name for gpu in installed}) > 1:
        raise GpuNotFoundError(
            f"{VARIABLE}={environ.get(VARIABLE, '(not set)')}: this machine has unlike GPUs, and {reason}. "
            f"Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPU: {VARIABLE}={installed[0].uuid}."
        )
