"""Compute what work on the better cards gains over random cards, by measured cards.

Cards are drawn again and again from those measured. Half of each card's measurements order the cards; the other half
says what the choice gains, so that noise is not taken for a good card.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clockwatt.figures import style
from clockwatt.studies.survey.variance import COVERAGE

DRAWS = 2000
SHARES = (0.25, 0.5, 0.75)
TOGETHER = 4
"""Cards of a step that waits for the slowest."""
QUANTITIES = {
    "time, at the power limit": ("time of linear (power limit)",),
    "time, memory-bound": ("time of softmax (memory)",),
    "energy, memory-bound": ("time of softmax (memory)", "power of softmax (memory)"),
}
Vector = NDArray[np.float64]


def halves(observed: pd.DataFrame) -> list[pd.DataFrame]:
    """Return mean logs of every other measurement, twice: a row for each card, a column for each quantity.

    Alternate ones, since cards warm up in a session: random halves would err in opposite directions.

    Parameters
    ----------
    observed
        As `observations` returns them. Cards that were measured once in each session are left out.
    """
    half = observed.sort_values("started_us").groupby(["session", "card", "quantity"]).cumcount() % 2
    means = [
        observed[half.reindex(observed.index) == number].pivot_table(index="card", columns="quantity", values="log")
        for number in (0, 1)
    ]
    cards = means[0].dropna().index.intersection(means[1].dropna().index)
    return [table.loc[cards] for table in means]


def gains(means: list[pd.DataFrame]) -> pd.DataFrame:
    """Return what each way of placement saves, with 95 % intervals over draws of cards.

    Parameters
    ----------
    means
        As `halves` returns them.

    Returns
    -------
    pandas.DataFrame
        `quantity`, `placement`, and `saved`, `low` and `high` in % of the mean over random cards; no row without cards.
    """
    random = np.random.default_rng(0)
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(DRAWS if len(means[0]) else 0):
        first, second = (means[number] for number in random.permutation(2))
        cards = random.integers(len(first), size=len(first))
        for name, columns in QUANTITIES.items():
            order, seen = (sum(table[column].to_numpy()[cards] for column in columns) for table in (first, second))
            ranked = seen[np.argsort(order, kind="stable")]
            for share in SHARES:
                best = np.exp(ranked[: max(1, round(share * len(ranked)))]).mean()
                way = f"{share:.0%} of the cards at work: the best"
                found.setdefault((name, way), []).append(100 * (1 - best / np.exp(seen).mean()))
            if len(columns) == 1 and len(ranked) >= 2 * TOGETHER:
                way = f"all at work, steps on {TOGETHER}: alike together"
                unsorted = _slowest(random.permutation(seen))
                found.setdefault((name, way), []).append(100 * (1 - _slowest(ranked) / unsorted))
    tail = 50 * (1 - COVERAGE)
    rows = [
        (name, way, np.mean(saved), *np.percentile(saved, [tail, 100 - tail])) for (name, way), saved in found.items()
    ]
    return pd.DataFrame(rows, columns=["quantity", "placement", "saved", "low", "high"])


def _slowest(logs: Vector) -> float:
    """Return the mean, over steps on consecutive cards, of the slowest card's value; cards left over do not work."""
    steps = len(logs) // TOGETHER
    return float(np.exp(logs[: steps * TOGETHER]).reshape(steps, TOGETHER).max(axis=1).mean())


def draw_placement(table: pd.DataFrame, where: str) -> Figure:
    """Draw what each way of placement saves over random cards.

    Parameters
    ----------
    table
        As `gains` returns it.
    where
        Model of the cards.
    """
    if table.empty:
        return style.nothing("no card was measured twice in a session.")
    ways = list(dict.fromkeys(table["placement"]))
    figure, ((axes,),) = style.panels(1, 1, height_in=0.5 + 0.4 * len(ways))
    shown = style.entries(list(QUANTITIES))
    for number, entry in enumerate(shown):
        own = table[table["quantity"] == entry.label]
        at = own["placement"].map(ways.index) + 0.2 * (number - 1)
        errors = [own["saved"] - own["low"], own["high"] - own["saved"]]
        axes.errorbar(own["saved"], at, xerr=errors, fmt=entry.marker, color=entry.colour, capsize=2)
    axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(ways)), labels=ways)
    axes.invert_yaxis()
    axes.set_xlabel("saved over random cards")
    style.percent(axes, "x")
    style.legend(figure, shown, f"{where}: work on the better cards")
    style.footer(
        figure, "One half of the measurements orders the cards, the other shows the gain. Bars: 95 % intervals."
    )
    return figure
