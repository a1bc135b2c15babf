"""Which of this machine's NVIDIA GPUs CUDA shows a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clockwatt.gpu.interface import GpuNotFoundError, InstalledGpu, NotSupportedError
from clockwatt.gpu.nvidia.nvml import MIG_REFUSED

VARIABLE = "CUDA_VISIBLE_DEVICES"

_ENDS_THE_LIST = ("-1", "NoDevFiles")
"""CUDA ignores whatever follows -1; Slurm writes NoDevFiles in a job without GPUs."""


def resolve_visible(environ: Mapping[str, str], installed: Sequence[InstalledGpu]) -> list[InstalledGpu]:
    """GPUs of `installed` that CUDA would show, in CUDA's order.

    Raises
    ------
    GpuNotFoundError
        If `CUDA_VISIBLE_DEVICES` names what is not there or cannot be told.
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
