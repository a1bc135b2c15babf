"""`clockwatt card`: one card beside others of its model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clockwatt.cli.app import app, examples
from clockwatt.cli.options import AsJson
from clockwatt.errors import ClockwattError, DataFileError

if TYPE_CHECKING:
    import pandas as pd

NORMAL = "not slower, draws no more power"
"""Result of a card that is no outlier."""
DIFFERS = 3
"""Exit status where the card is slower, draws more power, or throttled."""


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
        list[Path] | None, typer.Option(help="File or folder of other cards; else the shipped ones.")
    ] = None,
    measured: Annotated[
        list[Path] | None, typer.Option(help="Compare the card of this file, without measuring; repeat for several.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File to write the measurements to.")] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Measurements of each operation; one takes about 10 s.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare a card with others of its model."""
    from clockwatt.studies.survey import observations as survey

    if measured and (gpu is not None or output is not None):
        raise ClockwattError("--measured measures nothing. Leave out --gpu and --output.")
    unread = False
    if measured:
        from clockwatt.studies.survey.cards import not_measured

        judged = []
        others = _fleet(fleet)
        for file in measured:
            try:
                rows = survey.read([file])
                judged.append(_Judged(rows, str(file), others, not_measured([file]).get(file.stem, "")))
            except ClockwattError as error:  # the other cards of a node are judged all the same
                if len(measured) == 1:
                    raise
                unread = True
                print(f"error: {error}", file=sys.stderr)
        if not judged:
            raise typer.Exit(1)
    else:
        from clockwatt.io import files
        from clockwatt.measure.card import device_of, measure_card

        if not fleet and output is None and not survey.shipped_files(device := device_of(gpu)):
            raise ClockwattError(
                f"{device}: no other card is known. Give --output to measure the first cards, then --fleet to compare."
            )
        table = measure_card(gpu, rounds=rounds)
        if output is not None:
            files.write_table(table, output)
        judged = [_Judged(survey.usable(table), "what was measured", _fleet(fleet))]
    judged.sort(key=lambda card: card.wrong is not None)
    if as_json:
        answers = [card.answer() for card in judged]
        print(json.dumps(answers[0] if len(answers) == 1 else answers, indent=2))
    else:
        for card in judged:
            _print(card.compared)
            print(card.line)
        if len(wrong := [card.line for card in judged if card.wrong]) > 1:
            print("; ".join(wrong))  # the health check states the last line as its reason
    raise typer.Exit(DIFFERS if judged[-1].wrong else int(unread or any(card.unjudged for card in judged)))


def _fleet(paths: list[Path] | None) -> pd.DataFrame | None:
    """Return the measurements of other cards, without files that cannot be read; None for the shipped ones.

    DataFileError if none can be read.
    """
    import pandas as pd

    from clockwatt.studies.survey import observations as survey

    if not paths:
        return None
    read = []
    for file in survey.parquet_files(paths):
        try:
            read.append(survey.read([file]))
        except DataFileError as error:
            print(f"warning: left out of the fleet: {error}", file=sys.stderr)
    return pd.concat(read, ignore_index=True) if read else survey.read(paths)  # which says what is wrong


class _Judged:
    """A card of measurements from `source`, compared with those of `others`; with the shipped ones if None.

    `reason` says why there is no measurement, if known.
    """

    def __init__(self, rows: pd.DataFrame, source: str, others: pd.DataFrame | None, reason: str = "") -> None:
        from clockwatt.studies.survey import observations as survey
        from clockwatt.studies.survey import passport

        if rows.empty:
            raise DataFileError(f"{source}: {reason or 'no power was measured.'} Measure the card again.")
        if (count := len(rows["gpu_uuid"].unique())) != 1:
            raise DataFileError(f"{source}: holds {count} cards. Give one card.")
        self.name, self.uuid, self.virtual = rows[["gpu_name", "gpu_uuid", "virtual"]].iloc[0]
        others = survey.shipped(self.name) if others is None else others
        alike = others["gpu_name"].eq(self.name) & others["virtual"].eq(self.virtual) & others["gpu_uuid"].ne(self.uuid)
        self.cards = others[alike]["gpu_uuid"].nunique()
        if len(others) and not self.cards:
            raise ClockwattError(
                f"{source}: the fleet has no other {self.name}, only {', '.join(sorted(others['gpu_name'].unique()))} "
                f"({others['gpu_uuid'].nunique()} cards). Give --fleet with files of `clockwatt card --output`."
            )
        summary = passport.fleet_summary(survey.observations(others[alike]))
        self.compared = passport.compare(survey.observations(rows), summary)
        self.throttled = passport.throttling(rows)
        self.wrong = passport.verdict(self.compared, self.throttled)
        missing = self.compared.index[self.compared["difference"].isna()]
        self.unjudged = f"not judged, no {missing[0]}; measure it again" if len(missing) else None
        self.verdict = self.wrong or self.unjudged
        self.line = f"{self.name} {self.uuid}, {self.cards} cards compared: {self.verdict or NORMAL}"

    def answer(self) -> dict[str, Any]:
        return {
            "gpu": self.name, "uuid": self.uuid, "virtual": bool(self.virtual), "cards": self.cards,
            "verdict": self.verdict, "throttled": self.throttled,
            "quantities": json.loads(self.compared.to_json(orient="index")),
        }  # fmt: skip


def _print(compared: pd.DataFrame) -> None:
    """Print a line for each quantity."""
    from rich.table import Table

    from clockwatt.cli.tables import print_whole

    table = Table("quantity", "difference (95 % interval)", "by temperature", "°C (others)", "outlier above", box=None)
    for name, row in compared.iterrows():
        cells = [
            f"{100 * row['difference']:+.1f} % ({100 * row['low']:+.1f} to {100 * row['high']:+.1f})",
            f"{100 * row['from_temperature']:+.1f} %",
            f"{row['temperature_c']:.0f} ({row['fleet_temperature_c']:.0f})",
            f"{100 * row['smallest_outlier']:+.1f} %",
        ]
        shown = ["–" if "nan" in cell else cell for cell in cells]
        table.add_row(str(name), *shown, style="bold" if row["outlier"] else None)
    print_whole(table)
