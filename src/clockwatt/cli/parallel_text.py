"""Answers of `clockwatt predict` and `recommend` about several GPUs on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clockwatt.cli.answer_text import question
from clockwatt.cli.printing import MOST_ROWS, binary, left_out_words, quantity, rounded
from clockwatt.cli.tables import print_whole, table_of

if TYPE_CHECKING:
    from clockwatt.predict.parallel.answer import ParallelAnswer
    from clockwatt.predict.parallel.choice import ParallelRecommendation, Placement


def print_parallel(answer: ParallelAnswer) -> None:
    """Print a step on several GPUs: one line, a row for each rank that differs, and what limits it."""
    from rich.console import Console

    from clockwatt.predict.answerer import lacks_memory
    from clockwatt.predict.parallel.answer import gpus_in_words

    throughput = "" if answer.items_per_s is None else f"; {rounded(answer.items_per_s)} {answer.unit}/s"
    Console().print(
        f"{question(answer.single)}, {answer.strategy} on {gpus_in_words(answer.gpus, answer.nodes)}: "
        f"{quantity(answer.time_s, 's')}, {quantity(answer.energy_j, 'J')} predicted; "
        f"speed-up {answer.speed_up:.2f}, efficiency {100 * answer.efficiency:.0f} %; {answer.limited_by}{throughput}",
        soft_wrap=True, style="bold", highlight=False,
    )  # fmt: skip
    print()
    table = table_of("rank", "kernel time", "energy", "memory", *(["first module"] if answer.stages else []), between=2)
    for rank, energy_j in enumerate(answer.energies_j if answer.stages else answer.energies_j[:1]):
        memory = "–" if answer.memory_bytes is None else binary(answer.memory_bytes[rank])
        stage = [answer.stages[rank]] if answer.stages else []
        table.add_row(
            str(rank) if stage else "each", quantity(answer.busy_s[rank], "s"), quantity(energy_j, "J"), memory, *stage
        )
    print_whole(table)
    single = answer.single
    lacking = filter(None, [lacks_memory(single)])
    known = single.host
    host = f", {known.factor:.2f} × that on the median host" if known is not None and known.name else ""
    other = "other stages" if answer.stages else "communication"
    lines = [
        " ".join([f"One GPU: {quantity(single.time_s, 's')}, {quantity(single.energy_j, 'J')}.", *lacking]),
        f"Communications over {answer.links}: {quantity(answer.communication_s, 's')}.",
        f"Device time: {quantity(answer.device_s, 's')}; waiting for {other}: {quantity(answer.exposed_s, 's')} of it.",
        f"Host time: {quantity(answer.host_s, 's')}{host}.",
        *(f"Warning: {warning}" for warning in answer.warnings),
    ]
    print(*lines, sep="\n")


def print_parallel_recommendation(answer: ParallelRecommendation) -> None:
    """Print the candidates, best first, and in words what the best costs relative to one GPU."""
    from rich.console import Console

    console, single = Console(), answer.single
    console.print(
        f"{question(single)}: least {answer.objective} per {single.unit.removesuffix('s')}", soft_wrap=True,
        style="bold", highlight=False,
    )  # fmt: skip
    console.print()
    numbers = ("step", f"{single.unit}/s", "speed ×", "energy ×", "memory")
    varies = {name for name in ("nodes", "point") if len({getattr(one, name) for one in answer.candidates}) > 1}
    places = [name for name in ("nodes", "GPUs", "strategy", "point") if name in varies | {"GPUs", "strategy"}]
    table = table_of(*places, *numbers, right=("nodes", "GPUs", *numbers), between=2)
    for number, one in enumerate(answer.candidates[:MOST_ROWS]):
        place = {"nodes": str(one.nodes), "GPUs": str(one.gpus), "strategy": one.strategy or "–", "point": one.point}
        memory = "–" if one.memory_bytes is None else binary(one.memory_bytes)
        table.add_row(
            *(place[name] for name in places), quantity(one.time_s, "s"), rounded(one.items_per_s),
            f"{one.speed_up:.2f}", f"{one.energy_ratio:.2f}", memory,
            style="bold" if number == 0 else None if number < answer.allowed else "dim",
        )  # fmt: skip
    print_whole(table)
    fastest = max(answer.candidates[: answer.allowed], key=lambda one: one.speed_up)
    step = f"a step: {quantity(single.time_s, 's')}, {quantity(single.energy_j, 'J')}"
    lines = [
        f"×: relative to one GPU at {single.point} ({step}), per {single.unit.removesuffix('s')}.",
        f"Best: {_words(answer.best, single.unit)}",
        *([] if fastest is answer.best else [f"Fastest: {_words(fastest, single.unit)}"]),
        *left_out_words(answer.left_out),
        *(f"Warning: {warning}" for warning in answer.warnings),
    ]
    if len(answer.candidates) > MOST_ROWS:
        lines.append(f"{len(answer.candidates) - MOST_ROWS} more candidates with --json.")
    if answer.allowed < len(answer.candidates):
        lines.append(f"{len(answer.candidates) - answer.allowed} candidates exceed the limits (listed last, dimmed).")
    print(*lines, sep="\n")


def _words(one: Placement, unit: str) -> str:
    """Return `2 GPUs, ddp: 1.93 times as fast as one GPU, 4 % more energy per image.`, likewise for others."""
    from clockwatt.predict.parallel.answer import gpus_in_words

    where = "one GPU" if one.strategy is None else f"{gpus_in_words(one.gpus, one.nodes)}, {one.strategy}"
    where += "" if one.point == "default" else f", at {one.point}"
    percent = round(100 * (one.energy_ratio - 1))
    energy = f"{abs(percent)} % {'more' if percent > 0 else 'less'}" if percent else "the same"
    if one.strategy is None and not percent:
        return f"{where}."
    return f"{where}: {one.speed_up:.2f} times as fast as one GPU, {energy} energy per {unit.removesuffix('s')}."
