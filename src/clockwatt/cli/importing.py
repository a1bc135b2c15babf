"""`clockwatt import`: measurements by others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt.cli.app import app, examples
from clockwatt.cli.options import OutputDir, Point
from clockwatt.config import OperatingPoint
from clockwatt.errors import ClockwattError


@app.command(
    "import",
    epilog=examples(
        'clockwatt import table.csv --gpu a30 --device "NVIDIA A30" --output-dir imported',
        'clockwatt import table.csv --gpu a30 --device "NVIDIA A30" --output-dir imported --column '
        "pass=mode --constant tf32=false",
    ),
)
def import_(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A .csv or .parquet file, one row per measurement.")],
    gpu: Annotated[str, typer.Option(help="Your label for the GPU, such as a30.")],
    device: Annotated[str, typer.Option(help='Name of the GPU, such as "NVIDIA A30".')],
    output_dir: OutputDir,
    point: Point = "default",
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=THEIRS", help="Column of the table that holds ours, such as pass=mode. Repeatable."),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=VALUE", help="Value that all rows share, such as tf32=false. Repeatable."),
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out rows of modules that cannot be read, and count them.")
    ] = False,
) -> None:
    """Convert measurements by others into a dataset."""
    from clockwatt.dataset.import_table import CONFIG_FILE, DATASET, Request, import_table

    request = Request(
        table,
        gpu,
        device,
        OperatingPoint.parse(point),
        _pairs("--column", column),
        _pairs("--constant", constant),
        skip_unknown,
    )
    done = import_table(request, output_dir)
    print(f"{output_dir}: {done.rows} measurements of {done.operations} operations on {gpu} at {point}.")
    if done.skipped:
        names = ", ".join(f"{count} of {name}" for name, count in done.skipped.items())
        print(f"Left out: rows of modules that cannot be read: {names}.")
    if done.columns_left:
        print(f"Columns ignored: {', '.join(done.columns_left)}.")
    for name, missing in done.without.items():
        print(f"Missing values, written as null: {name} of {missing} rows.")
    print(f"\nTo use it in a campaign, name the folder: `reference: [{_with_slash(output_dir)}]`.")
    if done.back_to_back:
        print(
            f"{done.back_to_back} measurements have back-to-back times alone: the time of a pass is their sum, without "
            "separate device and host times."
        )
    if done.learnable:
        print(
            f"To fit predictors to this table alone, from {done.learnable} measurements:\n"
            f"  clockwatt fit --config {output_dir / CONFIG_FILE} --dataset-dir {output_dir / DATASET} "
            f"--catalogue-dir {output_dir / DATASET / 'catalogue'} --output-dir {output_dir / 'predictors'}"
        )
    else:
        print(
            "Nothing can be fitted to it: that takes time_device_s and time_host_s of one measurement, or time_eager_s."
        )


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals or not value:
            raise ClockwattError(f"{option} {text}: write it as NAME=VALUE, such as {option} pass=inference.")
        if name in pairs:
            raise ClockwattError(f"{option} {name}: is given twice. Leave one out.")
        pairs[name] = value
    return pairs


def _with_slash(folder: Path) -> str:
    """The path as `reference` knows it from the name of shipped data."""
    return str(folder) if "/" in str(folder) else f"./{folder}"
