"""Whole networks: against the clock, energy against time, and composed against measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from clockwatt.figures import style
from clockwatt.schema.costs import MEASURED_WHOLE, PLAIN_SUM

METHODS = {
    "plain sum, measured operations": ("measured", PLAIN_SUM),
    "pipeline, predicted operations": ("predicted", {"time_s": "time_s", "energy_j": "energy_j"}),
    "pipeline, measured operations": ("measured", {"time_s": "time_s", "energy_j": "energy_j"}),
}
"""Ways to compose a network that are compared: source of the operations' costs, and columns by what they tell."""

PER_PASS = {"time_s": ("time per pass", "s"), "power_w": ("mean power", "W"), "energy_j": ("energy per pass", "J")}
"""What is drawn against the clock: column of the composition, name, unit."""


def network_clock(axes: Axes, rows: pd.DataFrame, column: str, networks: Sequence[str]) -> Axes:
    """One quantity of networks against the SM clock: measured with markers, composed from predictions dashed.

    Parameters
    ----------
    axes
        To draw on.
    rows
        Compositions from predicted operations of one GPU and pass, with `clock_mhz`; see `wholes.VALIDATION_SCHEMA`.
    column
        A key of `PER_PASS`. The least measured energy of each network is ringed.
    networks
        Network ids, each with its colour.
    """
    for number, network in enumerate(networks):
        own = rows[rows["network_id"] == network].sort_values("clock_mhz")
        colour = style.COLOURS[number]
        clock, measured = own["clock_mhz"].to_numpy(float), own[MEASURED_WHOLE[column]].to_numpy(float)
        axes.plot(clock, own[column].to_numpy(float), color=colour, linestyle=(0, (3, 2)), linewidth=0.9, zorder=2)
        axes.plot(
            clock, measured, color=colour, marker=style.MARKERS[number], markersize=_marker_size(len(clock)), zorder=3
        )
        if column == "energy_j" and len(clock) > 1 and np.isfinite(measured).any():
            least = int(np.nanargmin(measured))
            axes.plot(
                clock[least], measured[least], marker="o", markersize=9, markerfacecolor="none", color=colour,
                clip_on=False, zorder=4,
            )  # fmt: skip
    style.log_axis(axes, "y", PER_PASS[column][1])
    return axes


def energy_time(axes: Axes, rows: pd.DataFrame, gpus: Sequence[str]) -> Axes:
    """Energy against time of one network in one pass: a curve per GPU along its clocks, the Pareto front in black.

    Parameters
    ----------
    axes
        To draw on.
    rows
        Like those of `network_clock`, of one network and pass on every GPU.
    gpus
        Labels, each with its colour.
    """
    for number, gpu in enumerate(gpus):
        own = rows[rows["gpu"] == gpu].sort_values("clock_mhz")
        axes.plot(
            own["measured_time_s"], own["measured_energy_j"], color=style.COLOURS[number], marker=style.MARKERS[number],
            markersize=_marker_size(len(own)), linewidth=0.7, zorder=2,
        )  # fmt: skip
    front = pareto_front(rows["measured_time_s"].to_numpy(float), rows["measured_energy_j"].to_numpy(float))
    axes.plot(
        rows["measured_time_s"].to_numpy(float)[front], rows["measured_energy_j"].to_numpy(float)[front],
        color="black", linewidth=0.8, marker="o", markersize=7, markerfacecolor="none", markeredgewidth=0.8, zorder=3,
    )  # fmt: skip
    axes.margins(0.12)
    style.log_axis(axes, "x", "s")
    style.log_axis(axes, "y", "J")
    return axes


def composed_vs_measured(axes: Axes, rows: pd.DataFrame, quantity: str) -> Axes:
    """Error of composed networks against what was measured whole, a marker per network, GPU and operating point.

    Parameters
    ----------
    axes
        To draw on.
    rows
        Complete compositions of one pass, from both sources.
    quantity
        `time_s` or `energy_j`.
    """
    for number, (source, columns) in enumerate(METHODS.values()):
        own = rows[rows["source"] == source]
        measured = own[MEASURED_WHOLE[quantity]].to_numpy(float)
        error = 100 * (own[columns[quantity]].to_numpy(float) / measured - 1)
        axes.plot(
            measured, error, linestyle="", marker=style.MARKERS[number], color=style.COLOURS[number],
            markersize=3.5 if len(own) < 500 else 2, alpha=0.7, markeredgewidth=0,
        )  # fmt: skip
    axes.axhline(0, color=style.GREY, linewidth=0.8, zorder=1)
    style.log_axis(axes, "x", PER_PASS[quantity][1])
    axes.yaxis.set_major_formatter("{x:+g} %")
    return axes


def pareto_front(time: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """Positions of the points that no other beats in both, by rising time."""
    order = np.lexsort((energy, time))
    order = order[np.isfinite(time[order]) & np.isfinite(energy[order])]
    least = np.minimum.accumulate(energy[order])
    better = np.concatenate([[True], energy[order][1:] < least[:-1]]) if order.size else np.array([], dtype=bool)
    return np.asarray(order[better])


def _marker_size(points: int) -> float:
    return 4 if points <= 12 else 2
