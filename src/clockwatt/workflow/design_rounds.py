"""Estimate the measuring cost of each round of a design."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from clockwatt.config import CampaignConfig
from clockwatt.io import files
from clockwatt.measure.steps.procedure import expected_duration_s
from clockwatt.schema import layout
from clockwatt.schema.records import ENERGY, OPERATION_SCHEMA


@dataclass(frozen=True)
class RoundCost:
    """One round on one GPU at one operating point."""

    number: int
    label: str  # of the GPU
    operations: int  # each pass counted
    rows: int  # all execution settings and repetitions
    gpu_hours: float


def round_costs(config: CampaignConfig, catalogue_dir: Path) -> list[RoundCost]:
    """Return the cost of each round of a campaign's design on each of its GPUs, measured or not.

    Raises
    ------
    DataFileError
        If the catalogue is missing or damaged.
    """
    columns = ["pass", "operation_class", "dtype", "device_work"]
    columns += ["measured_execution", "measured_quantities", "design_round"]
    table = files.read_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA, columns).to_pylist()
    drawn = [row for row in table if row["design_round"] is not None and row["pass"] in config.passes]
    costs = []
    for number in sorted({row["design_round"] for row in drawn}):
        of_round = [row for row in drawn if row["design_round"] == number]
        for label, gpu in config.gpus.items():
            durations_s = [
                expected_duration_s(
                    config.measurement,
                    device_work=row["device_work"],
                    energy=ENERGY in (row["measured_quantities"] or config.quantities),
                )
                for row in of_round
                for _ in gpu.execution_of(row["measured_execution"], (row["operation_class"], row["dtype"]))
                for _ in range(config.measurement.repetitions)
            ]
            costs.append(RoundCost(number, label, len(of_round), len(durations_s), sum(durations_s) / 3600))
    return costs


def show_rounds(costs: list[RoundCost]) -> None:
    """Print what rounds cost as a table; nothing where there is no design."""
    if not costs:
        return
    table = Table(
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title="Rounds of the key `design`, at one operating point"
    )
    for heading in ("round", "GPU"):
        table.add_column(heading)
    for heading in ("operations", "measurements", "GPU-hours"):
        table.add_column(heading, justify="right")
    for cost in costs:
        table.add_row(str(cost.number), cost.label, str(cost.operations), str(cost.rows), f"{cost.gpu_hours:.2f}")
    Console().print(table)
