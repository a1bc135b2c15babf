"""Draw the jitter of power readings: ring buffer and polling, over time and against the host's load."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.studies.power.figures import shared
from clockwatt.studies.power.tables import KEY, POLLED
from clockwatt.studies.power.tasks import TASKS
from clockwatt.telemetry.sampling import RING

LANES = {RING: ("ring buffer of the driver", style.COLOURS[0]), POLLED: ("polling", style.COLOURS[1])}
_BINS = 60
_WINDOW_S = 2.0
_LEAST_INTERVALS = 8
_WINDOWS_AT_MOST = 40


def intervals(readings: pd.DataFrame) -> pd.DataFrame:
    """Return the times between readings at one sampling rate in one run.

    Parameters
    ----------
    readings
        From `tables.read`.

    Returns
    -------
    pandas.DataFrame
        `KEY`, `lane`, `time_s` (of the later reading) and `interval_s`.
    """
    power = readings[readings["lane"].isin(list(LANES))].sort_values([*KEY, "lane", "time_s"])
    interval = power.groupby([*KEY, "lane"])["time_s"].diff()
    return power.assign(interval_s=interval).dropna(subset=["interval_s"])[[*KEY, "lane", "time_s", "interval_s"]]


def histogram(between: pd.DataFrame) -> pd.DataFrame:
    """Count the intervals of all runs; `between` is from `intervals`.

    Returns
    -------
    pandas.DataFrame
        For each sampling rate (`lane`) and bin: `lane`, `from_s`, `to_s`, `share` of its intervals; and of the sampling
        rate as a whole `median_s`, `mean_hz` and `deviation_hz` of one over the intervals, `jitter` (deviation of the
        intervals over their mean) and `beyond`, the share that lies outside of the bins.
    """
    parts = []
    for lane, own in between.groupby("lane"):
        values = own["interval_s"].to_numpy(float)
        median = float(np.median(values))
        # both sampling rates in the same relative width, so that they can be compared by eye
        edges = median * np.linspace(0.5, 1.5, _BINS + 1)
        counts, _ = np.histogram(values, edges)
        rate_hz = 1 / values[values > 0]
        told = {
            "lane": lane, "median_s": median, "mean_hz": float(rate_hz.mean()), "deviation_hz": float(rate_hz.std()),
            "jitter": _jitter(own["interval_s"]),
        }  # fmt: skip
        parts.append(
            pd.DataFrame({"from_s": edges[:-1], "to_s": edges[1:], "share": counts / len(values)}).assign(
                **told, beyond=1 - counts.sum() / len(values)
            )
        )
    columns = ["lane", "from_s", "to_s", "share", "median_s", "mean_hz", "deviation_hz", "jitter", "beyond"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def draw_histogram(data: pd.DataFrame, *, virtual: bool) -> Figure:
    """Draw a panel for each sampling rate; `data` is from `histogram`."""
    if data.empty:
        return style.nothing("power was not read twice in any run.")
    lanes = [lane for lane in LANES if lane in set(data["lane"])]
    figure, (line,) = style.panels(1, len(lanes), height_in=2.0)
    for axes, lane in zip(line, lanes, strict=True):
        name, colour = LANES[lane]
        own = data[data["lane"] == lane]
        width = own["to_s"] - own["from_s"]
        axes.bar(1e3 * own["from_s"], 100 * own["share"], 1e3 * width, align="edge", color=colour)
        median, jitter, beyond = own["median_s"].iloc[0], own["jitter"].iloc[0], own["beyond"].iloc[0]
        mean_hz, deviation_hz = own["mean_hz"].iloc[0], own["deviation_hz"].iloc[0]
        words = f"median {1e3 * median:.1f} ms\n{mean_hz:.3g} ± {deviation_hz:.2g} Hz\njitter {100 * jitter:.2f} %"
        words += f"\n{100 * beyond:.2g} % outside" if beyond > 0 else ""
        axes.text(0.97, 0.95, words, transform=axes.transAxes, ha="right", va="top", fontsize=7)
        axes.set_xlabel("time between readings (ms)")
        style.percent(axes, "y", signed=False)
        stamp = " (virtual)" if virtual else ""
        axes.set_title(f"{name}{stamp}", loc="left", color=style.STAMP if virtual else "black")
    line[0].set_ylabel("share of intervals")
    style.footer(
        figure,
        "All runs. ±: deviation. Jitter: deviation of the intervals over their mean. "
        "Both axes span half to one and a half medians.",
    )
    return figure


def windows(between: pd.DataFrame, readings: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the jitter of both sampling rates in windows of time, with the host's load.

    Parameters
    ----------
    between
        From `intervals`.
    readings, runs
        From `tables.read`.

    Returns
    -------
    pandas.DataFrame
        `network`, `lane`, `time_s` (since the training began, middle of the window), `jitter` (mean over repetitions
        and points), `host_utilization_percent` and `windows`; windows with fewer than some intervals are left out.
    """
    length_s = max(_WINDOW_S, float((runs["end_s"] - runs["start_s"]).max()) / _WINDOWS_AT_MOST)
    start = runs.set_index(KEY)["start_s"]
    host = readings[readings["lane"] == "host"].dropna(subset=["host_utilization_percent"])

    def numbered(rows: pd.DataFrame) -> pd.DataFrame:
        since = rows["time_s"].to_numpy(float) - start.reindex(pd.MultiIndex.from_frame(rows[KEY])).to_numpy(float)
        return rows.assign(window=np.floor(since / length_s).astype(int))

    grouped = numbered(between).groupby([*KEY, "lane", "window"])["interval_s"]
    jitter = grouped.agg(jitter=_jitter, count="size").reset_index()
    busy = numbered(host).groupby([*KEY, "window"])["host_utilization_percent"].mean().reset_index()
    joined = jitter[jitter["count"] >= _LEAST_INTERVALS].merge(busy, on=[*KEY, "window"], how="left")
    found = joined.groupby(["network", "lane", "window"]).agg(
        jitter=("jitter", "mean"),
        host_utilization_percent=("host_utilization_percent", "mean"),
        windows=("jitter", "size"),
    )
    found = found.reset_index()
    return found.assign(time_s=(found["window"] + 0.5) * length_s).drop(columns="window")


def draw_windows(data: pd.DataFrame, *, virtual: bool) -> Figure:
    """Draw jitter over time and against host load: colours are sampling rates, markers networks."""
    if data.empty:
        return style.nothing("no run was long enough.")
    networks = shared.networks(data)
    figure, ((over_time, against),) = style.panels(1, 2, height_in=2.3)
    markers = dict(zip(networks, style.MARKERS, strict=False))
    for network, (lane, (_, colour)) in itertools.product(networks, LANES.items()):
        own = data[(data["network"] == network) & (data["lane"] == lane)].sort_values("time_s")
        drawn: dict[str, Any] = {"color": colour, "marker": markers[network], "markersize": 3}
        over_time.plot(own["time_s"], 100 * own["jitter"], linewidth=0.7, **drawn)
        against.plot(own["host_utilization_percent"], 100 * own["jitter"], linestyle="", **drawn)
    for axes in (over_time, against):
        axes.set_ylim(bottom=0)
        style.percent(axes, "y", signed=False)
    over_time.axvline(0, color=style.GREY, linewidth=0.8)
    over_time.set(xlabel="time since the training began (s)", ylabel="jitter of the intervals")
    against.set_xlabel("use of the host's processors (%)")
    if not data["host_utilization_percent"].notna().any():
        against.text(0.5, 0.5, "the host was not read", transform=against.transAxes, ha="center", va="center")
    for axes, words in ((over_time, "over time"), (against, "against the host's load")):
        stamp = " (virtual)" if virtual else ""
        axes.set_title(f"{words}{stamp}", loc="left", color=style.STAMP if virtual else "black")
    entries = [style.Entry(name, colour, line="-") for name, colour in LANES.values()]
    entries += [style.Entry(TASKS[name].title, style.DARK, markers[name]) for name in networks]
    style.legend(figure, entries, "")
    style.footer(
        figure, "Jitter: deviation of the intervals over their mean, in windows; mean over points and repetitions."
    )
    return figure


def _jitter(values: pd.Series[float]) -> float:
    return float(values.std(ddof=0) / values.mean())
