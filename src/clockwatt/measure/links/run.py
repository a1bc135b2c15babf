"""Measure the links between the GPUs of this machine, within a minute."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clockwatt.config import CampaignConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import InstalledGpu
from clockwatt.gpu.registry import open_gpu, open_installed, visible_gpus
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure.links.ranks import run_ranks
from clockwatt.schema.links import HOST_COSTS

_STOP_AFTER_S, _VIRTUAL_STOP_AFTER_S = 30.0, 240.0
"""Time after which a rank starts no measurement; the rest of a minute is for power, and for ending."""
_POWER_S = 4.0
_SIZES = tuple(2**power for power in range(10, 29, 2))
_REPETITIONS = 100
_VIRTUAL_SIZES = tuple(2**power for power in range(10, 21, 5))
_VIRTUAL_REPETITIONS = 3


UNKNOWN = "unknown link"
_BY_PCIE = {
    "PIX": "PCIe (one switch)",
    "PXB": "PCIe (several switches)",
    "PHB": "PCIe (host bridge)",
    "NODE": "PCIe (one NUMA node)",
    "SYS": "PCIe (between CPUs)",
}


@dataclass(frozen=True)
class LinkMeasurements:
    """Communications between the GPUs of a machine.

    Attributes
    ----------
    name, gpu_name, virtual
        The link, such as `NVLink (18 links)`, the GPUs, and whether these are virtual.
    rows
        Each with `kind`, `gpus`, `bytes` and `time_s`, of the slowest rank.
    power_w
        Mean power of a GPU that communicates without pause; None where it was not measured.
    host_costs
        `schema.links.HOST_COSTS`, of the slowest rank.
    seconds
        Total duration.
    """

    name: str
    gpu_name: str
    virtual: bool
    rows: list[dict[str, Any]]
    power_w: float | None
    host_costs: dict[str, float]
    seconds: float


def measure_links(config: CampaignConfig, *, label: str, count: int | None = None) -> LinkMeasurements:
    """Measure communications between the visible GPUs of a campaign's model, or between CPU processes if it is virtual.

    Parameters
    ----------
    config, label
        The campaign and one of its GPUs.
    count
        Number of GPUs; None for all of them, two if virtual.

    Raises
    ------
    ClockwattError
        If there are fewer than two GPUs, or fewer than `count`.
    GpuError
        If there is no such GPU.
    RankError
        As `run_ranks`.
    """
    from clockwatt.measure.links.communications import Plan, measure  # needs torch

    begun_s = time.monotonic()
    gpu = open_gpu(config.gpu(label).device, seed=config.seed, key=f"gpus.{label}.device")
    try:
        virtual, gpu_name = isinstance(gpu, VirtualGpu), gpu.identity.name
    finally:
        gpu.close()
    found = () if virtual else _alike(gpu_name)
    count = count or (2 if virtual else len(found))
    if count < 2 or (not virtual and count > len(found)):
        raise ClockwattError(
            f"--gpus {count}: this machine has {len(found)} visible {gpu_name}. Give a number from 2 to "
            f"{max(2, len(found))}, in a job with as many GPUs."
            if not virtual
            else f"--gpus {count}: a link is between two GPUs or more. Give 2 or more."
        )
    used = found[:count]
    plan = Plan(
        counts=(*(one for one in (2, 4, 8) if one < count), count),
        sizes=_VIRTUAL_SIZES if virtual else _SIZES,
        repetitions=_VIRTUAL_REPETITIONS if virtual else _REPETITIONS,
        stop_after_s=_VIRTUAL_STOP_AFTER_S if virtual else _STOP_AFTER_S,
        power_s=0.0 if virtual else _POWER_S,
        gpus=used,
    )
    ranks = run_ranks(measure, (plan,), count=count, gpus=[one.uuid for one in used])
    powers = [rank["power_w"] for rank in ranks]
    return LinkMeasurements(
        name=f"{os.cpu_count()} CPU cores, gloo" if virtual else link_name(_indices(used)),
        gpu_name=gpu_name,
        virtual=virtual,
        rows=ranks[0]["rows"],
        power_w=None if None in powers else sum(powers) / count,
        host_costs={name: max(rank["host_costs"][name] for rank in ranks) for name in HOST_COSTS},
        seconds=time.monotonic() - begun_s,
    )


def _alike(gpu_name: str) -> tuple[InstalledGpu, ...]:
    return tuple(one for one in visible_gpus() if one.name == gpu_name)


def _indices(gpus: tuple[InstalledGpu, ...]) -> list[int]:
    found = []
    for one in gpus:
        gpu = open_installed(one)
        try:
            found.append(gpu.index())
        finally:
            gpu.close()
    return found


def link_name(indices: Sequence[int]) -> str:
    """Return the name of the slowest link between some GPUs, by their indices; `UNKNOWN` without nvidia-smi."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return UNKNOWN
    try:
        shown = subprocess.run([command, "topo", "-m"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return slowest_link(shown, indices)


def slowest_link(matrix: str, indices: Sequence[int]) -> str:
    """Return the slowest link between some GPUs in the output of `nvidia-smi topo -m`."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in matrix.splitlines()]
    links = {int(row[0][3:]): row[1:] for row in rows if row and re.fullmatch(r"GPU\d+", row[0]) and len(row) > 2}
    links = {index: row for index, row in links.items() if "X" in row}
    try:
        found = [links[one][other] for one in indices for other in indices if one != other]
    except (KeyError, IndexError):
        return UNKNOWN
    for code in reversed(_BY_PCIE):
        if code in found:
            return _BY_PCIE[code]
    lanes = [int(code[2:]) for code in found if re.fullmatch(r"NV\d+", code)]
    return f"NVLink ({min(lanes)} links)" if lanes and len(lanes) == len(found) else UNKNOWN
