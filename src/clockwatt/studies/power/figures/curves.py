"""Energy, time and their product against what was set, with fits and optima; and the front of energy against time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clockwatt.figures import style
from clockwatt.studies.power.analysis import LEAST_PLACES, OBJECTIVES, POINT, on_curve, with_products
from clockwatt.studies.power.figures import shared
from clockwatt.studies.power.tables import CLOCK, NOTHING, POWER_LIMIT

AXES = {POWER_LIMIT: "power limit (W)", CLOCK: "SM clock (MHz)"}
_UNITS = {POWER_LIMIT: "W", CLOCK: "MHz"}
_TICKS_IN_ALL = 12
"""Along the front, where times have units and panels are narrow."""
_LABEL_SIZE = np.array([14.0, 6.5])
"""Size of a number next to a point, in points of 1/72 in."""
_KINDS = {POWER_LIMIT: ("power limit", "o", 0), CLOCK: ("SM clock", "s", 1), NOTHING: ("as it comes", "D", 2)}


def against(runs: pd.DataFrame, means: pd.DataFrame, setting: str) -> pd.DataFrame:
    """Return every run with the place at which it is drawn.

    Parameters
    ----------
    runs
        From `tables.read`.
    means
        From `analysis.summary`.
    setting
        `POWER_LIMIT` or `CLOCK`.

    Returns
    -------
    pandas.DataFrame
        `network`, `point`, `repetition`, `shown_at` (the limit that was set, the clock that ran), the objectives,
        `held` (whether the limit bit, the clock was reached) and `virtual`.
    """
    columns = [*POINT, "limit_bit", "reached", "x"]
    rows = with_products(runs).merge(means[columns], on=POINT, how="left")
    rows = rows[rows["setting"] == setting]
    shown_at, held = (rows["asked"], rows["limit_bit"]) if setting == POWER_LIMIT else (rows["x"], rows["reached"])
    rows = rows.assign(shown_at=shown_at.astype(float), held=held.fillna(value=True).astype(bool))
    wanted = ["network", "point", "repetition", "shown_at", *OBJECTIVES, "held", "virtual"]
    return rows[wanted].sort_values(["network", "shown_at", "repetition"], ignore_index=True)


def draw_against(data: pd.DataFrame, fits: pd.DataFrame, setting: str) -> Figure:
    """Draw a column for each network, a row for each objective.

    Parameters
    ----------
    data
        From `against`.
    fits
        From `analysis.fits`.
    setting
        As in `against`.
    """
    if data.empty:
        return style.nothing(f"nothing was run along the {AXES[setting].split(' (')[0]}.")
    networks, virtual = shared.networks(data), bool(data["virtual"].any())
    figure, grid = style.panels(len(OBJECTIVES), len(networks), height_in=1.55, share_x=True)
    for line, (objective, (name, unit)) in zip(grid, OBJECTIVES.items(), strict=True):
        for axes, network, colour in zip(line, networks, style.COLOURS, strict=False):
            fit = fits[(fits["network"] == network) & (fits["setting"] == setting) & (fits["objective"] == objective)]
            own = data[data["network"] == network].dropna(subset=[objective])
            _points(axes, own, objective, colour)
            if len(fit):
                _fit(axes, fit.iloc[0], own, objective, setting, colour)
            style.si(axes, "y", unit)
            axes.margins(x=0.08, y=0.35)
            shared.at_least(axes, "y")
        line[0].set_ylabel(name)
    for axes, network in zip(grid[0], networks, strict=True):
        shared.title(axes, network, virtual=virtual)
    for axes in grid[-1]:
        axes.set_xlabel(AXES[setting])
    hollow = "limits that did not lower power" if setting == POWER_LIMIT else "clocks that were not reached"
    also = (
        "; the curve ends at the power without a limit; dotted: mean of the hollow points"
        if setting == POWER_LIMIT
        else ""
    )
    style.footer(
        figure,
        f"Small: runs; large: their mean, bars one deviation; hollow: {hollow}. Lines: fits of the second degree "
        f"through all runs{also}. Star: optimum, by the lowest mean and its neighbours.",
    )
    return figure


def _points(axes: Axes, own: pd.DataFrame, objective: str, colour: str) -> None:
    axes.plot(own["shown_at"], own[objective], linestyle="", marker=".", markersize=3, color=style.GREY, zorder=2)
    for _, rows in own.groupby(["shown_at", "held"]):
        shown_at, held = float(rows["shown_at"].iloc[0]), bool(rows["held"].iloc[0])
        deviation = rows[objective].std()
        axes.errorbar(
            shown_at, rows[objective].mean(), yerr=deviation if np.isfinite(deviation) else None, marker="o",
            color=colour, markerfacecolor=colour if held else "white", markersize=5, elinewidth=0.8, capsize=2,
            zorder=3,
        )  # fmt: skip


def _fit(axes: Axes, fit: pd.Series[Any], own: pd.DataFrame, objective: str, setting: str, colour: str) -> None:
    if isinstance(fit["why_not"], str):
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
        axes.text(0.5, 0.95, fit["why_not"], transform=axes.transAxes, ha="center", va="top", fontsize=7, bbox=box)
        return
    fine = np.linspace(fit["x_min"], fit["x_max"], 100)
    curve = on_curve(fit, fine)
    axes.plot(fine, curve, color=colour, linewidth=1, zorder=2.5)
    free = own[~own["held"]]
    if setting == POWER_LIMIT and len(free):
        level = free[objective].mean()
        axes.plot([fit["x_max"], free["shown_at"].max()], [level, level], color=colour, linewidth=1, linestyle=":")
    rises = curve[-1] > curve[0]
    place: dict[str, Any] = {"x": 0.03 if rises else 0.97, "ha": "left" if rises else "right"}
    if not np.isfinite(fit["optimum_x"]):
        judged = "constant" if np.isnan(fit["r2"]) else f"R² {fit['r2']:.3f}"
        axes.text(s=f"{judged}\nno optimum", y=0.97, va="top", transform=axes.transAxes, fontsize=6.5, **place)
        return
    axes.plot(
        fit["optimum_x"], fit["optimum"], marker="*", markersize=10, color=colour, markeredgecolor="black",
        markeredgewidth=0.6, clip_on=False, zorder=4,
    )  # fmt: skip
    border = "\nat the border" if fit["at_border"] else ""
    exact = ", through 3 places" if fit["places"] == LEAST_PLACES else ""
    words = f"R² {fit['r2']:.3f}{exact}\nleast at {fit['optimum_x']:.0f} {_UNITS[setting]}{border}"
    axes.text(s=words, y=0.97, va="top", transform=axes.transAxes, fontsize=6.5, **place)


def front(means: pd.DataFrame) -> pd.DataFrame:
    """Return the energy and time of every point, and whether another point is better in both.

    Parameters
    ----------
    means
        From `analysis.summary`.

    Returns
    -------
    pandas.DataFrame
        `network`, `setting`, `asked`, `point`, `time_s`, `energy_j`, their deviations, and `on_front`.
    """
    columns = [*POINT, "time_s", "energy_j", "time_s_deviation", "energy_j_deviation"]
    found = means[columns].dropna(subset=["energy_j"]).copy()
    time_s, energy_j = (found[name].to_numpy(float) for name in ("time_s", "energy_j"))
    of_network = found["network"].to_numpy()[:, None] == found["network"].to_numpy()
    no_worse = (time_s[:, None] >= time_s) & (energy_j[:, None] >= energy_j)
    better = (time_s[:, None] > time_s) | (energy_j[:, None] > energy_j)
    found["on_front"] = ~(of_network & no_worse & better).any(axis=1)
    return found.sort_values(["network", "time_s"], ignore_index=True)


def draw_front(data: pd.DataFrame, *, virtual: bool) -> Figure:
    """Draw a panel for each network: power limits and clocks on one front; `data` from `front`."""
    if data.empty:
        return style.nothing("no run has an energy.")
    networks = shared.networks(data)
    figure, (line,) = style.panels(1, len(networks), height_in=2.6)
    kinds = [kind for kind in _KINDS if kind in set(data["setting"])]
    for axes, network in zip(line, networks, strict=True):
        own = data[data["network"] == network]
        best = own[own["on_front"]].sort_values("time_s")
        axes.step(best["time_s"], best["energy_j"], where="post", color=style.GREY, linewidth=0.8, zorder=1)
        for kind in kinds:
            _, marker, number = _KINDS[kind]
            for row in own[own["setting"] == kind].to_dict("records"):
                _place(axes, row, marker, style.COLOURS[number])
        style.si(axes, "x", "s")
        axes.xaxis.set_major_locator(MaxNLocator(max(1, _TICKS_IN_ALL // len(networks))))
        style.si(axes, "y", "J")
        axes.set_xlabel("time of the training")
        axes.margins(0.25)
        shared.at_least(axes, "x")
        shared.title(axes, network, virtual=virtual)
        for kind in kinds:
            if kind != NOTHING:
                _name(
                    axes, own[own["setting"] == kind], right=kind == POWER_LIMIT, colour=style.COLOURS[_KINDS[kind][2]]
                )
    line[0].set_ylabel("energy of the training")
    entries = [style.Entry(_KINDS[kind][0], style.COLOURS[_KINDS[kind][2]], _KINDS[kind][1]) for kind in kinds]
    style.legend(figure, entries, "")
    style.footer(
        figure,
        "Means over repetitions, bars one deviation. Filled: no other point is better in one and no worse in the "
        "other; grey: the front that they make. Numbers: W, MHz; 100–165 where several lie side by side.",
    )
    return figure


def _place(axes: Axes, row: dict[Any, Any], marker: str, colour: str) -> None:
    errors = [row["time_s_deviation"], row["energy_j_deviation"]]
    x_error, y_error = (error if np.isfinite(error) else None for error in errors)
    axes.errorbar(
        row["time_s"], row["energy_j"], xerr=x_error, yerr=y_error, marker=marker, color=colour, markersize=5,
        markerfacecolor=colour if row["on_front"] else "white", elinewidth=0.7, zorder=2,
    )  # fmt: skip


def _name(axes: Axes, own: pd.DataFrame, *, right: bool, colour: str) -> None:
    """Write what was set beside the points of one kind, once for those whose numbers would lie on one another.

    Limits above on the right, clocks below on the left: points of both kinds often lie side by side.
    """
    size = axes.get_window_extent()
    to_points = 72 / axes.figure.dpi
    low, high = np.array([axes.get_xlim(), axes.get_ylim()]).T
    places = (own[["time_s", "energy_j"]].to_numpy(float) - low) / (high - low)
    places *= np.array([size.width, size.height]) * to_points
    for group in _side_by_side(places):
        asked = sorted(own["asked"].iloc[group].astype(int))
        words = f"{asked[0]}" if len(group) == 1 else f"{asked[0]}–{asked[-1]}"
        highest = own.iloc[max(group, key=lambda number: places[number, 1])]
        axes.annotate(
            words, (highest["time_s"], highest["energy_j"]), xytext=(5, 3) if right else (-5, -3),
            textcoords="offset points", fontsize=6, ha="left" if right else "right",
            va="bottom" if right else "top", color=colour,
        )  # fmt: skip


def _side_by_side(places: NDArray[np.float64]) -> list[list[int]]:
    """Numbers of the places (n, 2), in points of 1/72 in, put together where one's label would touch the next one's."""
    groups: list[list[int]] = []
    for number in np.argsort(places[:, 1]):
        near = (np.abs(places[number] - places[groups[-1]]) < _LABEL_SIZE).all(axis=1) if groups else np.zeros(0, bool)
        if near.any():
            groups[-1].append(int(number))
        else:
            groups.append([int(number)])
    return groups
