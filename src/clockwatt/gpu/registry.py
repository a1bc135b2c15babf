"""Which GPU a process may use, and opening the one that the config asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from clockwatt.gpu.interface import Gpu, GpuNotFoundError, NotSupportedError
from clockwatt.gpu.nvidia.installed import InstalledGpu, installed_gpus
from clockwatt.gpu.nvidia.nvml import MIG_REFUSED, NvmlGpu
from clockwatt.gpu.virtual.card import VirtualGpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
VIRTUAL_DEVICE = "virtual:"

_ENDS_THE_LIST = ("-1", "NoDevFiles")
"""CUDA ignores whatever follows -1; Slurm writes NoDevFiles in a job without GPUs."""


def open_gpu(device: str, *, seed: int, key: str = "device", environ: Mapping[str, str] = os.environ) -> Gpu:
    """Open the GPU that a config asks for.

    For a real GPU this is the first one that CUDA would show this process, so that what is read is what computes.

    Parameters
    ----------
    device
        NVML name, compared without regard to case, or `virtual:MODEL`.
    seed
        Of the campaign; used by virtual GPUs.
    key
        Config key that `device` stands in, e.g. `gpus.a30.device`, named in errors.
    environ
        Where `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` are looked up.

    Raises
    ------
    GpuNotFoundError
        If no GPU is visible, or the first one is of another model.
    NotSupportedError
        If it is a MIG instance.
    UnknownGpuError
        If there is no such virtual model.
    """
    if device.startswith(VIRTUAL_DEVICE):
        return VirtualGpu(device.removeprefix(VIRTUAL_DEVICE), seed=seed)
    visible = resolve_visible(environ, installed_gpus())
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


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[str]:
    """UUIDs of the GPUs that CUDA would show a process with these environment variables, in CUDA's order.

    Raises
    ------
    GpuNotFoundError
        If no driver answers, or `CUDA_VISIBLE_DEVICES` names what is not there or cannot be told.
    NotSupportedError
        If it names a MIG instance.
    """
    return [gpu.uuid for gpu in resolve_visible(environ, installed_gpus())]


def resolve_visible(environ: Mapping[str, str], installed: Sequence[InstalledGpu]) -> list[InstalledGpu]:
    """GPUs of `installed` that CUDA would show, in CUDA's order; raises as `visible_gpus` does."""
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
