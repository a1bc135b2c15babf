"""Draw sensor readings while networks ran: jitter, raw power, energy over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clockwatt.figures import sampling, style
from clockwatt.figures.gpus import Gpus

Floats = NDArray[np.float64]

LANES = {
    "ring": style.Entry(sampling.LANES["ring"], style.COLOURS[0], "o"),
    "fast": style.Entry(sampling.LANES["fast"], style.COLOURS[1], "s"),
}
"""Sampling rates of the logger that read power."""
NO_TELEMETRY = "no telemetry of the campaign's own GPUs was found; reference data is shipped without."
TRACE_S = 20.0
"""Length of a power trace that is shown, in s."""


def draw_intervals(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw a histogram of the intervals and, below it, their jitter over time: a column for each GPU.

    `data` from `sampling.intervals`.
    """
    if data.empty:
        return style.nothing(NO_TELEMETRY)
    shown = gpus.shown(data["gpu"].unique())
    figure, (above, below) = style.panels(2, len(shown), height_in=1.8)
    for top, bottom, gpu in zip(above, below, shown, strict=True):
        own = data[data["gpu"] == gpu]
        positive = own.loc[own["interval_s"] > 0, "interval_s"]
        bins = np.geomspace(positive.min() / 1.3, positive.max() * 1.3, 60).tolist()
        for lane, entry in LANES.items():
            part = own[own["lane"] == lane]
            top.hist(part["interval_s"], bins=bins, color=entry.colour, alpha=0.75)
            bottom.plot(
                part["time_s"], 1e3 * part["jitter_s"], linestyle="", marker=entry.marker, color=entry.colour,
                markersize=1.6, markeredgewidth=0, alpha=0.6, rasterized=True,
            )  # fmt: skip
        style.log_axis(top, "x", "s", "interval between readings")
        top.set_ylim(bottom=0.7)
        style.log_axis(top, "y", "")
        bottom.set_xlabel("time (s)")
        gpus.title(top, gpu)
    above[0].set_ylabel("readings (log)")
    below[0].set_ylabel("off the median (ms)")
    style.legend(figure, list(LANES.values()), "")
    jitter = data["jitter_s"].abs().groupby(data["lane"]).quantile(0.95)
    told = "; ".join(f"{LANES[str(lane)].label}: {1e3 * value:.2g} ms" for lane, value in jitter.items())
    style.footer(
        figure,
        f"Deviation of 95 % of the readings is below: {told}. Pauses are left out.",
        gpus.note(shown, gpus.labels),
    )
    return figure


def traces(telemetry: pd.DataFrame) -> pd.DataFrame:
    """Return the power as it was read in the first seconds: `gpu`, `point`, `lane`, `time_s`, `power_w`."""
    rows = telemetry[telemetry["lane"].isin(LANES) & (telemetry["time_s"] <= TRACE_S)]
    polled = rows["power_instant_w"].fillna(rows["power_average_w"])
    power = rows["power_sample_w"].where(rows["lane"] == "ring", polled).astype(float)
    rows = rows.assign(power_w=power).dropna(subset="power_w")
    return rows[["gpu", "point", "lane", "time_s", "power_w"]]


def draw_traces(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw a column for each GPU, a row for each operating point; `data` from `traces`."""
    if data.empty:
        return style.nothing(NO_TELEMETRY)
    shown = gpus.shown(data["gpu"].unique())
    points = {gpu: list(dict.fromkeys(data.loc[data["gpu"] == gpu, "point"])) for gpu in shown}
    figure, grid = style.panels(max(map(len, points.values())), len(shown), height_in=1.25, share_x=True)
    for column, gpu in enumerate(shown):
        top = 1.08 * data.loc[data["gpu"] == gpu, "power_w"].max()
        for number, line in enumerate(grid):
            axes = line[column]
            if number >= len(points[gpu]):
                axes.set_axis_off()
                continue
            own = data[(data["gpu"] == gpu) & (data["point"] == points[gpu][number])]
            for lane, entry in LANES.items():
                part, ring = _broken(own[own["lane"] == lane]), lane == "ring"
                axes.plot(
                    part["time_s"], part["power_w"], color=entry.colour, linewidth=0.6, linestyle="-" if ring else "",
                    marker="" if ring else entry.marker, markersize=1.8, markeredgewidth=0,
                )  # fmt: skip
            axes.set_ylim(0, top)
            style.si(axes, "y", "W")
            axes.yaxis.set_major_locator(style.few())
            gpus.title(axes, gpu, points[gpu][number])
        grid[len(points[gpu]) - 1][column].set_xlabel("time (s)")
        grid[len(points[gpu]) - 1][column].tick_params(labelbottom=True)
    style.legend(figure, list(LANES.values()), "")
    style.footer(
        figure,
        f"Board power, raw, in the first {TRACE_S:.0f} s in which networks were measured, one after the other.",
        gpus.note(shown, gpus.labels),
    )
    return figure


def _broken(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a trace whose line breaks where nothing was read for `GAP_S`."""
    return rows.assign(power_w=rows["power_w"].where(~(rows["time_s"].diff() > GAP_S)))


def _longest(own: pd.DataFrame) -> pd.DataFrame:
    """Return the longest stretch of readings without a gap."""
    stretch = (own["time_s"].diff() > GAP_S).cumsum()
    times = own.groupby(stretch)["time_s"]
    longest = (times.max() - times.min()).idxmax()
    return own[stretch == longest]


def cumulated(telemetry: pd.DataFrame) -> pd.DataFrame:
    """Return the energy since the first reading, by the counter and as integrals of power.

    Parameters
    ----------
    telemetry
        From `load.telemetry`, one operating point for each GPU.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `point`, `source` (of `SOURCES`), `time_s`, `energy_j`, and `off`: over the counter's at that time, minus
        one, from `STEADY_S` on.
    """
    parts = []
    for (gpu, point), rows in telemetry[telemetry["lane"].isin(LANES)].groupby(["gpu", "point"]):
        own = _longest(rows)
        polled, ring = own[own["lane"] == "fast"], own[own["lane"] == "ring"]
        counter = polled[["time_s", "energy_counter_j"]].dropna().astype(float)
        series = {
            "counter": (
                counter["time_s"].to_numpy(),
                (counter["energy_counter_j"] - counter["energy_counter_j"].min()).to_numpy(),
            ),
            "samples": _integral(ring, "power_sample_w"),
            "instant": _integral(polled, "power_instant_w"),
            "average": _integral(polled, "power_average_w"),
        }
        for source, (time_s, energy_j) in series.items():
            if len(time_s) > 1:
                told = pd.DataFrame({"time_s": time_s, "energy_j": energy_j}).iloc[:: max(1, len(time_s) // 1000)]
                off = _off_counter(told, *series["counter"]) if len(counter) > 1 else np.nan
                parts.append(told.assign(gpu=str(gpu), point=str(point), source=source, off=off))
    columns = ["gpu", "point", "source", "time_s", "energy_j", "off"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


SOURCES = {
    "counter": style.Entry("energy counter", "black", line="-"),
    "samples": style.Entry("integral of the driver's samples", style.COLOURS[0], line="-"),
    "instant": style.Entry("of the instantaneous power", style.COLOURS[1], line="--"),
    "average": style.Entry("of the moving average", style.COLOURS[2], line=":"),
}
GAP_S = 0.6
STEADY_S = 2.0
"""Before this time, a single tick of the counter is a large part of it."""


def _off_counter(told: pd.DataFrame, counted_s: Floats, counted_j: Floats) -> Floats:
    """Energy over that of the counter since the first of these times, minus one; missing before `STEADY_S`."""
    time_s, energy_j = told["time_s"].to_numpy(float), told["energy_j"].to_numpy(float)
    since = np.interp(time_s, counted_s, counted_j) - np.interp(time_s[0], counted_s, counted_j)
    found: Floats = energy_j / np.where((time_s - time_s[0] >= STEADY_S) & (since > 0), since, np.nan) - 1
    return found


def _integral(rows: pd.DataFrame, column: str) -> tuple[Floats, Floats]:
    """Return the times and the energy up to each, in J."""
    own = rows[["time_s", column]].dropna().astype(float)
    time_s, power_w = own["time_s"].to_numpy(), own[column].to_numpy()
    step = np.diff(time_s) * (power_w[1:] + power_w[:-1]) / 2
    return time_s, np.concatenate([[0.0], np.cumsum(step)])[: len(own)]


def draw_cumulated(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Energy over time, and below how far each is from the counter: a column for each GPU; `data` from `cumulated`."""
    if data.empty:
        return style.nothing(NO_TELEMETRY)
    shown = gpus.shown(data["gpu"].unique())
    figure, (above, below) = style.panels(2, len(shown), height_in=[2.0, 1.5], share_x=True)
    for top, bottom, gpu in zip(above, below, shown, strict=True):
        own = data[data["gpu"] == gpu]
        for source, entry in SOURCES.items():
            part = own[own["source"] == source]
            top.plot(part["time_s"], part["energy_j"], color=entry.colour, linestyle=entry.line, linewidth=1)
            if source != "counter":
                bottom.plot(part["time_s"], 100 * part["off"], color=entry.colour, linestyle=entry.line, linewidth=1)
        bottom.axhline(0, color="black", linewidth=0.8)
        low, high = bottom.get_ylim()
        bottom.set_ylim(min(low, -1), max(high, 1))
        style.percent(bottom, "y")
        bottom.set_xlabel("time (s)")
        style.si(top, "y", "J")
        gpus.title(top, gpu, own["point"].iloc[0])
    above[0].set_ylabel("energy since the start")
    below[0].set_ylabel("off the counter")
    style.legend(figure, list(SOURCES.values()), "")
    style.footer(
        figure, "While networks were measured, the longest stretch without a pause.", gpus.note(shown, gpus.labels)
    )
    return figure
