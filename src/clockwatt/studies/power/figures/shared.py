"""Names, colours and order of networks and operating points, shared by the figures of the study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import pandas as pd
from matplotlib.axes import Axes

from clockwatt.config import OperatingPoint
from clockwatt.figures import style
from clockwatt.studies.power.tables import POWER_LIMIT, setting_of
from clockwatt.studies.power.tasks import TASKS

POINTS_AT_MOST = len(style.COLOURS)


def networks(data: pd.DataFrame) -> list[str]:
    """Return the networks of some rows, in the study's order, those of others last."""
    there = set(data["network"])
    return [*(name for name in TASKS if name in there), *sorted(there - TASKS.keys())]


def points(names: Iterable[str]) -> list[str]:
    """Return operating points, power limits before clocks, each from the lowest."""

    def order(name: str) -> tuple[bool, float]:
        setting, asked = setting_of(OperatingPoint.parse(name))
        return setting != POWER_LIMIT, asked if asked is not None else float("inf")

    return sorted(set(names), key=order)


def entries(names: Iterable[str]) -> dict[str, style.Entry]:
    """Return a line of a legend for each point that is shown: at most as many as there are colours, spread over all."""
    chosen = style.spread(points(names), POINTS_AT_MOST)
    return {name: style.Entry(name, colour, line="-") for name, colour in zip(chosen, style.COLOURS, strict=False)}


def title(axes: Axes, network: str, *, virtual: bool) -> None:
    """A network's name above its panel; where nothing was measured it says so."""
    words = TASKS[network].title if network in TASKS else network.replace("_", " ").replace("-b", "\nbatch ")
    axes.set_title(f"{words} (virtual)" if virtual else words, loc="left", color=style.STAMP if virtual else "black")


def at_least(axes: Axes, which: Literal["x", "y"], span: float = 0.05) -> None:
    """Widen an axis so that what differs by a few parts in a thousand does not look like an effect."""
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    middle = (low + high) / 2
    if high - low < span * abs(middle):
        limits = middle * (1 - span / 2), middle * (1 + span / 2)
        (axes.set_xlim if which == "x" else axes.set_ylim)(*limits)


def left_out(names: Iterable[str], shown: Iterable[str]) -> str:
    """Return a sentence on the points that are not shown."""
    missing = points(set(names) - set(shown))
    return style.left_out(missing, "operating point", "operating points")
