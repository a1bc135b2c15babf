"""An answer of `clockwatt predict --gpus-per-node` on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clockwatt.cli.answer_text import question
from clockwatt.cli.printing import binary, quantity, rounded

if TYPE_CHECKING:
    from clockwatt.predict.parallel.answer import ParallelAnswer


def print_parallel(answer: ParallelAnswer) -> None:
    """Print a step on several GPUs: one line, a row for each rank, and what limits it."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    throughput = "" if answer.items_per_s is None else f"; {rounded(answer.items_per_s)} {answer.unit}/s"
    console.print(
        f"{question(answer.single)}, {answer.strategy} on {answer.gpus} GPUs: {quantity(answer.time_s, 's')}, "
        f"{quantity(answer.energy_j, 'J')} predicted; speed-up {answer.speed_up:.2f}, efficiency "
        f"{100 * answer.efficiency:.0f} %; {answer.limited_by}{throughput}",
        soft_wrap=True, style="bold", highlight=False,
    )  # fmt: skip
    console.print()
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("rank", "kernels", "energy", "memory", *(["first module"] if answer.stages else [])):
        table.add_column(heading, no_wrap=True)
    for rank, energy_j in enumerate(answer.energies_j):
        memory = "–" if answer.memory_bytes is None else binary(answer.memory_bytes[rank])
        stage = [answer.stages[rank]] if answer.stages else []
        table.add_row(str(rank), quantity(answer.busy_s[rank], "s"), quantity(energy_j, "J"), memory, *stage)
    console.print(table)
    single = answer.single
    known = single.host
    host = f", {known.factor:.2f} × the median host" if known is not None and known.name else ""
    other = "other stages" if answer.stages else "communication"
    lines = [
        f"One GPU: {quantity(single.time_s, 's')}, {quantity(single.energy_j, 'J')}.",
        f"Communications over {answer.links}: {quantity(answer.communication_s, 's')}.",
        f"Device {quantity(answer.device_s, 's')}, of which it waits {quantity(answer.exposed_s, 's')} for {other}.",
        f"Host {quantity(answer.host_s, 's')}{host}. This answer has no intervals.",
        *(f"Warning: {warning}" for warning in answer.warnings),
    ]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
