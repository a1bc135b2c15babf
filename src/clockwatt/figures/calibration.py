"""Draw the calibration of a GPU: power from idle to load, and time per call against duration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.networks import NORMAL_95
from clockwatt.measure.reference_operations import anchors
from clockwatt.operations.spec.operation import Operation

SENSORS = {
    "ring": style.Entry("samples that the driver keeps, 20 ms apart", style.COLOURS[0], "o"),
    "fast": style.Entry("instantaneous power, polled every 100 ms", style.COLOURS[1], "s"),
}
"""Sampling rates of the logger whose power is drawn, and the sensors read."""

RULE_S = 0.1
"""Runs of at least so long were asked for in the thesis."""
_BEFORE_S = 0.3
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
    figure, (panels,) = style.panels(1, len(shown), height_in=2.3)
    for axes, gpu in zip(panels, shown, strict=True):
        own = data[data["gpu"] == gpu]
        for number, (lane, entry) in enumerate(SENSORS.items()):
            of_lane = own["subject"].str.endswith(f"-{lane}")
            for _, run in own[of_lane].sort_values("x").groupby("subject"):
                axes.plot(
                    run["x"], run["value"], color=entry.colour, marker=entry.marker, alpha=0.6, markeredgewidth=0,
                    markersize=1.8 if lane == "ring" else 3.2, linestyle="-" if lane == "ring" else "", linewidth=0.5,
                    zorder=2 + number,
                )  # fmt: skip
        axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
        axes.set_xlim(-_BEFORE_S, own["x"].max())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("time since the load began (s)")
        style.si(axes, "y", "W")
        gpus.title(axes, gpu, OperatingPoint.parse(own["point"].iloc[0]).in_words)
    panels[0].set_ylabel("board power")
    style.legend(figure, list(SENSORS.values()), "")
    runs = data["subject"].str.extract(r"^run(\d+)-")[0].nunique()
    style.footer(
        figure,
        f"{runs} runs of the heaviest reference operation over each other, each after a rest. A sensor shows the "
        "mean over "
        "its own window.",
        gpus.note(shown, gpus.labels),
    )
    return figure


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
        of its 95 % interval, `relative_error`.
    """
    names = operation_names(list(rows["subject"].unique()))
    rows = rows.sort_values(["gpu", "subject", "x"])
    last = rows.groupby(["gpu", "subject"])["value"].transform("last")
    return pd.DataFrame(
        {
            "gpu": rows["gpu"],
            "point": rows["point"],
            "operation": rows["subject"].map(names),
            "calls": rows["x"],
            "duration_s": rows["x"] * rows["value"],
            "relative": rows["value"] / last,
            "relative_error": NORMAL_95 * rows["standard_error"].astype(float) / last,
        }
    ).reset_index(drop=True)


def draw_durations(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw a column for each GPU, a colour for each operation; `data` from `durations`."""
    if data.empty:
        return style.nothing("no calibration holds times of calls back to back.")
    shown, names = gpus.shown(data["gpu"].unique()), _in_order(sorted(data["operation"].unique()))
    entries = style.entries(names)
    figure, (panels,) = style.panels(1, len(shown), height_in=2.3, share_y=True)
    for axes, gpu in zip(panels, shown, strict=True):
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
        gpus.title(axes, gpu, OperatingPoint.parse(own["point"].iloc[0]).in_words)
    panels[0].set_ylabel("time per call,\nrelative to the longest run")
    style.legend(figure, entries, "")
    late = data[(data["duration_s"] >= RULE_S) & (data["relative"].notna())]
    told = (
        f" {RULE_S * 1e3:.0f} ms (dashed) or longer: off by at most {100 * np.abs(late['relative'] - 1).max():.1f} %."
    )
    curves = [rows.sort_values("calls") for _, rows in data[data["gpu"].isin(shown)].groupby(["gpu", "operation"])]
    found = [shortest_duration_s(rows["calls"].to_numpy(float), rows["duration_s"].to_numpy(float)) for rows in curves]
    shortest_s = max((value for value in found if np.isfinite(value)), default=np.nan)
    by_line = f" All runs of {shortest_s * 1e3:.3g} ms or longer lie within 5 σ of a line through the last 6/7."
    style.footer(
        figure,
        "A run waits for the GPU once, at its end; bars: 95 % intervals of the median of several runs."
        + told * bool(len(late))
        + by_line * bool(np.isfinite(shortest_s)),
        gpus.note(shown, gpus.labels),
    )
    return figure


def shortest_duration_s(calls: NDArray[np.float64], duration_s: NDArray[np.float64]) -> float:
    """Return the shortest run, in s, from which on all lie near a line, as C. Nicolai's thesis finds it.

    The line is fitted to durations against calls of the last 6/7 of the runs; near is within 5 standard deviations
    from it. NaN where these are too few for a deviation.

    Parameters
    ----------
    calls, duration_s
        Ascending number of calls, and duration of each run in s; shape (runs,).
    """
    fitted = slice(len(calls) // 7, None)
    if len(calls[fitted]) <= _LINE_PARAMETERS:
        return float("nan")
    line = np.polynomial.Polynomial.fit(calls[fitted], duration_s[fitted], 1)
    off_s = np.abs(duration_s - line(calls))
    deviation_s = np.sqrt(np.sum(off_s[fitted] ** 2) / (len(calls[fitted]) - _LINE_PARAMETERS))
    far = np.flatnonzero(off_s > _NEAR_DEVIATIONS * deviation_s)
    return float(duration_s[min(far[-1] + 1, len(calls) - 1) if far.size else 0])


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
