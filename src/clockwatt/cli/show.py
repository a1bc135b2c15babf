"""`clockwatt show`: a network on every GPU at every operating point, as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import answers_once, app
from clockwatt.cli.options import (
    AsJson,
    AssumeBranch,
    CacheLength,
    Dtype,
    InputBelow,
    InputDtype,
    Inputs,
    RelativeTo,
    Tf32,
)
from clockwatt.cli.printing import quantity, ratio, standard_words, with_ends
from clockwatt.errors import ClockwattError
from clockwatt.schema import layout

if TYPE_CHECKING:
    from rich.table import Table

    from clockwatt.predict.overview import AtPoint, OnGpu, Overview

_UNITS = {"time_s": ("time", "s"), "power_w": ("mean power", "W"), "energy_j": ("energy", "J")}
_BARS = "▁▂▃▄▅▆▇█"
_MOST_LINES = 24
_WIDEST = 300
_FEWEST_POINTS = 2
"""From which there is something to draw against the clock."""


@app.command()
@answers_once
def show(
    network: Annotated[
        str | None,
        typer.Argument(
            help="A campaign's network, or another with its --input; without one, where each that was measured whole "
            "took least energy."
        ),
    ] = None,
    inputs: Inputs = None,
    gpu: Annotated[list[str] | None, typer.Option("--gpu", help="Show these; else all that were measured.")] = None,
    point: Annotated[
        list[str] | None, typer.Option(help="Show this operating point too, though never measured.")
    ] = None,
    pass_: Annotated[str | None, typer.Option("--pass", help="inference or training; else both.")] = None,
    dtype: Dtype = "float32",
    input_dtype: InputDtype = None,
    input_below: InputBelow = None,
    assume_branch: AssumeBranch = None,
    cache_length: CacheLength = None,
    tf32: Tf32 = True,
    relative_to: RelativeTo = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Results of a campaign; else results/, or the shipped measurements where there is none."),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Without a network: the first so many of them.")] = _MOST_LINES,
    as_json: AsJson = False,
) -> None:
    """Show what a network costs on every GPU at every clock: measured, composed from its operations, or predicted."""
    from clockwatt.predict.library import load
    from clockwatt.predict.overview import overview, passes_of
    from clockwatt.predict.query import NetworkQuery

    if pass_ is not None and pass_ not in config.PASSES:
        raise ClockwattError(f"--pass {pass_}: choose {' or '.join(config.PASSES)}.")
    if network is None:
        for option, given in (
            ("--relative-to", relative_to), ("--input", inputs), ("--point", point), ("--dtype", dtype != "float32"),
            ("--input-dtype", input_dtype), ("--input-below", input_below), ("--assume-branch", assume_branch),
            ("--cache-length", cache_length),
        ):  # fmt: skip
            if given:
                raise ClockwattError(f"{option}: name a network; without one measured passes are shown as they are.")
        folder = load().validation_dir if results is None else results / layout.VALIDATION
        show_best_points(folder, most, as_json=as_json, gpus=gpu, pass_=pass_, tf32=tf32)
        return
    predictors = load(None if results is None else results / layout.PREDICTORS)
    query = NetworkQuery(network, inputs, dtype, input_dtype, input_below, assume_branch, cache_length)
    shown = [
        overview(
            predictors, predictors.traced(query, one), gpus=gpu, points=point or (), tf32=tf32, relative_to=relative_to
        )
        for one in passes_of(predictors, gpu)
        if pass_ is None or one == pass_
    ]
    if not shown:
        if pass_ is None:
            raise ClockwattError(
                f"{predictors.predictors_dir}: nothing could be learnt there, so nothing can be shown; "
                "`clockwatt fit` says what was missing."
            )
        raise ClockwattError(f"--pass {pass_}: nothing was fitted for it.")
    if as_json:
        print(json.dumps([one.to_dict() for one in shown], indent=2))
    else:
        _print(shown)


def _print(shown: list[Overview]) -> None:
    from rich.console import Console

    console = Console()
    wide = console.options.update(max_width=_WIDEST)
    for one in shown:
        for gpu in one.gpus:
            table = _table(one, gpu)
            # numbers are not cut where a terminal is narrow
            console.width = max(console.width, console.measure(table, options=wide).maximum)
            console.print(table)
            for line in [*sparklines(gpu), *_said_of(gpu)]:
                console.print(line, soft_wrap=True)
            console.print()
        for reason in one.left_out:
            console.print(f"Left out: {reason}")
    console.print("In brackets: where nine in ten passes like this one lie. What was measured whole has none.")
    unmeasured = [
        point.answer for one in shown for gpu in one.gpus for point in gpu.points if not point.answer.measured_point
    ]
    if any(answer.intervals for answer in unmeasured):
        console.print("* Nothing was measured at this operating point: the law of the clock speaks, from other points.")
    if not all(answer.intervals for answer in unmeasured):
        console.print("* without interval: nothing was measured at this operating point, and no law leads there.")


def _table(one: Overview, gpu: OnGpu) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    kind = "VIRTUAL, a modelled GPU" if gpu.virtual else gpu.gpu_name
    tf32 = "" if one.tf32 else " without TF32"
    table = Table(
        title=f"{one.network_id}, {one.pass_}{tf32}, {gpu.gpu} ({kind})",
        title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for heading in ("point", "", *(f"{name} (90 %)" for name, _ in _UNITS.values())):
        table.add_column(heading, no_wrap=True)
    standard = next((point.answer.relative_to for point in gpu.points), None)
    for name, _ in _UNITS.values() if standard else ():
        table.add_column(f"{name} ×", no_wrap=True)
    for point in gpu.points:
        answer = point.answer
        words = config.OperatingPoint.parse(answer.point).in_words + ("" if answer.measured_point else " *")
        if point.measured is not None:
            cells = (quantity(getattr(point.measured, name), unit) for name, (_, unit) in _UNITS.items())
            table.add_row(words, "measured", *cells)
            words = ""
        cells = (
            with_ends(getattr(answer.expected, name), answer.intervals.get(name), unit)
            for name, (_, unit) in _UNITS.items()
        )
        ratios = (ratio(answer.relative_to, name) for name in _UNITS) if answer.relative_to else ()
        table.add_row(words, "composed" if point.composed else "predicted", *cells, *ratios, end_section=True)
    return table


def show_best_points(
    validation_dir: Path,
    most: int,
    *,
    as_json: bool,
    gpus: list[str] | None = None,
    pass_: str | None = None,
    tf32: bool = True,
) -> None:
    """Where each network that was measured whole took least energy; on a terminal the first `most` of them.

    On some GPUs or in one pass alone, if they are given; `tf32` False leaves out what was measured with it.

    Raises
    ------
    DataFileError
        If nothing was validated, or the file is damaged.
    ClockwattError
        If no network was measured there.
    """
    from clockwatt.predict.overview import best_points

    everywhere = best_points(validation_dir)
    found = [
        best
        for best in everywhere
        if (not gpus or best.gpu in gpus) and pass_ in (None, best.pass_) and (tf32 or not best.tf32)
    ]
    if everywhere and not found:
        known = ", ".join(sorted({f"{best.gpu} in {best.pass_}" for best in everywhere}))
        raise ClockwattError(f"no network was measured whole there; some were on {known}.")
    if as_json:
        print(json.dumps([best.to_dict() for best in found], indent=2))
        return
    print("Least energy of a pass, as measured; `clockwatt show NETWORK` has every point, with intervals:")
    for best in found[:most]:
        without = "" if best.tf32 else " without TF32"
        line = (
            f"  {best.network_id} {best.pass_}{without}, {best.gpu}{' (VIRTUAL)' if best.virtual else ''}: "
            f"{quantity(best.energy_j, 'J')} in {quantity(best.time_s, 's')} at "
            f"{config.OperatingPoint.parse(best.point).in_words}"
        )
        if best.point != best.fastest_point:
            line += (
                f"; {best.less_energy:.0%} less energy and {best.more_time:.0%} more time than at "
                f"{config.OperatingPoint.parse(best.fastest_point).in_words}, the fastest of {best.points}"
            )
        print(line)
    if len(found) > most:
        print(f"  … and {len(found) - most} more: clockwatt show --most {len(found)}")


def sparklines(gpu: OnGpu) -> list[str]:
    """Each quantity against the SM clock in one line of bars, of what was measured whole or is answered.

    Of points with other settings beside the clock only those count that have most of them the same.
    """
    at = [(config.OperatingPoint.parse(point.answer.point), point) for point in gpu.points]
    series: dict[tuple[int | None, int | None], list[tuple[int, AtPoint]]] = {}
    for asked, point in at:
        if asked.sm_clock_mhz is not None:
            others = (asked.memory_clock_mhz, asked.power_limit_w)
            series.setdefault(others, []).append((asked.sm_clock_mhz, point))
    longest = max(series.values(), key=len, default=[])
    if len(longest) < _FEWEST_POINTS:
        return []
    clocks = [clock for clock, _ in longest]
    lines = []
    for name, (words, unit) in _UNITS.items():
        values = [getattr(point.measured or point.answer.expected, name) for _, point in longest]
        if None in values:
            continue
        least = values.index(min(values))
        lines.append(
            f"{words:>10}  {bars(values)}  least {quantity(values[least], unit)} at {clocks[least]} MHz, "
            f"most {quantity(max(values), unit)}"
        )
    return [*lines, f"{'':>10}  {clocks[0]} to {clocks[-1]} MHz"] if lines else []


def bars(values: list[float]) -> str:
    """A character for each value, as high as it lies between the least and the most of them."""
    low, high = min(values), max(values)
    return "".join(_BARS[round((len(_BARS) - 1) * (value - low) / (high - low or 1.0))] for value in values)


def _said_of(gpu: OnGpu) -> list[str]:
    """Where the predictors come from, and how far they were off for this network."""
    said = [f"Predictors of {gpu.gpu}: {gpu.predictors}."]
    standard = next((point.answer.relative_to for point in gpu.points), None)
    said += [f"×: relative to {standard_words(standard)}"] if standard else []
    missed = {words: error for name, (words, _) in _UNITS.items() if (error := gpu.missed(name)) is not None}
    if missed:
        told = ", ".join(f"{words} {error:.1%}" for words, error in missed.items())
        said.append(f"Predictors that never saw the network were off by (median over points): {told}.")
    return said
