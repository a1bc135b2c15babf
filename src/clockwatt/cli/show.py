"""`clockwatt show`: a network on every GPU at every operating point, as a table and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clockwatt import config
from clockwatt.cli.answer_text import UNITS, columns
from clockwatt.cli.options import AsJson, Verbose
from clockwatt.cli.printing import (
    left_out_words,
    passed,
    precision,
    quantity,
    ratio,
    standard_words,
    sum_words,
    tf32_words,
    warnings_of,
    with_ends,
)
from clockwatt.cli.request_options import NETWORK, TRAINING, request_command
from clockwatt.cli.tables import print_whole, table_of
from clockwatt.schema import layout

if TYPE_CHECKING:
    from rich.table import Table

    from clockwatt.predict.answer import Answer
    from clockwatt.predict.answerer import OnGpu, Overview
    from clockwatt.predict.gpu_predictor import BestPoint
    from clockwatt.predict.request import Request

_BARS = "▁▂▃▄▅▆▇█"
_MOST_LINES = 24
_POINT = 12
"""Columns of an operating point, such as `sm1440 *`; longer ones take several lines."""
_FEWEST_POINTS = 2
"""From which there is something to draw against the clock."""


@request_command(
    *("network", "gpus", *(name for name in NETWORK[1:] if name != "operations"), "points", "passes", "precision"),
    *(*TRAINING, "host", "relative_to"),
    examples=(
        "clockwatt show",
        "clockwatt show resnet50",
        "clockwatt show resnet50 --gpu h200 --pass training --relative-to h100",
        "clockwatt show resnet50 --pass training --optimizer adamw --accumulate 4",
    ),
)
def show(
    request: Request,
    *,
    results: Annotated[
        Path | None,
        typer.Option(help="Results of a campaign; else results/, then the shipped ones.", show_default=False),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Without a network: how many passes to list.")] = _MOST_LINES,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show time, power and energy at all operating points."""
    from clockwatt.predict.api import load

    predictors = load(None if results is None else results / layout.PREDICTORS)
    if request.network is None:
        _print_least_energy(predictors.least_energy(request), most, as_json=as_json)
        return
    # a step of decoding is no training step
    both = "pass_" not in request.model_fields_set and request.cache_length is None
    shown = predictors.overviews(request, config.PASSES if both else [request.pass_])
    if as_json:
        print(json.dumps([one.to_dict() for one in shown], indent=2))
    else:
        _print(shown, verbose=verbose)


def _print(shown: list[Overview], *, verbose: bool) -> None:
    for one in shown:
        for gpu in one.gpus:
            kind = "VIRTUAL GPU" if gpu.virtual else gpu.gpu_name
            first = gpu.points[0]
            print(f"{passed(first)}, {precision(first)}, {gpu.gpu} ({kind})")
            print_whole(_table(gpu, verbose=verbose))
            print(*(sparklines(gpu) if verbose else ()), *_below(gpu, verbose=verbose), "", sep="\n")
        for line in left_out_words(one.left_out, f" in {one.pass_}"):
            print(line)
    if (sums := sum_words(answer for one in shown for answer in one.answers)) is not None:
        print(sums)
    print("In brackets: 90 % intervals.")
    unmeasured = [answer for one in shown for answer in one.answers if not answer.measured_point]
    if any(answer.intervals for answer in unmeasured):
        print("* Not measured at this operating point: estimated from other clocks.")
    if not all(answer.intervals for answer in unmeasured):
        print("* Without interval: not measured at this operating point, and too few other clocks were.")


def _table(gpu: OnGpu, *, verbose: bool) -> Table:
    table = table_of("point", "", *(name for name, _ in UNITS.values()))
    table.columns[0].max_width, table.columns[0].no_wrap = _POINT, False
    for answer in gpu.points:
        words = answer.point + ("" if answer.measured_point else " *")
        sources = list(columns(answer, verbose=verbose).items())
        for number, (source, estimate) in enumerate(sources):
            cells = (
                with_ends(getattr(estimate, name), estimate.intervals.get(name), unit)
                for name, (_, unit) in UNITS.items()
            )
            table.add_row("" if number else words, source, *cells)
            if answer.relative_to is not None and number == 0:
                table.add_row("", "  ×", *(ratio(answer.relative_to, name) for name in UNITS))
        table.add_section()
    return table


def _print_least_energy(found: Sequence[BestPoint], most: int, *, as_json: bool) -> None:
    """Print where networks took least energy; as text, the first `most` of them."""
    if as_json:
        print(json.dumps([best.to_dict() for best in found], indent=2))
        return
    print("Operating point of least measured energy. For all points: `clockwatt show NETWORK --precision PRECISION`.")
    for best in found[:most]:
        line = (
            f"  {re.sub('-b?float(16|32)$', '', best.network_id)}, {best.pass_}, {best.execution.words}, "
            f"{best.gpu}{' (VIRTUAL)' if best.virtual else ''}: "
            f"{quantity(best.energy_j, 'J')} in {quantity(best.time_s, 's')} at "
            f"{best.point}"
        )
        if best.point != best.reference_point:
            time = f"{100 * abs(best.more_time):.0f} % {'less' if best.more_time < 0 else 'more'} time"
            line += f"; {100 * best.less_energy:.0f} % less energy and {time} than at {best.reference_point}"
        print(line)
    if len(found) > most:
        print(f"  … and {len(found) - most} more: clockwatt show --most {len(found)}")


def sparklines(gpu: OnGpu) -> list[str]:
    """Each quantity against the SM clock in one line of bars.

    Of points with other settings beside the clock only those count that have most of them the same.
    """
    at = [(config.OperatingPoint.parse(point.point), point) for point in gpu.points]
    series: dict[tuple[int | None, int | None], list[tuple[int, Answer]]] = {}
    for asked, point in at:
        if asked.sm_clock_mhz is not None:
            others = (asked.memory_clock_mhz, asked.power_limit_w)
            series.setdefault(others, []).append((asked.sm_clock_mhz, point))
    longest = max(series.values(), key=len, default=[])
    if len(longest) < _FEWEST_POINTS:
        return []
    clocks = [clock for clock, _ in longest]
    lines = []
    for name, (words, unit) in UNITS.items():
        values = [getattr(answer, name) for _, answer in longest]
        if None in values:
            continue
        least = values.index(min(values))
        lines.append(
            f"{words:>10}  {bars(values)}  least {quantity(values[least], unit)} at sm{clocks[least]}, "
            f"most {quantity(max(values), unit)}"
        )
    return [*lines, f"{'':>10}  sm{clocks[0]} to sm{clocks[-1]}"] if lines else []


def bars(values: list[float]) -> str:
    """A character for each value, as high as it lies between the least and the most of them."""
    low, high = min(values), max(values)
    return "".join(_BARS[round((len(_BARS) - 1) * (value - low) / (high - low or 1.0))] for value in values)


def _below(gpu: OnGpu, *, verbose: bool) -> list[str]:
    """Warnings, how far held-out predictions are off, and where the predictors come from."""
    standard = next((point.relative_to for point in gpu.points), None)
    lines = [f"×: relative to {standard_words(standard)}"] if standard else []
    lines += [f"Warning: {warning}" for warning in warnings_of(gpu.points)]
    point = gpu.points[0]
    if (line := tf32_words(point)) is not None:
        lines.append(f"{point.point}: {line}" if len(gpu.points) > 1 else line)
    errors = {words: gpu.errors(name) for name, (words, _) in UNITS.items()}
    if verbose and any(errors.values()):  # as are the rows that they are of
        shown = ", ".join(f"{words} {_errors(values)}" for words, values in errors.items() if values)
        lines.append(f"Error of the held-out predictions on the host of the measurement: {shown}.")
    if verbose:
        lines.append(f"Predictors of {gpu.gpu}: {gpu.predictors}.")
        lines += [f"Note: {note}" for note in dict.fromkeys(one for at in gpu.points for one in at.notes)]
    return lines


def _errors(values: list[float]) -> str:
    """`4.4 %`, or the range of several operating points."""
    low, high = (f"{100 * end(values):.1f}" for end in (min, max))
    return f"{high} %" if low == high else f"{low} to {high} %"
