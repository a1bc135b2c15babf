"""A record as a screenful."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockwatt.cli.printing import quantity

if TYPE_CHECKING:
    from rich.table import Table

_PHASES_SHOWN = 12
_LABEL_WIDTH, _COLUMN_WIDTH = 26, 26
"""Of the table that has a column for each GPU of each run; where it does not fit, there is a row for each."""

_UNKNOWN = "–"


def print_record(summary: dict[str, Any], folder: Path) -> None:
    """Print what a record says to standard error.

    Parameters
    ----------
    summary
        As `telemetry.recording.summary.summarise` makes it.
    folder
        Of the record.
    """
    from rich.console import Console  # here, because every command imports this file
    from rich.markup import escape

    console = Console(stderr=True)
    point = "" if summary["point"] == "default" else f" at {summary['point']}"
    command = escape(shlex.join(summary["command"]).replace("\n", " ")[:200])
    console.print(f"[bold]{escape(summary['name'])}[/bold]{point}, recorded on host {summary['host']}: {command}")
    if summary["virtual"]:
        console.print("[red]VIRTUAL GPU: nothing was measured on real hardware.[/red]")
    for run in summary["runs"]:
        ending = run["ending"] or "cut off"
        processor = "" if run["processor_s"] is None else f", CPU time {quantity(run['processor_s'], 's')}"
        memory = _bytes(run["memory_max_bytes"])
        console.print(
            f"Run {run['number']}: {ending} after {quantity(run['time_s'], 's')}{processor}, host memory {memory}."
        )
        for note in run["notes"]:
            console.print(f"[yellow]  {escape(note)}[/yellow]")
    columns = sum(len(run["gpus"]) for run in summary["runs"])
    if not summary["gpus"]:
        console.print(_host(summary))
    elif _LABEL_WIDTH + columns * _COLUMN_WIDTH <= max(console.width, _LABEL_WIDTH + 2 * _COLUMN_WIDTH):
        console.print(_gpus(summary))
    else:
        console.print(_many_gpus(summary))
    if neighbours := [gpu["uuid"] for gpu in summary["gpus"] if gpu["computed_on"] is False]:
        console.print(f"Neighbours, which the program could not compute on: {', '.join(neighbours)}.")
    for uuid, told in summary["over_runs"].items():
        time, energy = told["time_s"], told["energy_j"]
        console.print(
            f"{uuid}, {time['runs']:.0f} runs: {quantity(time['mean'], 's')} ± {quantity(time['deviation'], 's')}, "
            f"{quantity(energy['mean'], 'J')} ± {quantity(energy['deviation'], 'J')}."
        )
    if any(run["phases"] for run in summary["runs"]):
        console.print(phases_table(summary))
    console.print(_versions(summary))
    for note in summary["notes"]:
        console.print(f"[yellow]{escape(note)}[/yellow]")
    console.print(f"Record: {escape(str(folder))} (summary.json, figure.png)")


def _gpus(summary: dict[str, Any]) -> Table:
    """A column for each GPU of each run."""
    from rich.table import Table

    names = {gpu["uuid"]: gpu for gpu in summary["gpus"]}
    columns = [(run, uuid) for run in summary["runs"] for uuid in run["gpus"]]
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    for run, uuid in columns:
        gpu = names[uuid]
        several = f"run {run['number']}, " if len(summary["runs"]) > 1 else ""
        table.add_column(f"{several}{gpu['name']}\n{uuid}", justify="right", overflow="fold")
    for label, show in _ROWS:
        table.add_row(label, *(show(run["gpus"][uuid]) for run, uuid in columns))
    return table


def _many_gpus(summary: dict[str, Any]) -> Table:
    """A row for each GPU of each run."""
    from rich.table import Table

    table = Table(show_edge=False, pad_edge=False)
    for heading in ("run", "GPU", "counter", "integrated", "mean", "peak", "°C", "MHz", "busy", "memory"):
        table.add_column(heading, justify="left" if heading == "GPU" else "right", overflow="fold")
    for run in summary["runs"]:
        for uuid, told in run["gpus"].items():
            table.add_row(
                str(run["number"]), uuid,
                _quantity("energy_counter_j", "J")(told), _quantity("energy_integrated_j", "J")(told),
                _number("power_mean_w", "W")(told), _number("power_max_w", "W")(told),
                _number("temperature_max_c", "")(told), _number("sm_clock_loaded_mhz", "")(told),
                _number("gpu_utilization_percent", "%")(told), _bytes(told["memory_used_max_bytes"]),
            )  # fmt: skip
    return table


def _number(key: str, unit: str, digits: int = 0) -> Callable[[dict[str, Any]], str]:
    return lambda told: _UNKNOWN if told[key] is None else f"{told[key]:.{digits}f} {unit}"


def _quantity(key: str, unit: str) -> Callable[[dict[str, Any]], str]:
    return lambda told: _UNKNOWN if told[key] is None else quantity(told[key], unit)


def _range(*keys: str, unit: str) -> Callable[[dict[str, Any]], str]:
    def show(told: dict[str, Any]) -> str:
        values = [told[key] for key in keys]
        return _UNKNOWN if None in values else f"{' / '.join(f'{value:.0f}' for value in values)} {unit}"

    return show


def _throttled(told: dict[str, Any]) -> str:
    shares = told["throttled_share"]
    if shares is None:
        return _UNKNOWN
    return "\n".join(f"{name} {100 * share:.0f} %" for name, share in sorted(shares.items())) or "no"


def _idle(told: dict[str, Any]) -> str:
    contexts = told["contexts_before"]
    known = {None: "", 0: " (no context)"}.get(contexts, f" ({contexts} contexts)")
    return _number("power_idle_before_w", "W", 1)(told) + known


_ROWS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("energy, counter", _quantity("energy_counter_j", "J")),
    ("energy, integrated", _quantity("energy_integrated_j", "J")),
    ("difference", lambda told: "–" if (off := told["energy_difference"]) is None else f"{100 * off:+.2f} %"),
    ("mean power", _number("power_mean_w", "W", 1)),
    ("peak power", _number("power_max_w", "W", 1)),
    ("power limit", _number("power_limit_w", "W")),
    ("idle power, before the run", _idle),
    ("idle power, context open", _number("power_idle_with_context_w", "W", 1)),
    ("temperature, start / mean / peak",
     _range("temperature_start_c", "temperature_mean_c", "temperature_max_c", unit="°C")),
    ("SM clock, least / median / most",
     _range("sm_clock_min_mhz", "sm_clock_median_mhz", "sm_clock_max_mhz", unit="MHz")),
    ("SM clock under load", _number("sm_clock_loaded_mhz", "MHz")),
    ("throttled by", _throttled),
    ("GPU busy", _number("gpu_utilization_percent", "%")),
    ("memory busy", _number("memory_utilization_percent", "%")),
    ("memory in use, most", lambda told: _bytes(told["memory_used_max_bytes"])),
)  # fmt: skip


def _bytes(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value / 2**30:.2f} GiB"


def _host(summary: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table("run", "processors busy, per socket", "hottest processor", "memory in use, most", show_edge=False)
    for run in summary["runs"]:
        host = run["host"]
        busy, hot = host["cpu_utilization_percent"], host["cpu_temperature_max_c"]
        table.add_row(
            str(run["number"]),
            _UNKNOWN if busy is None else " / ".join(f"{value:.0f} %" for value in busy),
            "no sensor" if hot is None else f"{max(hot):.0f} °C",
            _bytes(host["memory_max_bytes"]),
        )
    return table


def phases_table(summary: dict[str, Any]) -> Table:
    """Return a row for each name of the phases of each run, with time, energy and mean power."""
    from rich.markup import escape
    from rich.table import Table

    uuids = [gpu["uuid"] for gpu in summary["gpus"]]
    table = Table("run", "phase", show_edge=False, pad_edge=False)
    for heading in ("count", "time", "mean"):
        table.add_column(heading, justify="right")
    for heading in (*(f"energy\n{uuid}" for uuid in uuids), *(f"mean power\n{uuid}" for uuid in uuids)):
        table.add_column(heading, justify="right", overflow="fold")
    for run in summary["runs"]:
        for phase in run["phases"][:_PHASES_SHOWN]:
            on = [phase["gpus"].get(uuid, {}) for uuid in uuids]
            notes = [f"one of {phase['processes']} processes"] if phase["processes"] > 1 else []
            notes += [f"{phase['unfinished']} unfinished"] if phase["unfinished"] else []
            told = f" ({', '.join(notes)})" if notes else ""
            table.add_row(
                str(run["number"]), escape(phase["name"]) + told, str(phase["count"]),
                quantity(phase["time_s"], "s"), quantity(phase["time_mean_s"], "s"),
                *(_quantity("energy_j", "J")({"energy_j": None} | told) for told in on),
                *(_number("power_mean_w", "W", 1)({"power_mean_w": None} | told) for told in on),
            )  # fmt: skip
        if (more := len(run["phases"]) - _PHASES_SHOWN) > 0:
            table.add_row("", f"… {more} more names in summary.json")
    return table


def _versions(summary: dict[str, Any]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")
    for what, version in summary["versions"].items():
        table.add_row(what, escape(version))
    return table
