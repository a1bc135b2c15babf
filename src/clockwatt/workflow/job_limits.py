"""Whether any node can run a job: Slurm lets one that asks for more than there is wait for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from clockwatt.config import CampaignConfig, SlurmResources
from clockwatt.workflow import cluster
from clockwatt.workflow.cluster import Node, parse_gres
from clockwatt.workflow.settings import STAGES, several

PROFILE = Path("profiles/slurm/config.yaml")
"""Below the checkout, in which the workflow is run."""


def all_misfits(campaign: CampaignConfig) -> list[str]:
    """Return a message per GPU and stage whose jobs fit no node of the cluster.

    Raises
    ------
    SlurmUnavailableError
        If Slurm does not answer.
    """
    nodes = cluster.nodes()
    return [*misfits(campaign, nodes), *stage_misfits(nodes)]


def misfits(campaign: CampaignConfig, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield a message per GPU whose jobs fit no node, with the key and the resources of the best node.

    Parameters
    ----------
    campaign
        The campaign.
    nodes
        What `cluster.nodes` says.
    """
    offered = list(nodes)
    study = campaign.studies.parallel
    of_several = study.labels(campaign.gpus) if study else []
    for label, gpu in campaign.gpus.items():
        if complaint := _misfit(gpu.slurm, offered):
            yield f"gpus.{label}.slurm.{complaint}: jobs would wait for ever"
        elif label in of_several and (complaint := _misfit(several(gpu).slurm, offered)):
            yield (
                f"gpus.{label}.count: a job of studies.parallel asks for {gpu.count} times slurm.cpus_per_task and "
                f"slurm.mem_mb; {complaint}: jobs would wait for ever"
            )


def stage_misfits(nodes: Iterable[Node], profile: Path = PROFILE) -> Iterator[str]:
    """Yield a message per stage without a GPU that fits no node of its partition.

    Parameters
    ----------
    nodes
        What `cluster.nodes` says.
    profile
        Snakemake's profile, which may name a partition and cores; where it is not there, the rules' own hold.
    """
    settings = yaml.safe_load(profile.read_text(encoding="utf-8")) or {} if profile.is_file() else {}
    defaults, threads = _pairs(settings.get("default-resources")), _pairs(settings.get("set-threads"))
    offered = list(nodes)
    for stage, asked in STAGES.items():
        resources = SlurmResources(
            partition=defaults.get("slurm_partition"),
            cpus_per_task=int(threads.get(stage, asked.cores)),
            mem_mb=asked.mem_mb,
        )
        if complaint := _misfit(resources, offered):
            yield f"stage {stage}: {complaint}: it would wait for ever; see set-threads, default-resources in {profile}"


def _pairs(written: Any) -> dict[str, str]:
    """Parse `[name=value, …]` or `{name: value, …}` of a profile."""
    if isinstance(written, dict):
        return {str(name): str(value) for name, value in written.items()}
    pairs = (str(entry).partition("=") for entry in written or ())
    return {name: value for name, _, value in pairs}


def _misfit(asked: SlurmResources, offered: list[Node]) -> str | None:
    names = asked.partition.split(",") if asked.partition else None
    within = [node for node in offered if (node.partition in names if names else node.is_default)]
    if not within:
        known = ", ".join(sorted({node.partition for node in offered})) or "none"
        return f"partition: no partition {asked.partition!r} (there are: {known})" if names else None
    gpu_type, count = _gpus(asked)
    having = [node for node in within if _has(node, gpu_type, count)]
    if count and not having:
        known = ", ".join(
            sorted({f"gpu:{kind}:{n}" if kind else f"gpu:{n}" for node in within for kind, n in node.gpus})
        )
        wanted = f"gpu:{gpu_type}:{count}" if gpu_type else f"gpu:{count}"
        return f"{'gres' if asked.gres else 'gpu'}: no node has {wanted} (there are: {known or 'none'})"
    if (most := max(node.cpus for node in having)) < asked.cpus_per_task:
        return f"cpus_per_task: {asked.cpus_per_task} cores, and no such node has more than {most}"
    if (most := max(node.memory_mb for node in having)) < asked.mem_mb:
        return f"mem_mb: {asked.mem_mb} MB, and no such node has more than {most}"
    if not any(node.cpus >= asked.cpus_per_task and node.memory_mb >= asked.mem_mb for node in having):
        return f"cpus_per_task and mem_mb: no one node has {asked.cpus_per_task} cores and {asked.mem_mb} MB"
    return None


def _gpus(asked: SlurmResources) -> tuple[str | None, int]:
    """Return type and number of the GPUs that a job requests; (None, 0) for none."""
    if asked.gres:
        found = parse_gres(asked.gres) or parse_gres(f"{asked.gres}:1")
        return found[0] if found else (None, 0)
    return asked.gpu_model, asked.gpu or 0


def _has(node: Node, gpu_type: str | None, count: int) -> bool:
    return count == 0 or any(
        number >= count and (gpu_type is None or (kind or "").lower() == gpu_type.lower()) for kind, number in node.gpus
    )
