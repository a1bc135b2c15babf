"""A first campaign file for the GPUs that Slurm and NVML report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from clockwatt.config import SlurmResources
from clockwatt.errors import OutputError
from clockwatt.gpu.interface import InstalledGpu
from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.io import files
from clockwatt.workflow.cluster import GpuPartition

UNKNOWN_DEVICE = "NAME THAT nvidia-smi -L SHOWS THERE"

NO_GPU_FOUND = "Neither Slurm nor NVML reports a GPU, so this campaign has a virtual one."
_HEADER = """\
# Proposed by `clockwatt doctor`. {source}
# Check before the first run: device is what `nvidia-smi -L` prints on a node of that kind, clocks_mhz what is to be
# measured. `clockwatt clocks show` lists clocks. Setting them needs a privilege: see control in config/README.md.
"""


def proposed_gpus_block(installed: Sequence[InstalledGpu], partitions: Sequence[GpuPartition]) -> str:
    """Propose a `gpus:` block.

    Parameters
    ----------
    installed
        What NVML reports on this machine.
    partitions
        What Slurm reports; where there is any, jobs go there and NVML only supplies names.

    Returns
    -------
    str
        YAML. Without any GPU it holds a virtual one.
    """
    if partitions:
        source, entries = "Slurm reports these GPUs.", [_from_slurm(partition, installed) for partition in partitions]
    elif installed:
        source = "NVML reports these GPUs."
        entries = [(_label(gpu.name), _gpu(gpu.name)) for gpu in _one_of_each(installed)]
    else:
        source, entries = NO_GPU_FOUND, [("a30", _gpu("virtual:a30"))]
    block: dict[str, Any] = {}
    for label, entry in entries:
        block[_unused(label, block)] = entry
    return _HEADER.format(source=source) + yaml.safe_dump({"gpus": block}, sort_keys=False, width=120)


def write_config(path: Path, gpus_block: str) -> None:
    """Write a complete campaign around a `gpus:` block; an existing file is not changed.

    Raises
    ------
    OutputError
        If the file exists or cannot be written.
    """
    if path.exists():
        raise OutputError(f"{path}: exists already. Name another file, or remove it first.")
    rest = {
        "passes": ["inference", "training"],
        "networks": [{"name": "resnet18", "input": [32, 3, 224, 224]}],
    }
    files.write_text(gpus_block + "\n" + "campaign: first\n" + yaml.safe_dump(rest, sort_keys=False), path)


def _from_slurm(found: GpuPartition, installed: Sequence[InstalledGpu]) -> tuple[str, dict[str, Any]]:
    names = {gpu.name for gpu in installed}
    if found.gpu_type is None:
        device = names.pop() if len(names) == 1 else UNKNOWN_DEVICE
    else:
        device = _device_of_type(found.gpu_type, names)
    slurm: dict[str, Any] = {"partition": found.partition, "gres": found.gres}
    if found.cpus < SlurmResources().cpus_per_task:
        slurm["cpus_per_task"] = found.cpus
    return _label(found.gpu_type or found.partition), _gpu(device) | {"slurm": slurm}


def _device_of_type(gpu_type: str, names: Iterable[str]) -> str:
    try:
        spec = find_spec(gpu_type)
    except UnknownGpuError:
        return UNKNOWN_DEVICE
    here = [name for name in names if any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in spec.nvml_names)]
    return here[0] if here else spec.nvml_name


def _gpu(device: str) -> dict[str, Any]:
    return {"device": device, "clocks_mhz": "default"}


def _one_of_each(installed: Sequence[InstalledGpu]) -> list[InstalledGpu]:
    return list({gpu.name: gpu for gpu in reversed(installed)}.values())[::-1]


def _label(name: str) -> str:
    """Return a label: `NVIDIA GeForce RTX 2080 Ti` gives `rtx2080ti`."""
    short = re.sub(r"nvidia|geforce|tesla|[^a-z0-9.]", "", name.lower()).lstrip(".")
    return short or "gpu"


def _unused(label: str, taken: dict[str, Any]) -> str:
    if label not in taken:
        return label
    return next(numbered for i in range(2, len(taken) + 3) if (numbered := f"{label}_{i}") not in taken)
