"""The NVIDIA GPUs of this machine, as far as this process may open them."""

from __future__ import annotations

import pynvml

from clockwatt.gpu.interface import InstalledGpu
from clockwatt.gpu.nvidia.nvml_errors import typed_errors


def installed_gpus() -> list[InstalledGpu]:
    """GPUs that this process may open, in NVML's order (that of their PCI bus ids).

    A card that a cgroup hides or that fell off the bus is left out, as CUDA does not count it either.

    Raises
    ------
    GpuNotFoundError
        If no driver answers.
    """
    return [gpu for gpu in _listed() if isinstance(gpu, InstalledGpu)]


def lost_gpus() -> int:
    """How many GPUs fell off the bus.

    Raises
    ------
    GpuNotFoundError
        If no driver answers.
    """
    return sum(isinstance(gpu, pynvml.NVMLError_GpuIsLost) for gpu in _listed())


def _listed() -> list[InstalledGpu | pynvml.NVMLError]:
    """Every card that NVML counts, or why it cannot be opened."""
    with typed_errors("NVML"):
        pynvml.nvmlInit()
        try:
            return [_opened(index) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()


def _opened(index: int) -> InstalledGpu | pynvml.NVMLError:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return InstalledGpu("nvidia", pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle))
    except (pynvml.NVMLError_NoPermission, pynvml.NVMLError_GpuIsLost) as error:
        return error
