"""Draw the survey: each card's measurements, the cards of each node, and clock, temperature and power."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from clockwatt.figures import style

_VIOLIN_FROM = 4
"""Fewest measurements of a card whose distribution is drawn."""
_LABELLED_CARDS = 40
_LABELLED_CELLS = 12
_CELL_IN = 0.24
_PANEL_IN = 1.1


def draw_cards(strips: pd.DataFrame, places: Mapping[str, str], where: str) -> Figure:
    """Draw each measurement's difference from the median card: a row for each quantity, a column for each card.

    Parameters
    ----------
    strips
        `quantity`, `card`, `difference` (relative) and `outlier` of each measurement.
    places
        Card to its label, in the order in which cards are drawn.
    where
        Model of the cards.
    """
    quantities = list(dict.fromkeys(strips["quantity"]))
    figure, grid = style.panels(len(quantities), 1, height_in=_PANEL_IN, share_x=True)
    at = {card: number for number, card in enumerate(places)}
    for quantity, (axes,) in zip(quantities, grid, strict=True):
        own = strips[strips["quantity"] == quantity]
        for outlier, colour in ((False, style.COLOURS[0]), (True, style.COLOURS[1])):
            drawn = own[own["outlier"] == outlier]
            x = drawn["card"].map(at).to_numpy(float)
            groups = [(at[card], 100 * one) for card, one in drawn.groupby("card")["difference"]]
            if violins := [(place, values) for place, values in groups if len(values) >= _VIOLIN_FROM]:
                places_of, values = zip(*violins, strict=True)
                drawn_violins = axes.violinplot(values, places_of, widths=0.8, showextrema=False)
                for body in cast(list[PolyCollection], drawn_violins["bodies"]):
                    body.set(facecolor=colour, alpha=0.25)
            axes.plot(x, 100 * drawn["difference"], "o", color=colour, alpha=0.5, markersize=2.5, markeredgewidth=0)
            means = drawn.groupby("card")["difference"].mean()
            axes.plot(means.index.map(at).to_numpy(float), 100 * means, "_", color=colour, markersize=8)
        axes.axhline(0, color=style.GREY, linewidth=0.8, zorder=1)
        style.percent(axes, "y")
        axes.set_title(quantity, loc="left")
        axes.set_xlim(-0.6, len(at) - 0.4)
    bottom = grid[-1][0]
    if len(at) <= _LABELLED_CARDS:
        bottom.set_xticks(range(len(at)), labels=list(places.values()), rotation=90)
    else:
        bottom.set_xlabel("card, in the order of its node and index")
    style.legend(
        figure,
        [style.Entry("card", style.COLOURS[0], "o"), style.Entry("outlier", style.COLOURS[1], "o")],
        f"{where}: difference from the median card",
    )
    style.footer(figure, "Dots are measurements, lines their means, areas the distribution within a card.")
    return figure


def draw_positions(cards: pd.DataFrame, quantities: Collection[str], where: str) -> Figure:
    """Draw each card's difference from the median card at its node and index; empty where none was measured.

    Parameters
    ----------
    cards
        `host`, `index` (NaN if unknown), and a column for each quantity, relative.
    quantities
        Those columns.
    where
        Model of the cards.
    """
    placed = cards.dropna(subset="index")
    if placed.empty:
        return style.nothing("no file is named NODE-INDEX or NODE-INDEX-SESSION.")
    nodes = sorted(placed["host"].unique())
    height_in = 0.7 + _CELL_IN * len(nodes)
    columns = min(3, len(quantities))
    rows = -(-len(quantities) // columns)
    figure, grid = style.panels(rows, columns, height_in=height_in, share_y=True)
    flat = [axes for row in grid for axes in row]
    for axes in flat[len(quantities) :]:
        axes.set_visible(False)
    for axes, quantity in zip(flat, quantities, strict=False):
        matrix = 100 * placed.pivot_table(index="host", columns="index", values=quantity, dropna=False).reindex(nodes)
        most = max(float(np.nanmax(np.abs(matrix.to_numpy(float)))), 1e-3)
        image = axes.imshow(
            np.ma.masked_invalid(matrix.to_numpy(float)), cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto"
        )
        if len(matrix.columns) <= _LABELLED_CELLS:
            _label(axes, matrix, most)
        axes.set_xticks(range(len(matrix.columns)), labels=[f"{index:.0f}" for index in matrix.columns])
        axes.set_yticks(range(len(nodes)), labels=nodes)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.set_title(quantity, loc="left")
        figure.colorbar(image, ax=axes, fraction=0.04, pad=0.01)
    style.footer(
        figure,
        f"{where}: difference from the median card, in %. Rows are nodes, columns indices. Empty: not measured.",
    )
    return figure


def _label(axes: Axes, matrix: pd.DataFrame, most: float) -> None:
    for (row, column), value in np.ndenumerate(matrix.to_numpy(float)):
        if np.isfinite(value):
            colour = "white" if abs(value) > 0.6 * most else "black"
            text = f"{value:.1f}".replace("-", style.MINUS)
            axes.text(column, row, text, ha="center", va="center", fontsize=5, color=colour)


def draw_temperature(rows: pd.DataFrame, where: str) -> Figure:
    """Draw SM clock and power against temperature, and clock against power, of each measurement.

    Parameters
    ----------
    rows
        `operation`, `temperature_c`, `clock_mhz` and `power_w`.
    where
        Model of the cards.
    """
    axes_of = {"temperature_c": "temperature (°C)", "clock_mhz": "SM clock (MHz)", "power_w": "power (W)"}
    figure, (panels,) = style.panels(1, 3, height_in=2.2)
    shown = style.entries(sorted(rows["operation"].unique()))
    pairs = (("temperature_c", "clock_mhz"), ("temperature_c", "power_w"), ("power_w", "clock_mhz"))
    for axes, (x, y) in zip(panels, pairs, strict=True):
        for entry in shown:
            own = rows[rows["operation"] == entry.label]
            axes.plot(
                own[x], own[y], entry.marker, color=entry.colour, alpha=0.5, markersize=2.5, markeredgewidth=0
            )  # fmt: skip
        axes.set_xlabel(axes_of[x])
        axes.set_ylabel(axes_of[y])
    style.legend(figure, shown, f"{where}: each measurement under load")
    return figure
