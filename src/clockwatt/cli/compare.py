"""`clockwatt compare`: two networks, or one under two settings or on two GPUs, side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from clockwatt.cli.options import AsJson
from clockwatt.cli.predict import loaded
from clockwatt.cli.request_options import FOLDERS, NETWORK, TRAINING, request_command
from clockwatt.errors import ClockwattError, RequestError
from clockwatt.predict.answer import RATIOS

if TYPE_CHECKING:
    from clockwatt.predict.answer import Answer, Ends
    from clockwatt.predict.request import Request


@request_command(
    *("network", "gpu", *(name for name in NETWORK[1:] if name != "operations"), "point", "pass_", "precision"),
    *(*TRAINING, "host", *FOLDERS),
    examples=(
        "clockwatt compare resnet50 resnet101 --input 64,3,224,224 --gpu h200",
        "clockwatt compare resnet50 --gpu h200 --to-precision bf16-mixed",
        "clockwatt compare vit_b_16 --gpu h200 --to-gpu h100",
        "clockwatt compare models:before models:after --input 8,128 --gpu h200",
    ),
)
def compare(
    request: Request,
    *,
    other: Annotated[str | None, typer.Argument(help="Network to compare it with; else the same.")] = None,
    to_gpu: Annotated[str | None, typer.Option(help="GPU to compare with.")] = None,
    to_point: Annotated[str | None, typer.Option(help="Operating point to compare with.")] = None,
    to_precision: Annotated[str | None, typer.Option(help="Precision to compare with.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two networks, settings or GPUs."""
    given = {"network": other, "gpus": to_gpu, "points": to_point, "precision": to_precision}
    changed = {name: (value,) if name in ("gpus", "points") else value for name, value in given.items() if value}
    if not changed:
        raise RequestError("nothing to compare with: give a second network, {to_gpu}, {to_point} or {to_precision}.")
    if request.network is None:
        raise RequestError("give a network, such as resnet50.")
    try:
        second_request = request.of(**request.model_dump() | changed)
    except RequestError as error:
        raise RequestError(error.text.replace("{precision}", "{to_precision}")) from error
    except ClockwattError as error:
        raise RequestError(f"{{to_precision}} {str(error).removeprefix('precision ')}") from error
    predictors = loaded(request)
    try:
        predictors.gpu_at(second_request)
    except RequestError as error:
        raise RequestError(error.text.replace("{gpu}", "{to_gpu}" if to_gpu else "{gpu}")) from error
    first = predictors.ask(request)
    second = predictors.related(predictors.ask(second_request), first)
    if as_json:
        print(json.dumps([first.to_dict(), second.to_dict()], indent=2))
    else:
        print_comparison(first, second)


def print_comparison(first: Answer, second: Answer) -> None:
    """Print both answers and their ratios; `second` is relative to `first`."""
    from clockwatt.cli.answer_text import UNITS, question
    from clockwatt.cli.printing import binary, ratio, with_ends
    from clockwatt.cli.tables import print_whole, table_of

    relative = second.relative_to
    assert relative is not None
    table = table_of("", "A (90 %)", "B (90 %)", "B / A (90 %)", "B takes")
    both = {"A": first, "B": second}
    for name, (words, unit) in UNITS.items():
        cells = (with_ends(getattr(one, name), one.intervals.get(name), unit) for one in both.values())
        table.add_row(
            words.removeprefix("mean "), *cells, ratio(relative, name), _verdict(relative.intervals.get(RATIOS[name]))
        )
    memories = [one.memory for one in both.values() if one.memory is not None]
    if len(memories) == len(both):
        sizes = [one.allocated_bytes for one in memories]
        cells = (binary(one.allocated_bytes, (one.allocated_low_bytes, one.allocated_high_bytes)) for one in memories)
        (low, high), (other_low, other_high) = ((one.allocated_low_bytes, one.allocated_high_bytes) for one in memories)
        ends = (1.0, 1.0) if sizes[0] == sizes[1] else (other_low / high, other_high / low)
        table.add_row("memory", *cells, f"{sizes[1] / sizes[0]:.2f}", _verdict(ends))
    for name, one in both.items():
        print(f"{name}: {question(one)}, {one.source}")
    print()
    print_whole(table)
    if first.input_shape != second.input_shape:
        print("Warning: A and B have inputs of different shapes. Give --input.")
    for name, one in both.items():
        for warning in one.warnings:
            print(f"Warning: {name}: {warning}")


def _verdict(ends: Ends | None) -> str:
    """Return what the interval of a ratio says about B."""
    if ends is None:
        return ""
    low, high = ends
    return "the same" if low == high == 1 else "less" if high < 1 else "more" if low > 1 else "undecided"
