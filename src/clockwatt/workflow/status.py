"""How far a campaign is, from the store: nothing is asked of Slurm or of Snakemake."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.measure import tasks
from clockwatt.measure.store import Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema.records import OK


@dataclass(frozen=True)
class PointStatus:
    """How many measurements of a GPU at an operating point are finished, by status."""

    label: str
    point: OperatingPoint
    wanted: int
    finished: Counter[str]


def campaign_status(config: CampaignConfig, catalogue_dir: Path, store_dir: Path) -> list[PointStatus]:
    """Progress of every GPU at every operating point.

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


def show_status(points: list[PointStatus]) -> None:
    """Print the progress as a table."""
    table = Table()
    table.add_column("GPU")
    table.add_column("point")
    for heading in ("finished", "of", "not ok"):
        table.add_column(heading, justify="right")
    for status in points:
        done = status.finished.total()
        colour = "green" if done == status.wanted else "yellow" if done else "red"
        unwell = ", ".join(f"{count} {name}" for name, count in sorted(status.finished.items()) if name != OK)
        table.add_row(status.label, str(status.point), f"[{colour}]{done}[/]", str(status.wanted), unwell or "0")
    Console().print(table)
