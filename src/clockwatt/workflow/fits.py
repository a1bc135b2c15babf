"""Whether any node can run a job: Slurm lets one that asks for more than there is wait for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clockwatt.config import CampaignConfig, SlurmResources
from clockwatt.workflow.cluster import Node, parse_gres


def misfits(campaign: CampaignConfig, nodes: Iterable[Node]) -> Iterator[str]:
    """What of a campaign's jobs fits no node, a message per GPU that names the key and what the best node has.

    Parameters
    ----------
    campaign
        The campaign.
    nodes
        What `cluster.nodes` says.
    """
    offered = list(nodes)
    for label, gpu in campaign.gpus.items():
        if complaint := _misfit(gpu.slurm, offered):
            yield f"gpus.{label}.slurm.{complaint}: jobs would wait for ever"


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
    """Type and number of the GPUs that a job asks for; (None, 0) for none."""
    if asked.gres:
        found = parse_gres(asked.gres) or parse_gres(f"{asked.gres}:1")
        return found[0] if found else (None, 0)
    return asked.gpu_model, asked.gpu or 0


def _has(node: Node, gpu_type: str | None, count: int) -> bool:
    return count == 0 or any(
        number >= count and (gpu_type is None or (kind or "").lower() == gpu_type.lower()) for kind, number in node.gpus
    )
