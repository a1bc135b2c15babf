"""What calibration saw of a GPU: power from idle to load, and time per call against the number of calls."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from clockwatt.figures import style
from clockwatt.measure.anchors import anchors
from clockwatt.measure.statistics import NORMAL_95
from clockwatt.operations.spec.operation import Operation

SENSORS = {"ring": "driver's ring of samples", "fast": "instantaneous power"}
"""Lanes of the logger whose power is drawn, and what they read."""
_BEFORE_S = 0.3


def power_transient(axes: Axes, rows: pd.DataFrame) -> Axes:
    """Power against the time since a load began, a line or a series of markers for each run and sensor.

    Parameters
    ----------
    axes
        To draw on.
    rows
        Rows `power_transient_w` of one GPU and operating point: `subject` is run and lane, `x` in s, `value` in W.
    """
    for number, lane in enumerate(SENSORS):
        for subject in sorted(set(rows["subject"])):
            if subject.endswith(f"-{lane}"):
                run = rows[rows["subject"] == subject].sort_values("x")
                axes.plot(
                    run["x"], run["value"], color=style.COLOURS[number], marker=style.MARKERS[number],
                    markersize=1.8 if lane == "ring" else 3.2, linestyle="-" if lane == "ring" else "",
                    linewidth=0.5, alpha=0.6, markeredgewidth=0, zorder=2 + number,
                )  # fmt: skip
    axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
    axes.set_xlim(-_BEFORE_S, rows["x"].max())
    axes.set_ylim(bottom=0)
    style.si(axes, "y", "W")
    return axes


def time_against_iterations(axes: Axes, rows: pd.DataFrame, operations: Sequence[str]) -> Axes:
    """Time per call against how many calls ran back to back, relative to that of the most calls.

    Parameters
    ----------
    axes
        To draw on.
    rows
        Rows `time_per_call_s` of one GPU and operating point: `subject` is an operation id, `x` the number of calls,
        `value` and `standard_error` in s. The bars are 95 % intervals.
    operations
        Ids, each with its colour.
    """
    for number, operation_id in enumerate(operations):
        own = rows[rows["subject"] == operation_id].sort_values("x")
        if len(own):
            most = float(own["value"].iloc[-1])
            axes.errorbar(
                own["x"], own["value"] / most, yerr=NORMAL_95 * own["standard_error"] / most,
                color=style.COLOURS[number], marker=style.MARKERS[number], markersize=3, elinewidth=0.8, linewidth=0.9,
            )  # fmt: skip
    axes.axhline(1, color=style.GREY, linewidth=0.8, zorder=1)
    style.log_axis(axes, "x", "")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g} ×")
    return axes


def operation_names(operation_ids: Sequence[str]) -> dict[str, str]:
    """Ids to names that say what runs, in the order of the anchor operations; an unknown id, last, is its own name."""
    named = {}
    for row in anchors():
        shape = Operation.from_json(row.spec).tensors[0].shape
        named[row.operation_id] = f"{row.function.rsplit('.', 1)[-1]} {'×'.join(map(str, shape))}"
    known = {operation_id: name for operation_id, name in named.items() if operation_id in operation_ids}
    return known | {operation_id: operation_id for operation_id in operation_ids if operation_id not in named}
