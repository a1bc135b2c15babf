"""`clockwatt study-survey`: how far the cards of one model differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt.cli.app import app, examples
from clockwatt.errors import ClockwattError


@app.command(epilog=examples("clockwatt study-survey cards", "clockwatt study-survey results/cards/*.parquet"))
def study_survey(
    measurements: Annotated[list[Path], typer.Argument(help="Files of `clockwatt card --output`, or folders of them.")],
) -> None:
    """Split differences between cards into node, card, session and rest."""
    from rich.console import Console
    from rich.table import Table

    from clockwatt.studies.survey import variance
    from clockwatt.studies.survey.observations import observations, read

    rows = read(measurements)
    models = sorted(rows["gpu_name"].unique())
    if len(models) > 1:
        raise ClockwattError(f"measurements of several models: {', '.join(models)}. Give those of one.")
    observed = observations(rows)
    count = len(observed["card"].unique())
    if count < variance.FEWEST_CARDS:
        raise ClockwattError(f"{count} cards with energy are too few. Measure {variance.FEWEST_CARDS} or more.")
    levels, limits = variance.levels_of(observed)
    levels_shown = [*levels, variance.REST]
    table = Table("quantity", "(max − min) / median", *(f"SD of {level}" for level in levels_shown), box=None)
    outliers = []
    for name, of_quantity in observed.groupby("quantity", sort=False):
        parts = variance.split(variance.MixedModel.of(of_quantity, levels))
        table.add_row(
            str(name),
            f"{100 * variance.spread(of_quantity):.1f} %",
            *(variance.words(parts.loc[p]) for p in parts.index),
        )
        compared = variance.outliers(of_quantity, "host" if "host" in levels else None)
        outliers += [
            f"outlier: {card}, {name}, {100 * row['difference']:+.1f} %"
            for card, row in compared[compared["outlier"]].iterrows()
        ]
    Console(highlight=False).print(table)
    print("\n".join([f"{models[0]}, {count} cards.", *outliers, *limits]))
