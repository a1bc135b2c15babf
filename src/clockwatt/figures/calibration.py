"""Draw the calibration of a GPU: power from idle to load, and time per call against duration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.networks import NORMAL_95
from clockwatt.measure.reference_operations import anchors
from clockwatt.operations.spec.operation import Operation
from clockwatt.schema.quantities import UNRESTED

SENSORS = {
    "ring": style.Entry("ring buffer of the driver, every 20 ms", style.COLOURS[0], "o"),
    "fast": style.Entry("instantaneous power, polled every 100 ms", style.COLOURS[1], "s"),
}
"""Sampling rates of the logger whose power is drawn, and the sensors read."""

RULE_S = 0.1
"""Runs of at least so long were asked for in the thesis."""
_BEFORE_S = 0.3
LINE_COLUMNS = ["line_s", "line_deviation_s", "shortest_s"]
_LINE_PARAMETERS = 2
_NEAR_DEVIATIONS = 5
"""From a line, for a run to be long enough, as in the thesis."""


def draw_transient(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw power against the time since a load began: a column for each GPU, with all runs overlaid.

    Parameters
    ----------
    data
        Rows `power_transient_w` of `load.calibrated`: `subject` is run and sampling rate, `x` in s, `value` in W.
    gpus
        The GPUs of the campaign.
    """
    if data.empty:
        return style.nothing("no calibration holds power from idle to load.")
    shown = gpus.shown(data["gpu"].unique())
    unrested = data["subject"].str.startswith(UNRESTED)
    parts = {"after a rest": data[~unrested], "without a rest": data[unrested]}
    parts = {words: rows for words, rows in parts.items() if len(rows)}
    figure, grid = style.panels(len(parts), len(shown), height_in=2.3, share_x=True)
    for panels, (words, rows) in zip(grid, parts.items(), strict=True):
        for axes, gpu in zip(panels, shown, strict=True):
            _overlaid(axes, rows[rows["gpu"] == gpu])
            if gpu not in set(rows["gpu"]):
                axes.text(0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center", color=style.GREY)
            highest = data.loc[data["gpu"] == gpu, ["x", "value"]].max()
            axes.set(xlim=(-_BEFORE_S, highest["x"]), ylim=(0, 1.08 * highest["value"]))
        panels[0].set_ylabel(f"board power, {words}")
    for top, bottom, gpu in zip(grid[0], grid[-1], shown, strict=True):
        gpus.title(top, gpu, data.loc[data["gpu"] == gpu, "point"].iloc[0])
        bottom.set_xlabel("time since the load began (s)")
    style.legend(figure, list(SENSORS.values()), "")
    runs = parts[next(iter(parts))]["subject"].str.extract(r"(\d+)-")[0].nunique()
    style.footer(
        figure,
        f"{runs} overlaid runs of the heaviest reference operation. A sensor shows the mean over its own window.",
        gpus.note(shown, gpus.labels),
    )
    return figure


def _overlaid(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a line for each run of the ring, points for those polled."""
    for number, (lane, entry) in enumerate(SENSORS.items()):
        of_lane = rows["subject"].str.endswith(f"-{lane}")
        for _, run in rows[of_lane].sort_values("x").groupby("subject"):
            axes.plot(
                run["x"], run["value"], color=entry.colour, marker=entry.marker, alpha=0.6, markeredgewidth=0,
                markersize=1.8 if lane == "ring" else 3.2, linestyle="-" if lane == "ring" else "", linewidth=0.5,
                zorder=2 + number,
            )  # fmt: skip
    axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
    style.si(axes, "y", "W")


def durations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the time per call against how long calls ran back to back.

    Parameters
    ----------
    rows
        Rows `time_per_call_s` of `load.calibrated`: `subject` is an operation id, `x` the number of calls, `value` and
        `standard_error` in s.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `point`, `operation`, `calls`, `duration_s`, `relative` (time per call over that of the longest run)
        and half
        of its 95 % interval, `relative_error`; the columns of `thesis_line`.
    """
    names = operation_names(list(rows["subject"].unique()))
    rows = rows.sort_values(["gpu", "subject", "x"], ignore_index=True)
    last = rows.groupby(["gpu", "subject"])["value"].transform("last")
    found = pd.DataFrame(
        {
            "gpu": rows["gpu"],
            "point": rows["point"],
            "operation": rows["subject"].map(names),
            "calls": rows["x"],
            "duration_s": rows["x"] * rows["value"],
            "relative": rows["value"] / last,
            "relative_error": NORMAL_95 * rows["standard_error"].astype(float) / last,
        }
    )
    lines = [thesis_line(own["calls"], own["duration_s"]) for _, own in found.groupby(["gpu", "operation"])]
    return found.join(pd.concat(lines)) if lines else found.assign(**dict.fromkeys(LINE_COLUMNS, np.nan))


def thesis_line(calls: pd.Series[float], duration_s: pd.Series[float]) -> pd.DataFrame:
    """Fit a line to runs of one operation, and find the shortest of them that is near it, as C. Nicolai's thesis does.

    The line is fitted to durations against calls of the last 6/7 of the runs; near is within 5 standard deviations
    from it.

    Parameters
    ----------
    calls, duration_s
        Ascending number of calls, and duration of each run in s.

    Returns
    -------
    pandas.DataFrame
        `LINE_COLUMNS`, indexed as the runs: the line at these calls, the standard deviation of runs from it, and the
        shortest run from which on all lie near it, all in s; NaN where runs are too few for a deviation.
    """
    fitted = slice(len(calls) // 7, None)
    x, y = calls.to_numpy(float), duration_s.to_numpy(float)
    if len(x[fitted]) <= _LINE_PARAMETERS:
        return pd.DataFrame(np.nan, calls.index, LINE_COLUMNS)
    line_s = np.polynomial.Polynomial.fit(x[fitted], y[fitted], 1)(x)
    off_s = np.abs(y - line_s)
    deviation_s = np.sqrt(np.sum(off_s[fitted] ** 2) / (len(x[fitted]) - _LINE_PARAMETERS))
    far = np.flatnonzero(off_s > _NEAR_DEVIATIONS * deviation_s)
    shortest_s = y[min(far[-1] + 1, len(x) - 1) if far.size else 0]
    values = dict(zip(LINE_COLUMNS, (line_s, deviation_s, shortest_s), strict=True))
    return pd.DataFrame(values, calls.index)


def draw_durations(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw a column for each GPU, a colour for each operation; `data` from `durations`.

    Above, durations against calls with the thesis's line; below, time per call against the duration.
    """
    if data.empty:
        return style.nothing("no calibration holds times of calls back to back.")
    shown, names = gpus.shown(data["gpu"].unique()), _in_order(sorted(data["operation"].unique()))
    entries = style.entries(names)
    figure, (above, below) = style.panels(2, len(shown), height_in=2.3, share_y=True)
    for axes, gpu in zip(above, shown, strict=True):
        _draw_lines(axes, data[data["gpu"] == gpu], entries)
        gpus.title(axes, gpu, data.loc[data["gpu"] == gpu, "point"].iloc[0])
    for axes, gpu in zip(below, shown, strict=True):
        own = data[data["gpu"] == gpu]
        for entry in entries:
            curve = own[own["operation"] == entry.label]
            axes.errorbar(
                curve["duration_s"], curve["relative"], yerr=curve["relative_error"].fillna(0), color=entry.colour,
                marker=entry.marker, markersize=3, elinewidth=0.8, linewidth=0.9,
            )  # fmt: skip
        axes.axvline(RULE_S, color="black", linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
        axes.axhline(1, color=style.GREY, linewidth=0.8, zorder=1)
        positive = own.loc[own["duration_s"] > 0, "duration_s"]
        axes.set_xlim(positive.min() / 1.5, 1.5 * max(positive.max(), RULE_S))
        style.log_axis(axes, "x", "s", "duration of the run")
        axes.yaxis.set_major_formatter("{x:g} ×")
    above[0].set_ylabel("duration of the run (log)")
    below[0].set_ylabel("time per call,\nrelative to the longest run")
    style.legend(figure, entries, "")
    late = data[(data["duration_s"] >= RULE_S) & (data["relative"].notna())]
    told = (
        f" {RULE_S * 1e3:.0f} ms (dashed) or longer: off by at most {100 * np.abs(late['relative'] - 1).max():.1f} %."
    )
    shortest_s = data.loc[data["gpu"].isin(shown), "shortest_s"].max()
    by_line = (
        f" Above, lines are fitted to the last 6/7 of the runs, with bands of {_NEAR_DEVIATIONS} σ; rings: "
        f"shortest run after which all are within the band, {shortest_s * 1e3:.3g} ms at most."
    )
    style.footer(
        figure,
        "A run waits for the GPU once, at its end; bars: 95 % intervals of the median of several runs."
        + told * bool(len(late))
        + by_line * bool(np.isfinite(shortest_s)),
        gpus.note(shown, gpus.labels),
    )
    return figure


def _draw_lines(axes: Axes, own: pd.DataFrame, entries: Sequence[style.Entry]) -> None:
    """Draw durations of one GPU against the number of calls, with the line of each operation, its band and its ring."""
    for entry in entries:
        runs = own[own["operation"] == entry.label]
        shape: dict[str, Any] = {"color": entry.colour, "linestyle": "", "clip_on": False}
        axes.plot(runs["calls"], runs["duration_s"], marker=entry.marker, markersize=3, **shape)
        near = runs[runs["duration_s"] == runs["shortest_s"]]
        axes.plot(near["calls"], near["duration_s"], marker="o", markersize=8, markerfacecolor="none", **shape)
        axes.plot(runs["calls"], runs["line_s"].where(runs["line_s"] > 0), color=entry.colour, linewidth=0.9)
        half_s = _NEAR_DEVIATIONS * runs["line_deviation_s"]
        # a logarithmic axis has no negative ends: they are cut off below the shortest run
        low_s = (runs["line_s"] - half_s).clip(lower=own["duration_s"].min() / 2)
        high_s = (runs["line_s"] + half_s).clip(lower=own["duration_s"].min() / 2)
        axes.fill_between(runs["calls"], low_s, high_s, color=entry.colour, alpha=0.12, linewidth=0)
    axes.set_ylim(own["duration_s"].min() / 2, 2 * own["duration_s"].max())
    style.log_axis(axes, "x", "", "calls in a run")
    style.log_axis(axes, "y", "s")


def _in_order(names: Sequence[str]) -> list[str]:
    known = list(operation_names([row.operation_id for row in anchors()]).values())
    return [name for name in known if name in names] + [name for name in names if name not in known]


def operation_names(operation_ids: Sequence[str]) -> dict[str, str]:
    """Return ids with names, in the order of the reference operations; unknown ids come last under their id."""
    named = {}
    for row in anchors():
        shape = Operation.from_json(row.spec).tensors[0].shape
        named[row.operation_id] = f"{row.function.rsplit('.', 1)[-1]} {'×'.join(map(str, shape))}"
    known = {operation_id: name for operation_id, name in named.items() if operation_id in operation_ids}
    return known | {operation_id: operation_id for operation_id in operation_ids if operation_id not in named}
