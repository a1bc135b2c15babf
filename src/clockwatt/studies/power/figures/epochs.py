"""Energy and time of single epochs."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.studies.power.figures import shared

_QUANTITIES = {"energy_j": ("energy of an epoch", "J"), "time_s": ("time of an epoch", "s")}


def spread(epochs: pd.DataFrame) -> pd.DataFrame:
    """Return every epoch, and whether it is the first of its run, in which caches and clocks settle.

    Parameters
    ----------
    epochs
        From `tables.read`.

    Returns
    -------
    pandas.DataFrame
        `network`, `point`, `repetition`, `epoch`, `time_s`, `energy_j`, `first`: none where runs have only one.
    """
    several = bool((epochs["epoch"] > 0).any())
    return epochs.assign(first=(epochs["epoch"] == 0) & several)


def draw(data: pd.DataFrame, *, virtual: bool) -> Figure:
    """Draw boxes of energy and time: a column for each network, a box for each point; `data` from `spread`."""
    if data.empty:
        return style.nothing("no epoch was recorded.")
    networks, points = shared.networks(data), shared.points(data["point"])
    figure, grid = style.panels(len(_QUANTITIES), len(networks), height_in=1.9, share_x=True)
    for line, (column, (name, unit)) in zip(grid, _QUANTITIES.items(), strict=True):
        for axes, network, colour in zip(line, networks, style.COLOURS, strict=False):
            own = data[data["network"] == network]
            first, later = (
                [own.loc[(own["point"] == point) & (own["first"] == is_first), column].dropna() for point in points]
                for is_first in (True, False)
            )
            _boxes(axes, later, colour)
            for number, values in enumerate(first, 1):
                axes.plot([number] * len(values), values, "v", markersize=4, color=colour, markerfacecolor="white")
            style.si(axes, "y", unit)
            shared.at_least(axes, "y")
        line[0].set_ylabel(name)
    for axes, network in zip(grid[0], networks, strict=True):
        shared.title(axes, network, virtual=virtual)
    for axes in grid[-1]:
        axes.set_xticks(range(1, len(points) + 1), points, rotation=45, ha="right", rotation_mode="anchor")
    style.footer(
        figure,
        "Boxes: epochs of all repetitions but the first of each run: median, quartiles, whiskers to 1.5 times their "
        "distance, and what lies beyond. Triangles: the first epoch of each run.",
    )
    return figure


def _boxes(axes: Axes, values: list[pd.Series[float]], colour: str) -> None:
    known = [number for number, of_point in enumerate(values, 1) if len(of_point)]
    axes.set_xlim(0.4, len(values) + 0.6)
    axes.grid(visible=False, axis="x")
    if not known:
        words = "an epoch is shorter than two\nreadings of power: unknown"
        axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", fontsize=7)
        axes.set_yticks([])
        return
    axes.boxplot(
        [values[number - 1].to_numpy(float) for number in known], positions=known, widths=0.6, manage_ticks=False,
        patch_artist=True, boxprops={"facecolor": colour, "alpha": 0.45, "edgecolor": colour},
        medianprops={"color": "black"}, whiskerprops={"color": colour}, capprops={"color": colour},
        flierprops={"marker": ".", "markersize": 2.5, "markeredgecolor": colour},
    )  # fmt: skip
