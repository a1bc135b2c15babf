"""Campaign settings that the workflow's results depend on, and Slurm resources of its jobs.

Snakemake runs a job again when its parameters differ from those of the last time. So each kind of job gets the slice of
the campaign that its result depends on, and nothing else: a longer run time in Slurm measures nothing anew.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from clockwatt.config import CampaignConfig, GpuConfig
from clockwatt.schema.records import MEASUREMENT_VERSION

Settings = dict[str, Any]

_PRIORITIES = 10_000

SURVEY_MIN = 20
"""Minutes of a job of the survey of cards: a card takes less than three, all conditions of 8 cards ten."""

SLURM_RESOURCES = (
    "slurm_partition",
    "slurm_account",
    "gres",
    "gpu",
    "gpu_model",
    "runtime",
    "cpus_per_task",
    "mem_mb",
    "qos",
    "constraint",
    "slurm_extra",
)
"""Resources that `slurm_resources` gives, by the names of Snakemake's Slurm executor."""


@dataclass(frozen=True)
class Stage:
    """Slurm resources of a stage without a GPU. A retry after running out of memory or time requests more."""

    cores: int
    mem_mb: int
    runtime_min: int


STAGES = {
    "catalogue": Stage(1, 4000, 30),
    "dataset": Stage(1, 4000, 60),
    "fit": Stage(4, 4000, 120),
    "validate": Stage(1, 4000, 60),
    "figures": Stage(1, 4000, 60),
}


def catalogue_settings(campaign: CampaignConfig) -> Settings:
    """Return the settings that the catalogue depends on."""
    return campaign.catalogue_settings()


def measurement_settings(campaign: CampaignConfig, gpu: str, shard: str | None = None) -> Settings:
    """Return the settings that a job on a GPU depends on.

    Parameters
    ----------
    campaign
        The campaign.
    gpu
        Label of the GPU.
    shard
        `K/N` for a job that measures a shard, None for a calibration.
    """
    return {
        **campaign.gpu(gpu).model_dump(mode="json", include={"device", "precision", "control"}),
        **campaign.model_dump(mode="json", include={"seed", "measurement", "telemetry"}),
        "measurement_version": MEASUREMENT_VERSION,
        "shard": shard,
    }


def measuring_priority(campaign: CampaignConfig, *job: str) -> int:
    """Return the position of a job among the others of its GPU, shuffled with the campaign's seed.

    In the order of their clocks, operating points would be confounded with temperature and hour.

    Parameters
    ----------
    campaign
        The campaign.
    job
        What identifies the job: label, operating point, shard.
    """
    digest = hashlib.sha256("/".join([str(campaign.seed), *job]).encode()).digest()
    return 1 + int.from_bytes(digest[:4]) % _PRIORITIES


def dataset_settings(campaign: CampaignConfig) -> Settings:
    """Return the settings that the dataset depends on besides measurements: those that define completeness."""
    return {
        **campaign.model_dump(
            mode="json", include={"campaign", "networks", "passes", "measurement", "quantities", "reference"}
        ),
        "gpus": {
            label: gpu.model_dump(mode="json", exclude={"slurm", "control", "count"})
            for label, gpu in campaign.gpus.items()
        },
    }


def part(campaign: CampaignConfig, *keys: str) -> Settings:
    """Return the settings of a stage that reads only these top-level keys of the campaign."""
    return campaign.model_dump(mode="json", include=set(keys))


def figures_settings(campaign: CampaignConfig) -> Settings:
    """Return the settings that the figures depend on besides their data."""
    return campaign.model_dump(mode="json", include={"campaign": True, "passes": True, "fit": {"predictors"}})


def whole_node(gpu: GpuConfig, node: str, cards: int) -> GpuConfig:
    """Return a GPU whose jobs ask for all cards of a node, so that an index names one card and nothing runs beside it.

    Parameters
    ----------
    gpu
        The GPU's part of the campaign.
    node
        Name of the node.
    cards
        How many it has.
    """
    return _with_slurm(gpu, _of_cards(gpu, cards) | {"nodelist": node, "runtime": SURVEY_MIN})


def several(gpu: GpuConfig) -> GpuConfig:
    """Return a GPU whose jobs ask for as many of one node as its `count`, with cores and memory for each."""
    of_host = {name: gpu.count * getattr(gpu.slurm, name) for name in ("cpus_per_task", "mem_mb")}
    return _with_slurm(gpu, _of_cards(gpu, gpu.count) | of_host)


def _of_cards(gpu: GpuConfig, cards: int) -> Settings:
    gres = gpu.slurm.gres and f"{re.sub(r':[0-9]+$', '', gpu.slurm.gres)}:{cards}"
    return {"gres": gres, "gpu": gpu.slurm.gpu and cards}


def _with_slurm(gpu: GpuConfig, changes: Settings) -> GpuConfig:
    """Return a GPU whose jobs ask Slurm for something else."""
    return gpu.model_copy(update={"slurm": gpu.slurm.model_copy(update=changes)})


def slurm_resources(gpu: GpuConfig, attempt: int) -> dict[str, int | str | None]:
    """Return a GPU job's Slurm resources by the names of Snakemake's Slurm executor; None: Slurm's default.

    Parameters
    ----------
    gpu
        The GPU's part of the campaign.
    attempt
        1 for the first attempt; the run time grows with it, since a job that ran out of time goes on where it stopped.
    """
    asked = gpu.slurm
    extra = [f"--nodelist={asked.nodelist}" if asked.nodelist else "", asked.extra or ""]
    return {
        "slurm_partition": asked.partition,
        "slurm_account": asked.account,
        "gres": asked.gres,
        "gpu": asked.gpu,
        "gpu_model": asked.gpu_model,
        "runtime": asked.runtime * attempt,
        "cpus_per_task": asked.cpus_per_task,
        "mem_mb": asked.mem_mb,
        "qos": asked.qos,
        "constraint": asked.constraint,
        "slurm_extra": " ".join(filter(None, extra)) or None,
    }
