"""Report the progress of a campaign from the store, and its jobs from Slurm, without Snakemake."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.measure import tasks
from clockwatt.measure.store import Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema.records import OK
from clockwatt.workflow.cluster import QueuedJob, my_jobs, optional

_NAMED = 3


_RATE_OVER_S = 3600.0
_WITHIN_A_SESSION_S = 300.0
"""Rows further apart than this belong to different spells of work."""


@dataclass(frozen=True)
class Pace:
    """Recent rate of rows over all jobs, and the number of rows left."""

    rows_per_hour: float
    left: int

    @property
    def left_s(self) -> float:
        """Seconds until all is measured at the current rate."""
        return self.left / self.rows_per_hour * 3600


@dataclass(frozen=True)
class PointStatus:
    """Number of finished measurements of a GPU at an operating point, by status."""

    label: str
    point: OperatingPoint
    wanted: int
    finished: Counter[str]


def campaign_status(config: CampaignConfig, catalogue_dir: Path, store_dir: Path) -> list[PointStatus]:
    """Return the progress of every GPU at every operating point.

    Raises
    ------
    DataFileError
        If the catalogue or a segment of the store is damaged.
    """
    result = []
    for label, gpu in config.gpus.items():
        wanted = [
            (tasks.key(subject), subject.energy)
            for networks in (False, True)
            for subject in tasks.subjects(config, gpu, Shard(1, 1, networks), catalogue_dir)
        ]
        for point in gpu.points:
            finished = Store(store_dir, config, label, point).finished()
            counts = Counter(
                finished[key].status
                for key, energy in wanted
                if key in finished and finished[key].is_enough(energy=energy)
            )
            result.append(PointStatus(label, point, len(wanted), counts))
    return result


def pace(config: CampaignConfig, points: list[PointStatus], store_dir: Path, now_s: float) -> Pace | None:
    """Return the rate of the last hour; None where nothing was finished in it.

    Parameters
    ----------
    config, points, store_dir
        The campaign, its progress and its store.
    now_s
        Seconds since the epoch.

    Raises
    ------
    DataFileError
        If a segment is foreign.
    """
    ends_s = sorted(
        end_s
        for label, gpu in config.gpus.items()
        if gpu.virtual_model is None  # whose clock is its own
        for point in gpu.points
        for end_s in Store(store_dir, config, label, point).ended_s()
        if now_s - _RATE_OVER_S <= end_s <= now_s
    )
    if len(ends_s) < 2 or now_s - ends_s[-1] > _WITHIN_A_SESSION_S:
        return None
    worked_s = sum(min(later - end_s, _WITHIN_A_SESSION_S) for end_s, later in itertools.pairwise(ends_s))
    left = sum(status.wanted - status.finished.total() for status in points)
    return Pace((len(ends_s) - 1) / max(worked_s, 1.0) * 3600, left)


def show_pace(found: Pace | None) -> None:
    """Print the rate and the expected end."""
    if found is None or not found.left:
        return
    end = datetime.now().astimezone() + timedelta(seconds=found.left_s)
    Console().print(
        f"{found.rows_per_hour:.0f} measurements an hour, {found.left} left: until about {end:%Y-%m-%d %H:%M}."
    )


def queue_lines(config: CampaignConfig, jobs: Iterable[QueuedJob], folder: Path) -> list[str]:
    """Return a line per state and reason with the campaign's jobs in Slurm, which run in `folder`."""
    held: dict[tuple[str, str], list[str]] = {}
    for job in jobs:
        rule, _, wildcards = job.comment.removeprefix("rule_").partition("_wildcards_")
        label = next((label for label in config.gpus if wildcards.startswith(f"{label}_")), None)
        here = Path(job.folder).resolve() == folder.resolve()
        if here and job.comment.startswith("rule_") and (label or not wildcards):
            held.setdefault((job.state, job.reason), []).append(f"{rule} {wildcards}".strip())
    lines = []
    for (state, reason), names in sorted(held.items(), key=lambda item: -len(item[1])):
        why = f" ({reason})" if reason not in ("", "None") else ""
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lines.append(f"{len(names)} {state.lower()}{why}: {', '.join(names[:_NAMED])}{more}")
    return lines


def show_queue(config: CampaignConfig) -> None:
    """Print the state of the caller's Slurm jobs of this campaign."""
    with optional("Jobs in Slurm"):
        for line in queue_lines(config, my_jobs(), Path.cwd()):
            print(line)


def show_status(points: list[PointStatus]) -> None:
    """Print the progress as a table."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("GPU")
    table.add_column("point")
    for heading in ("done", "of", "left", "failed"):
        table.add_column(heading, justify="right")
    for status in points:
        done = status.finished.total()
        colour = "green" if done == status.wanted else "yellow" if done else "red"
        unwell = ", ".join(f"{count} {name}" for name, count in sorted(status.finished.items()) if name != OK)
        table.add_row(
            status.label, str(status.point), f"[{colour}]{done}[/]", str(status.wanted), str(status.wanted - done),
            unwell or "0",
        )  # fmt: skip
    Console().print(table)
