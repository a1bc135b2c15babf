"""Measure the links between the GPUs of this machine, within a minute."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from clockwatt.config import CampaignConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import InstalledGpu
from clockwatt.gpu.registry import open_gpu, open_installed, visible_gpus
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure.links.ranks import run_ranks
from clockwatt.measure.links.topology import link_name
from clockwatt.schema.links import HOST_COSTS

_LIMIT_S, _VIRTUAL_LIMIT_S = 60.0, 300.0
"""Time after which ranks count as hung; CPU processes share their cores with others."""
_STOP_AFTER_S, _VIRTUAL_STOP_AFTER_S = 30.0, 240.0
"""Time after which a rank starts no measurement; the rest of a minute is for power, and for ending."""
_POWER_S = 4.0
_SIZES = tuple(2**power for power in range(10, 29, 2))
_REPETITIONS = 100
_VIRTUAL_SIZES = tuple(2**power for power in range(10, 21, 5))
_VIRTUAL_REPETITIONS = 3


@dataclass(frozen=True)
class LinkMeasurements:
    """Communications between the GPUs of a machine.

    Attributes
    ----------
    name, gpu_name, virtual
        The link, such as `NVLink (18 links)`, the GPUs, and whether these are modelled ones.
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
    limit_s = _VIRTUAL_LIMIT_S if virtual else _LIMIT_S
    ranks = run_ranks(measure, (plan,), count=count, gpus=[one.uuid for one in used], limit_s=limit_s)
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
