"""Tables and figures of measured cards.

```
variance.csv     standard deviations of node, position in it, card, session and rest, and the spread, for each quantity
cards.csv        a row for each card: place, difference from the median card, in what it is an outlier, why not measured
programs.csv     a row for each program: how far cards differ in it; see `spread`
figures/         PNG, PDF and CSV
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from clockwatt.config import FEWEST_CARDS
from clockwatt.errors import ClockwattError
from clockwatt.figures.style import save, styled
from clockwatt.io.files import write_text
from clockwatt.studies.survey import variance
from clockwatt.studies.survey.cards import differences, from_median_card, not_measured, place, serials
from clockwatt.studies.survey.figures import draw_cards, draw_positions, draw_temperature
from clockwatt.studies.survey.observations import COMPARED, observations, parquet_files, read
from clockwatt.studies.survey.placement import draw_placement, gains, halves
from clockwatt.studies.survey.spread import draw_programs, of_cards, spread

_NOTHING_USABLE = "power was not measured, or another version of clockwatt measured"
VARIANCE_FILE, CARDS_FILE, PROGRAMS_FILE = "variance.csv", "cards.csv", "programs.csv"


@dataclass(frozen=True)
class Survey:
    """What measured cards show.

    Attributes
    ----------
    model
        Name of the GPU.
    cards
        A row for each card or file without measurements: `card`, `host`, `index`, `sessions`, a column for each
        quantity (difference from the median card, relative), `outlier` (names of quantities), `not_measured` and
        `serial`.
    variance
        Indexed by quantity: `spread`, and `deviation`, `low` and `high` of each level as `LEVEL_deviation` and so on.
    levels
        Levels, from the outermost to the innermost.
    limits
        Sentences on what the data cannot separate.
    rows, observed
        As `read` and `observations` return them.
    programs
        As `of_cards` returns them.
    """

    model: str
    cards: pd.DataFrame
    variance: pd.DataFrame
    levels: list[str]
    limits: list[str]
    rows: pd.DataFrame
    observed: pd.DataFrame
    programs: pd.DataFrame


def survey(paths: Sequence[Path]) -> Survey:
    """Compare all cards of files or folders with one another.

    Raises
    ------
    ClockwattError
        If they are of several models, or fewer than 4 cards.
    DataFileError
        See `read`.
    """
    rows, measured = read(paths), parquet_files(paths)
    empty = dict.fromkeys({path.stem for path in measured} - set(rows["file"]), _NOTHING_USABLE)
    lost = empty | not_measured(measured)
    models = sorted(rows["gpu_name"].unique())
    if len(models) > 1:
        raise ClockwattError(f"measurements of several models: {', '.join(models)}. Give those of one.")
    observed = observations(rows)
    count = len(observed["card"].unique())
    if count < FEWEST_CARDS:
        missing = "".join(f"\n{name}: {reason}" for name, reason in lost.items())
        raise ClockwattError(f"{count} cards with energy are too few. Measure {FEWEST_CARDS} or more.{missing}")
    levels, limits = variance.levels_of(observed)
    places = _places(rows)
    limits += _several_places(places)
    parts, outlying, indices = {}, {}, places.groupby("gpu_uuid", sort=False)["index"].first()
    for name, of_quantity in observed.groupby("quantity", sort=False):
        split = variance.split(variance.MixedModel.of(of_quantity, levels))
        shown = {f"{level}_{column}": split.loc[level, column] for level in split.index for column in split.columns}
        parts[name] = {"spread": variance.spread(of_quantity)} | shown
        if crossed := variance.CrossedModel.of_places(of_quantity, indices):
            of_position = variance.split(crossed, [variance.POSITION]).loc[variance.POSITION]
            parts[name] |= of_position.add_prefix(f"{variance.POSITION}_").to_dict()
        outlying[name] = variance.outliers(of_quantity, "host" if "host" in levels else None)["outlier"]
    split_parts = pd.DataFrame(parts).T
    if f"{variance.POSITION}_deviation" in split_parts:
        levels.append(variance.POSITION)
    else:
        limits.append("Not separated: card and position. 3 nodes with cards at the same indices are needed.")
    cards = _cards(rows, observed, indices, pd.DataFrame(outlying), lost)
    cards["serial"] = cards["card"].map(rows.groupby("gpu_uuid")["file"].first()).map(serials(measured))
    return Survey(models[0], cards, split_parts, [*levels, variance.REST], limits, rows, observed, of_cards(measured))


def _cards(
    rows: pd.DataFrame, observed: pd.DataFrame, indices: pd.Series, outlying: pd.DataFrame, lost: dict[str, str]
) -> pd.DataFrame:
    of_card = rows.groupby("gpu_uuid", sort=False)
    cards = of_card.agg(host=("host", "first"), sessions=("session_id", "nunique")).assign(index=indices)
    cards = cards.join(differences(observed)).rename_axis("card").reset_index()
    names = [", ".join(outlying.columns[row]) for row in outlying.reindex(cards["card"]).to_numpy(bool)]
    cards = cards.assign(outlier=names, not_measured="").sort_values(["host", "index"], ignore_index=True)
    missing = pd.DataFrame([(*place(name), 0, reason) for name, reason in lost.items()])
    missing = missing.set_axis(["host", "index", "sessions", "not_measured"][: len(missing.columns)], axis=1)
    return pd.concat([cards, missing], ignore_index=True) if lost else cards


def _places(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `gpu_uuid`, `host` and `index` in it, by the name of the file (NaN if unknown), of each file."""
    of_files = rows.groupby(["gpu_uuid", "file"], sort=False)["host"].first().reset_index()
    # a node's name may end with a number
    after_host = [file.removeprefix(host) for _, file, host in of_files.itertuples(index=False)]
    return of_files.assign(index=[place(f"node{name}")[1] for name in after_host])


def _several_places(places: pd.DataFrame) -> list[str]:
    """Return a sentence for each card that stands in files of several places."""
    known = places.dropna(subset="index").drop_duplicates(["gpu_uuid", "host", "index"])
    names: dict[str, list[str]] = {}
    for card, host, index in known[["gpu_uuid", "host", "index"]].itertuples(index=False):
        names.setdefault(card, []).append(f"{host} {index:.0f}")
    return [
        f"{card} was measured as {' and '.join(of_card)}. If nobody moved it, remove the file with the wrong name."
        for card, of_card in names.items()
        if len(of_card) > 1
    ]


def write(found: Survey, folder: Path) -> None:
    """Write the tables and figures.

    Raises
    ------
    OutputError
        If they cannot be written.
    """
    write_text(found.variance.rename_axis("quantity").to_csv(), folder / VARIANCE_FILE)
    write_text(found.cards.to_csv(index=False), folder / CARDS_FILE)
    write_text(spread(found.programs).to_csv(index=False), folder / PROGRAMS_FILE)
    measured = found.cards[found.cards["sessions"] > 0]
    quantities = list(found.variance.index)
    strips = _strips(found.observed, measured)
    short = measured["card"].str.replace(r"^(GPU-\w{8})-.*", r"\1", regex=True)
    named = measured["host"] + measured["index"].map(" {:.0f}".format)
    labels = dict(zip(measured["card"], named.where(measured["index"].notna(), short), strict=True))
    states, gained = _states(found.rows), gains(halves(found.observed))
    with styled():
        figures = folder / "figures"
        save(draw_cards(strips, labels, found.model), strips, figures, "cards")
        save(draw_positions(found.cards, quantities, found.model), found.cards, figures, "positions")
        save(draw_temperature(states, found.model), states, figures, "temperature")
        save(draw_programs(found.programs, found.model), found.programs, figures, "programs")
        save(draw_placement(gained, found.model), gained, figures, "placement")


def _strips(observed: pd.DataFrame, cards: pd.DataFrame) -> pd.DataFrame:
    outlying = {(row["card"], name) for _, row in cards.iterrows() for name in row["outlier"].split(", ") if name}
    return pd.DataFrame(
        {
            "quantity": observed["quantity"],
            "card": observed["card"],
            "difference": np.expm1(from_median_card(observed)),
            "outlier": [pair in outlying for pair in zip(observed["card"], observed["quantity"], strict=True)],
        }
    )


def _states(rows: pd.DataFrame) -> pd.DataFrame:
    names = {one.operation_id: name.removeprefix("time of ") for name, one in COMPARED.items() if one.worse == "slower"}
    own = rows[rows["subject_id"].isin(names)]
    return pd.DataFrame(
        {
            "operation": own["subject_id"].map(names),
            "card": own["gpu_uuid"],
            "temperature_c": own["temperature_end_c"],
            "clock_mhz": own["sm_clock_median_mhz"].astype(float),
            "power_w": own["power_w"],
        }
    )
