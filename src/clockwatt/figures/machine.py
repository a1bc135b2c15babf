"""Clocks asked for and seen, and cards of one model beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus

OFF_TARGET = 0.02
"""A clock further off is flagged."""
CARDS_AT_LEAST = 2


def clocks(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the SM clocks seen under load at each operating point.

    Parameters
    ----------
    rows
        From `load.clocks`.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `point`, `asked_mhz` (missing where no clock is asked for), `operations`, `lowest_mhz`, `p5_mhz`,
        `median_mhz`,
        `p95_mhz`, `highest_mhz`, `off_target`: share of operations more than 2 % off.
    """
    rows = rows.dropna(subset="sm_clock_median_mhz")
    seen, asked = rows["sm_clock_median_mhz"].astype(float), rows["requested_sm_clock_mhz"].astype(float)
    off = ((seen / asked - 1).abs() > OFF_TARGET).where(asked.notna())
    grouped = rows.assign(seen=seen, asked=asked, off=off.astype(float)).groupby(["gpu", "point"])
    found = grouped.agg(
        asked_mhz=("asked", "first"), operations=("seen", "size"), lowest_mhz=("seen", "min"),
        median_mhz=("seen", "median"), highest_mhz=("seen", "max"), off_target=("off", "mean"),
    )  # fmt: skip
    found = found.assign(p5_mhz=grouped["seen"].quantile(0.05), p95_mhz=grouped["seen"].quantile(0.95))
    return found.reset_index()


def draw_clocks(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw a column for each GPU; `data` from `clocks`."""
    if data.empty:
        return style.nothing("no clock was read under load.")
    shown = gpus.shown(data["gpu"].unique())
    figure, (panels,) = style.panels(1, len(shown), height_in=2.4)
    for axes, gpu in zip(panels, shown, strict=True):
        own = data[data["gpu"] == gpu]
        default = own["asked_mhz"].isna()
        spans = pd.concat([own["lowest_mhz"], own["highest_mhz"], own["asked_mhz"]]).dropna()
        low, high = float(spans.min()), float(spans.max())
        margin = max(0.06 * (high - low), 0.02 * high)
        # what asks for no clock stands at its median, which says nothing of being off
        x = own["asked_mhz"].where(~default, own["median_mhz"]).to_numpy(float)
        colour = gpus.entry(gpu).colour
        axes.plot(
            [low - margin, high + margin], [low - margin, high + margin], color=style.GREY, linewidth=0.8, zorder=1
        )
        axes.vlines(x, own["lowest_mhz"], own["highest_mhz"], color=colour, linewidth=0.8)
        axes.vlines(x, own["p5_mhz"], own["p95_mhz"], color=colour, linewidth=3, alpha=0.5)
        for hollow, part in own.assign(x=x).groupby(default):
            axes.plot(
                part["x"], part["median_mhz"], linestyle="", marker="o", color=colour, markersize=4,
                markerfacecolor="white" if hollow else colour,
            )  # fmt: skip
        axes.set(
            xlim=(low - margin, high + margin), ylim=(low - margin, high + margin), xlabel="SM clock asked for (MHz)"
        )
        for which in (axes.xaxis, axes.yaxis):
            which.set_major_locator(style.few())
        off = own["off_target"].dropna()
        if len(off):
            share = float(np.average(off, weights=own.loc[off.index, "operations"]))
            axes.text(
                0.03,
                0.97,
                f"{100 * share:.1f} % of operations\nover 2 % off",
                transform=axes.transAxes,
                va="top",
                fontsize=6,
            )
        gpus.title(axes, gpu, "" if not default.all() else "default")
    panels[0].set_ylabel("SM clock seen under load (MHz)")
    style.footer(
        figure,
        "Marker: median over operations; thick: 5 to 95 %; thin: lowest to highest. Hollow: no clock was set, "
        "so it stands at the median seen.",
        gpus.note(shown, gpus.labels),
    )
    return figure


def cards(report: dict[str, Any]) -> pd.DataFrame:
    """Compare cards with the median card of their model by the reference operations.

    Parameters
    ----------
    report
        From `load.quality`.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `point`, `card`, `time` and `power` over those of the median card, minus one. Points of one card are left
        out.
    """
    found = [
        (point["gpu"], point["point"], card, told["anchor_time_factor"], told["anchor_power_factor"])
        for point in report["points"]
        if len(point["cards"]) >= CARDS_AT_LEAST
        for card, told in point["cards"].items()
    ]  # fmt: skip
    rows = pd.DataFrame(found, columns=["gpu", "point", "card", "time", "power"]).dropna()
    return rows.assign(time=rows["time"].astype(float) - 1, power=rows["power"].astype(float) - 1)


def draw_cards(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw the power against time of cards: a column for each GPU with several; `data` from `cards`."""
    if data.empty:
        return style.nothing("no GPU was measured on two cards at one operating point.")
    shown = gpus.shown(data["gpu"].unique())
    figure, (panels,) = style.panels(1, len(shown), height_in=2.4)
    for axes, gpu in zip(panels, shown, strict=True):
        own, entry = data[data["gpu"] == gpu], gpus.entry(gpu)
        axes.plot(
            100 * own["time"], 100 * own["power"], linestyle="", marker=entry.marker, color=entry.colour, alpha=0.8
        )
        axes.axhline(0, color=style.GREY, linewidth=0.8, zorder=1)
        axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
        for which in (axes.xaxis, axes.yaxis):
            which.set_major_locator(style.few())
        style.percent(axes, "x")
        style.percent(axes, "y")
        axes.margins(0.15)
        axes.set_xlabel("time against the median card")
        gpus.title(axes, gpu, f"{own['card'].nunique()} cards")
    panels[0].set_ylabel("power against the median card")
    style.footer(
        figure,
        "A marker for each card and operating point: reference operations, measured at the start and the end of "
        "every shard.",
        gpus.note(shown, gpus.labels),
    )
    return figure
