"""Figure of what warms which GPU: each effect with its interval, and beside it that at low and at high load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from clockwatt.figures.style import COLOURS, GREY, STAMP, Entry, footer, legend, panels, save, si, styled

SURE = 0.05
"""Adjusted p value below which an effect is reported."""

_ROW_IN, _AROUND_IN = 0.17, 0.55
_SHORT = 12
_TICKS_AT_MOST = 5
_LOW, _HIGH = ("below its median", COLOURS[5], "v"), ("above it", COLOURS[1], "^")


def draw_influence(table: pd.DataFrame, folder: Path, *, virtual: bool, notes: Sequence[str] = ()) -> None:
    """Draw `influence` as PNG, PDF and CSV.

    Parameters
    ----------
    table
        As `influence.influences` gives it.
    folder
        Made if it is not there.
    virtual
        Whether any GPU is virtual.
    notes
        What could not be estimated.

    Raises
    ------
    OutputError
        If they cannot be written.
    """
    with styled():
        save(_figure(table, virtual=virtual, notes=notes), table, folder, "influence")


def _figure(table: pd.DataFrame, *, virtual: bool, notes: Sequence[str]) -> Figure:
    units = list(dict.fromkeys(table["unit"]))
    counts = [int((table["unit"] == unit).sum()) for unit in units]
    figure, grid = panels(len(units), 2, height_in=[_ROW_IN * count + _AROUND_IN for count in counts], share_y=True)
    short = short_names([*table["gpu"], *table.loc[table["kind"] == "gpu", "source"]])
    for (left, right), unit in zip(grid, units, strict=True):
        rows = table[table["unit"] == unit]
        _effects(left, rows)
        _by_load(right, rows)
        labels = [
            f"{short.get(source, source)} → {short[gpu]}"
            for gpu, source in rows[["gpu", "source"]].itertuples(index=False)
        ]
        left.set_yticks(range(len(rows)), labels)
        left.set_ylim(len(rows) - 0.5, -0.5)
        for axes in (left, right):
            axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
            axes.set_xlabel("effect")
            si(axes, "x", unit)
            axes.xaxis.set_major_locator(MaxNLocator(_TICKS_AT_MOST))
        right.sharex(left)
    stamp: dict[str, Any] = {"loc": "left", "color": STAMP if virtual else "black"}
    grid[0][0].set_title("what warms which GPU" + (" (virtual)" if virtual else ""), **stamp)
    grid[0][1].set_title("the same by the GPU's own load" + (" (virtual)" if virtual else ""), **stamp)
    shown = [
        Entry(f"adjusted p ≤ {SURE:g}", COLOURS[0], "o"), Entry("may be chance", COLOURS[0], "o", filled=False),
        *(Entry(f"load {words}", colour, marker) for words, colour, marker in (_LOW, _HIGH)),
    ]  # fmt: skip
    legend(figure, shown, "")
    footer(
        figure, "VIRTUAL GPUs: nothing was measured." if virtual else "",
        "Source → GPU: by how much the GPU gets warmer per unit of the source, once its own power and all other "
        "sources are explained. Bars: 95 %, from stretches of time drawn with replacement; p from shifts in time, "
        "adjusted for the number of pairs (Holm).",
        *notes,
    )  # fmt: skip
    return figure


def _effects(axes: Axes, rows: pd.DataFrame) -> None:
    for number, row in enumerate(rows.to_dict("records")):
        axes.plot([row["low"], row["high"]], [number, number], color=COLOURS[0], linewidth=1, zorder=2)
        filled = row["p_adjusted"] <= SURE
        axes.plot(
            row["effect"], number, marker="o", markersize=4.5, color=COLOURS[0],
            markerfacecolor=COLOURS[0] if filled else "white", zorder=3,
        )  # fmt: skip


def _by_load(axes: Axes, rows: pd.DataFrame) -> None:
    for column, (_, colour, marker) in (("effect_low_load", _LOW), ("effect_high_load", _HIGH)):
        axes.plot(rows[column], np.arange(len(rows)), linestyle="", marker=marker, markersize=4.5, color=colour)


def short_names(uuids: Sequence[str]) -> dict[str, str]:
    """Return the part that distinguishes UUIDs: the beginning or, where several share it, the word that differs."""
    names = sorted(set(uuids))
    if len({name[:_SHORT] for name in names}) == len(names) > 1:
        return {name: name[:_SHORT] for name in names}
    alike = next((place for place, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1), 0)
    begin = names[0].rfind("-", 0, alike) + 1 if names else 0
    return {name: f"…{name[begin:]}" if begin else name for name in names}
