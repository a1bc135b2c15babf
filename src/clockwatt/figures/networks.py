"""Whole networks one by one: measured, summed, composed, predicted (tables I and II of the thesis)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.schema.costs import MEASURED_WHOLE, PLAIN_SUM
from clockwatt.schema.execution import TF32

NORMAL_95 = 1.96
ROWS_AT_MOST = 64
"""Largest number of rows in the whole figure; a single GPU has at most `NETWORKS_AT_MOST`."""
NETWORKS_AT_MOST = 40
_ROW_IN, _AROUND_IN = 0.155, 0.65
_OFFSET = 0.2

QUANTITIES = {"time_s": ("time per pass", "s"), "energy_j": ("energy per pass", "J")}
"""Column of a composition to its name and unit."""

METHODS = {
    "plain": style.Entry("sum of operations timed in a loop", style.COLOURS[1], "X"),
    "composed": style.Entry("composed from measured operations", style.COLOURS[2], "^"),
    "predicted": style.Entry("predicted, network not in the training data", style.COLOURS[0], "s"),
}
"""Ways to estimate a network."""

SOURCES = {"plain": "measured", "composed": "measured", "predicted": "predicted"}
"""Method to the source of its operations' costs."""

_KEY = ["gpu", "point", "network_id", "execution", "pass"]


def sum_errors(operations: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Standard errors of plain sums, `plain_time_s_error` and `plain_energy_j_error`, by network, settings, pass, GPU.

    Calls of one operation share its error; errors of different operations are independent.

    Parameters
    ----------
    operations
        From `load.operations`.
    calls
        From `load.calls`.
    """
    rows = calls.merge(operations, on=["operation_id", "pass"])
    rows = rows.assign(
        plain_time_s_error=(rows["calls"] * rows["time_eager_corrected_standard_error_s"].astype(float)) ** 2,
        plain_energy_j_error=(rows["calls"] * rows["energy_error"].astype(float)) ** 2,
    )
    found = rows.groupby(_KEY)[["plain_time_s_error", "plain_energy_j_error"]].sum(min_count=1) ** 0.5
    return found.reset_index()


def costs(
    compositions: pd.DataFrame, errors: pd.DataFrame, plain_errors: pd.DataFrame, quantity: str, pass_: str
) -> pd.DataFrame:
    """Return a row for each network, GPU and execution settings, at the GPU's reference point; bars are 95 % intervals.

    Parameters
    ----------
    compositions
        From `load.compositions`.
    errors
        From `load.whole_errors`.
    plain_errors
        From `sum_errors`.
    quantity
        `time_s` or `energy_j`.
    pass_
        Which pass.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `point`, `network_id`, `execution`, `measured`, `measured_error`, and for each of `METHODS` its value,
        missing where a call's cost is not known; `plain_error`. In s or J, errors half of an interval.
    """
    whole = MEASURED_WHOLE[quantity]
    rows = compositions[(compositions["pass"] == pass_) & compositions["reference"] & compositions[whole].notna()]
    complete = rows[rows["calls_without_cost"] == 0]
    found = rows[[*_KEY, whole]].drop_duplicates(_KEY).rename(columns={whole: "measured"})
    for method, source in SOURCES.items():
        column = PLAIN_SUM[quantity] if method == "plain" else quantity
        values = complete.loc[complete["source"] == source, [*_KEY, column]].drop_duplicates(_KEY)
        found = found.merge(values.rename(columns={column: method}), on=_KEY, how="left")
    for name, table, column in (
        ("measured_error", errors, f"{quantity}_error"),
        ("plain_error", plain_errors, f"plain_{quantity}_error"),
    ):
        found = found.merge(table[[*_KEY, column]].rename(columns={column: name}), on=_KEY, how="left")
        found[name] *= NORMAL_95
    return found[[*_KEY, "measured", "measured_error", *METHODS, "plain_error"]]


def draw(data: pd.DataFrame, gpus: Gpus, quantity: str) -> Figure:
    """Draw a row of two panels for each GPU: costs of its networks, and the error of each way to estimate them.

    Parameters
    ----------
    data
        From `costs`.
    gpus
        The GPUs of the campaign.
    quantity
        As for `costs`.
    """
    if data.empty:
        return style.nothing("no network was measured whole in this pass.")
    chosen = _chosen(data, gpus)
    heights = [_AROUND_IN + _ROW_IN * len(names) for names in chosen.values()]
    figure, grid = style.panels(len(chosen), 2, height_in=heights)
    name, unit = QUANTITIES[quantity]
    left_out = []
    for (absolute, deviation), (label, names) in zip(grid, chosen.items(), strict=True):
        own = data[data["gpu"] == label]
        left_out += sorted(set(own["network_id"]) - set(names))
        gpus.title(absolute, label, own["point"].iloc[0])
        gpus.title(deviation, label)
        _absolute(absolute, own, names, unit)
        _deviation(deviation, own, names)
    grid[-1][0].set_xlabel(f"{name} (log)")
    grid[-1][1].set_xlabel("error against the measured value")
    both = {
        True: style.Entry("measured in TF32", "black", "o"),
        False: style.Entry("measured without TF32 or in another format", "black", "o", filled=False),
    }
    there = set(_full(data))
    style.legend(figure, [*(entry for full, entry in both.items() if full in there), *METHODS.values()], "")
    style.footer(
        figure,
        "Bars: 95 % intervals; grey: that of the measured value." + " Hollow: without TF32." * (False in there),
        gpus.note(list(chosen), data["gpu"].unique()),
        style.networks_left_out(left_out),
    )
    return figure


def _chosen(data: pd.DataFrame, gpus: Gpus) -> dict[str, list[str]]:
    """Return GPUs with panels to their networks, the most costly first; real GPUs, and one virtual at least."""
    found: dict[str, list[str]] = {}
    rows = 0
    for label in gpus.shown(data["gpu"].unique()):
        own = data[data["gpu"] == label].groupby("network_id")["measured"].max().sort_values(ascending=False)
        names = style.spread([str(name) for name in own.index], NETWORKS_AT_MOST)
        if not found or rows + len(names) <= ROWS_AT_MOST:
            found[label] = names
            rows += len(names)
    return found


def _places(own: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the rows with `y`: networks from top to bottom, TF32 a little above its absence."""
    own = own[own["network_id"].isin(names)]
    place = own["network_id"].map({name: number for number, name in enumerate(names)}).astype(float)
    several = own.groupby("network_id")["execution"].transform("nunique") > 1
    return own.assign(y=place + np.where(several, np.where(own["execution"] == TF32, -_OFFSET, _OFFSET), 0.0))


def _full(rows: pd.DataFrame) -> pd.Series:
    """Return which rows ran in TF32."""
    return rows["execution"] == TF32


def _absolute(axes: Axes, own: pd.DataFrame, names: Sequence[str], unit: str) -> None:
    rows = _places(own, names)
    for filled, part in rows.groupby(_full(rows)):
        axes.errorbar(
            part["measured"], part["y"], xerr=part["measured_error"].fillna(0), linestyle="", marker="o", color="black",
            markerfacecolor="black" if filled else "white", markersize=3, elinewidth=0.8, markeredgewidth=0.7,
        )  # fmt: skip
    _names(axes, names)
    style.log_axis(axes, "x", unit)


def _deviation(axes: Axes, own: pd.DataFrame, names: Sequence[str]) -> None:
    rows = _places(own, names)
    measured, y = rows["measured"].to_numpy(float), rows["y"].to_numpy(float)
    axes.hlines(
        y,
        *(sign * 100 * rows["measured_error"] / measured for sign in (-1, 1)),
        color="#BBBBBB",
        linewidth=3.5,
        zorder=1,
    )
    axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
    for name, entry in METHODS.items():
        off = 100 * (rows[name].to_numpy(float) / measured - 1)
        if name == "plain":
            error = 100 * rows["plain_error"].fillna(0).to_numpy(float) / measured
            axes.errorbar(off, y, xerr=error, linestyle="", color=entry.colour, elinewidth=0.7, zorder=2)
        for filled, part in pd.Series(range(len(rows))).groupby(_full(rows).to_numpy(bool)):
            axes.plot(
                off[part], y[part], linestyle="", marker=entry.marker, color=entry.colour, markersize=3.2,
                markerfacecolor=entry.colour if filled else "white", markeredgewidth=0.7, zorder=3,
            )  # fmt: skip
    _names(axes, names, labelled=False)
    style.percent(axes, "x")
    axes.xaxis.set_major_locator(style.few())


def _names(axes: Axes, names: Sequence[str], *, labelled: bool = True) -> None:
    shown = [_without_tf32(name) for name in names] if labelled else []
    axes.set_yticks(range(len(names)), labels=shown if labelled else [""] * len(names))
    axes.tick_params(axis="y", labelsize=6, length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _without_tf32(network_id: str) -> str:
    name, dtype = style.network_and_input(network_id)
    return f"{name} {dtype.replace('float32', '')}".strip()
