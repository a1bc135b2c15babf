"""The survey of cards: how far those of one model differ, and how programs slow one another down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import Config, GpuLabel, Output


@app.command(
    epilog=examples(
        "clockwatt study-survey-card --config config/config.yaml --gpu h200 --node gpu01 --index 3 "
        "--output results/studies/survey/h200/cards/gpu01-3-1.parquet"
    )
)
def study_survey_card(
    config_file: Config,
    gpu: GpuLabel,
    node: Annotated[str, typer.Option(help="Name of this node.")],
    index: Annotated[int, typer.Option(min=0, help="Index of the card among those of this job.")],
    output: Output,
) -> None:
    """Measure one card of a node for the survey."""
    from clockwatt.studies.survey.cards import measure

    measure(config.load(config_file), gpu, node, index, output)


@app.command(
    epilog=examples(
        "clockwatt study-conditions --config config/config.yaml --gpu h200 --node gpu01 "
        "--output results/studies/survey/h200/conditions/gpu01-1.csv"
    )
)
def study_conditions(
    config_file: Config,
    gpu: GpuLabel,
    node: Annotated[str, typer.Option(help="Name of this node.")],
    output: Output,
    repetition: Annotated[int, typer.Option(min=1, help="Number of this measurement.")] = 1,
) -> None:
    """Time programs alone and together."""
    from clockwatt.studies.survey.conditions import measure

    measure(config.load(config_file), gpu, node, repetition, output)


@app.command(epilog=examples("clockwatt study-interference conditions --output survey"))
def study_interference(
    measurements: Annotated[list[Path], typer.Argument(help="Files of study-conditions, or folders of them.")],
    output: Annotated[Path, typer.Option(help="Folder to write the table and the figure to.")],
    name: Annotated[str, typer.Option(help="Name of the GPU in the figure.")] = "GPU",
) -> None:
    """Compute how much programs slow each other down."""
    from clockwatt.studies.survey import interference

    for row in interference.write(measurements, output, name).to_dict("records"):
        beside = f"beside {row['test']}, {row['condition']}" if row["test"] else f"on {row['cards']} cards at once"
        interval = f"{row['low']:.3f} to {row['high']:.3f}" if row["repetitions"] > 1 else "one repetition"
        print(f"{row['base']} {beside}: {row['slowdown']:.3f} times as long as alone ({interval})")


@app.command(
    epilog=examples("clockwatt study-survey cards", "clockwatt study-survey results/cards/*.parquet --output survey")
)
def study_survey(
    measurements: Annotated[list[Path], typer.Argument(help="Files of `clockwatt card --output`, or folders of them.")],
    output: Annotated[Path | None, typer.Option(help="Folder to write tables and figures to.")] = None,
) -> None:
    """Split differences between cards: node, card, session."""
    from rich.table import Table

    from clockwatt.cli.tables import print_whole
    from clockwatt.studies.survey import results, variance
    from clockwatt.studies.survey.spread import spread

    found = results.survey(measurements)
    table = Table("quantity", "(max − min) / median", *(f"SD of {level}" for level in found.levels), box=None)
    for name, row in found.variance.iterrows():
        parts = [row.filter(regex=f"^{level}_").rename(lambda n: n.rpartition("_")[2]) for level in found.levels]
        table.add_row(str(name), f"{100 * row['spread']:.1f} %", *map(variance.words, parts))
    cards = found.cards[found.cards["sessions"] > 0]
    outliers = [
        f"outlier: {row['card']}, {name}, {100 * row[name]:+.1f} %"
        for _, row in cards.iterrows()
        for name in filter(None, row["outlier"].split(", "))
    ]
    missing = [
        f"not measured: {row['host']}, card {row['index']:.0f}: {row['not_measured']}"
        for _, row in found.cards[found.cards["sessions"] == 0].iterrows()
    ]
    programs = Table("program", "(max − min) / median: time", "power", "limited by", box=None)
    for _, row in spread(found.programs).iterrows():
        programs.add_row(
            row["program"], *(f"{100 * row[f'{name}_spread']:.1f} %" for name in ("time", "power")), row["limit"]
        )
    print_whole(table)
    print_whole(programs)
    print("\n".join([f"{found.model}, {len(cards)} cards.", *outliers, *missing, *found.limits]))
    if output is not None:
        results.write(found, output)
