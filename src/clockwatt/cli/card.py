"""`clockwatt card`: one card beside others of its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clockwatt.cli.app import app, examples
from clockwatt.cli.options import AsJson
from clockwatt.errors import ClockwattError

if TYPE_CHECKING:
    import pandas as pd

DIFFERS = 3
"""Exit status where the card is slower, hungrier or throttled."""


@app.command(
    epilog=examples(
        "clockwatt card",
        "clockwatt card --gpu 1 --output cards/node7-1.parquet",
        "clockwatt card --measured cards/node7-1.parquet --fleet cards",
    )
)
def card(
    gpu: Annotated[str | None, typer.Option(help="UUID, its beginning, index, or virtual:MODEL.")] = None,
    fleet: Annotated[
        list[Path] | None, typer.Option(help="File or folder of other cards' measurements; else the shipped ones.")
    ] = None,
    measured: Annotated[Path | None, typer.Option(help="Judge the card of this file; measure nothing.")] = None,
    output: Annotated[Path | None, typer.Option(help="File to write the measurements to.")] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Measurements of each operation; one takes about 10 s.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare a card with others of its model."""
    from clockwatt.studies.survey import observations as survey
    from clockwatt.studies.survey import passport

    if measured is None:
        from clockwatt.io import files
        from clockwatt.measure.card import measure_card

        table = measure_card(gpu, rounds=rounds)
        if output is not None:
            files.write_table(table, output)
        rows = survey.usable(table)
    elif gpu is not None or output is not None:
        raise ClockwattError("--measured measures nothing. Leave out --gpu and --output.")
    else:
        rows = survey.read([measured])
    if (count := len(rows["gpu_uuid"].unique())) != 1:
        raise ClockwattError(f"{measured or 'what was measured'}: holds {count} cards with energy. Give one card.")
    name, uuid, virtual = rows[["gpu_name", "gpu_uuid", "virtual"]].iloc[0]
    others = survey.read(fleet) if fleet else survey.shipped(name)
    alike = (others["gpu_name"] == name) & (others["virtual"] == virtual) & (others["gpu_uuid"] != uuid)
    compared = passport.compare(survey.observations(rows), passport.fleet_summary(survey.observations(others[alike])))
    throttled = passport.throttling(rows)
    wrong = passport.verdict(compared, throttled)
    cards = others[alike]["gpu_uuid"].nunique()
    if as_json:
        answer = {"gpu": name, "uuid": uuid, "virtual": bool(virtual), "cards": cards, "verdict": wrong}
        quantities = json.loads(compared.to_json(orient="index"))
        print(json.dumps(answer | {"throttled": throttled, "quantities": quantities}, indent=2))
    else:
        _print(compared)
        print(f"{name} {uuid}, {cards} cards compared: {wrong or 'no slower and no hungrier'}")
    raise typer.Exit(DIFFERS if wrong else 0)


def _print(compared: pd.DataFrame) -> None:
    """Print a line for each quantity."""
    from rich.console import Console
    from rich.table import Table

    from clockwatt.cli.options import WIDEST

    table = Table("quantity", "difference (95 % interval)", "by temperature", "°C (others)", "outlier from", box=None)
    for name, row in compared.iterrows():
        table.add_row(
            str(name),
            f"{100 * row['difference']:+.1f} % ({100 * row['low']:+.1f} to {100 * row['high']:+.1f})",
            f"{100 * row['from_temperature']:+.1f} %",
            f"{row['temperature_c']:.0f} ({row['fleet_temperature_c']:.0f})",
            f"{100 * row['smallest_outlier']:+.1f} %",
            style="bold" if row["outlier"] else None,
        )
    Console(width=WIDEST, highlight=False).print(table)
