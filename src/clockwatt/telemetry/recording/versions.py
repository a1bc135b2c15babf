"""Versions of driver, system and container that a program ran on; it reports its libraries itself."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

import clockwatt
from clockwatt.gpu.interface import Gpu

_CONTAINERS = (
    ("APPTAINER_CONTAINER", "Apptainer"),
    ("SINGULARITY_CONTAINER", "Singularity"),
    ("ENROOT_ROOTFS", "enroot"),
)


def versions(gpus: Iterable[Gpu], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return versions by component; unknown ones are left out."""
    found = {"clockwatt": clockwatt.__version__}
    for gpu in gpus:
        found[f"driver of {gpu.identity.name}"] = gpu.identity.driver_version
        if gpu.identity.cuda_version is not None:
            found["CUDA, newest of the driver"] = gpu.identity.cuda_version
    found["kernel"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    if system := _system():
        found["system"] = system
    if processor := _processor():
        found["processor"] = processor
    if container := _container(environ):
        found["container"] = container
    if job := environ.get("SLURM_JOB_ID"):
        found["Slurm job"] = job
    return found


def _system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _processor() -> str | None:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _container(environ: Mapping[str, str]) -> str | None:
    for variable, name in _CONTAINERS:
        if image := environ.get(variable):
            return f"{name}: {image}"
    for path, name in ((Path("/run/.containerenv"), "Podman"), (Path("/.dockerenv"), "Docker")):
        if path.exists():
            return name
    return None
