"""NVML's errors as those of `gpu.interface`: the one place that knows what a code means and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pynvml

from clockwatt.gpu.interface import GpuError, GpuLostError, GpuNotFoundError, NoPermissionError, NotSupportedError

_NO_DRIVER = (
    "no NVIDIA driver was found. Run this command in a job with a GPU. Campaigns, `record` and `card` can also use "
    "virtual:a30"
)

_ERRORS: dict[int, tuple[type[GpuError], str]] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (GpuNotFoundError, _NO_DRIVER),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (GpuNotFoundError, _NO_DRIVER),
    pynvml.NVML_ERROR_NOT_FOUND: (GpuNotFoundError, "no such GPU: `nvidia-smi -L` lists those that this job may use"),
    pynvml.NVML_ERROR_NOT_SUPPORTED: (NotSupportedError, "not supported by this GPU or its driver"),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (NotSupportedError, "not known to this driver; a newer one may have it"),
    pynvml.NVML_ERROR_NO_DATA: (NotSupportedError, "this GPU has no such data"),
    pynvml.NVML_ERROR_FREQ_NOT_SUPPORTED: (NotSupportedError, "not a clock of this GPU"),
    pynvml.NVML_ERROR_NO_PERMISSION: (NoPermissionError, "needs privileges that this user does not have"),
    pynvml.NVML_ERROR_GPU_IS_LOST: (GpuLostError, "the GPU fell off the bus; the node needs an administrator"),
    pynvml.NVML_ERROR_RESET_REQUIRED: (GpuLostError, "the GPU needs a reset; the node needs an administrator"),
    pynvml.NVML_ERROR_GPU_NOT_FOUND: (GpuLostError, "the GPU is no longer there; the node needs an administrator"),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        GpuLostError,
        "the driver was updated without being reloaded; the node needs a reboot",
    ),
}


@contextlib.contextmanager
def typed_errors(subject: str) -> Iterator[None]:
    """Turn NVML's errors into those of `gpu.interface`; `subject` stands first in the message."""
    try:
        yield
    except pynvml.NVMLError as error:
        kind, meaning = _ERRORS.get(error.value, (GpuError, f"NVML says {error}"))
        raise kind(f"{subject}: {meaning}.") from error
