"""Power of single runs over time, and energy as it adds up."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from clockwatt import signals
from clockwatt.config import OperatingPoint
from clockwatt.figures import style
from clockwatt.studies.power.figures import shared
from clockwatt.studies.power.tables import KEY, POLLED
from clockwatt.telemetry.sampling import RING

_READINGS_AT_MOST = 1500
_GRID_AT_MOST = 400


def power(readings: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the readings of power of each network's first repetition at each point, since its training began.

    Parameters
    ----------
    readings, runs
        From `tables.read`.

    Returns
    -------
    pandas.DataFrame
        `network`, `point`, `lane`, `time_s`, `power_w`: those of the ring, or where there is none, those polled.
    """
    first = runs[runs["repetition"] == runs["repetition"].min()]
    parts = [rows.iloc[:: max(1, len(rows) // _READINGS_AT_MOST)] for rows in _best(readings, first)]
    columns = ["network", "point", "lane", "time_s", "power_w"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _best(readings: pd.DataFrame, runs: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the best readings of each of these runs during its training, with times since that began."""
    found = []
    of_run = dict(list(readings.dropna(subset=["power_w"]).groupby(KEY)))
    for run in runs.to_dict("records"):
        rows = of_run.get(tuple(run[name] for name in KEY))
        if rows is None:
            continue
        lane = RING if (rows["lane"] == RING).any() else POLLED
        rows = rows[(rows["lane"] == lane) & rows["time_s"].between(run["start_s"], run["end_s"])]
        found.append(rows.assign(time_s=rows["time_s"] - run["start_s"]))
    return found


def draw_power(data: pd.DataFrame, *, virtual: bool) -> Figure:
    """Draw a panel for each network, a line for each point, and the limits as dotted lines; `data` from `power`."""
    if data.empty:
        return style.nothing("no power was read.")
    networks, entries = shared.networks(data), shared.entries(data["point"])
    figure, grid = style.panels(len(networks), 1, height_in=1.5)
    for (axes,), network in zip(grid, networks, strict=True):
        own = data[data["network"] == network]
        for point, entry in entries.items():
            rows = own[own["point"] == point]
            axes.plot(rows["time_s"], rows["power_w"], color=entry.colour, linewidth=0.8)
            limit_w = OperatingPoint.parse(point).power_limit_w
            if limit_w is not None and len(rows) and limit_w < 1.6 * own["power_w"].max():
                axes.axhline(limit_w, color=entry.colour, linewidth=0.7, linestyle=":")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
        axes.set_ylabel("power (W)")
        shared.title(axes, network, virtual=virtual)
    grid[-1][0].set_xlabel("time since the training began (s)")
    style.legend(figure, list(entries.values()), "")
    lanes = {RING: "samples of the driver's ring buffer", POLLED: "polled readings"}
    style.footer(
        figure,
        f"The first repetition: {' and '.join(lanes[lane] for lane in lanes if lane in set(data['lane']))}. "
        "Dotted: power limits near what is drawn.",
        shared.left_out(data["point"], entries),
    )
    return figure


def cumulative(readings: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the energy since the training began: mean and deviation over repetitions at each time.

    Parameters
    ----------
    readings, runs
        From `tables.read`.

    Returns
    -------
    pandas.DataFrame
        `network`, `point`, `time_s`, `energy_j` (mean), `deviation_j` (of a sample; NaN for one run), `runs`, until the
        longest repetition has ended. One that is over keeps its energy.
    """
    parts = []
    for (network, point), own in runs.groupby(["network", "point"], sort=False):
        curves = []
        for rows in _best(readings, own):
            rows = rows.drop_duplicates("time_s").sort_values("time_s")
            energy_j = signals.cumulative_energy_j(rows["time_s"], rows["power_w"].astype(float))
            curves.append(pd.Series(energy_j, index=pd.Index(rows["time_s"].to_numpy(float), name="time_s")))
        curves = [curve for curve in curves if len(curve) > 1]
        if not curves:
            continue
        rate_hz = _GRID_AT_MOST / max(float(curve.index[-1]) for curve in curves)
        mean = signals.average_runs(curves, rate_hz=rate_hz, kind="monotone", hold=True).reset_index()
        mean = mean.rename(columns={"mean": "energy_j", "deviation": "deviation_j"})
        parts.append(mean.assign(network=str(network), point=str(point)))
    columns = ["network", "point", "time_s", "energy_j", "deviation_j", "runs"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def draw_cumulative(data: pd.DataFrame, *, virtual: bool) -> Figure:
    """Draw the energy over time, and beside it how much repetitions differ; `data` from `cumulative`."""
    if data.empty:
        return style.nothing("no power was read.")
    networks, entries = shared.networks(data), shared.entries(data["point"])
    figure, grid = style.panels(len(networks), 2, height_in=1.6)
    for (left, right), network in zip(grid, networks, strict=True):
        own = data[data["network"] == network]
        for point, entry in entries.items():
            rows = own[own["point"] == point]
            time_s, energy_j = rows["time_s"].to_numpy(float), rows["energy_j"].to_numpy(float)
            deviation_j = rows["deviation_j"].to_numpy(float)
            left.plot(time_s, energy_j, color=entry.colour)
            left.fill_between(
                time_s, energy_j - deviation_j, energy_j + deviation_j, color=entry.colour, alpha=0.25, linewidth=0
            )
            settled = time_s > 0.05 * time_s.max() if len(time_s) else time_s > 0
            right.plot(time_s[settled], 100 * deviation_j[settled] / energy_j[settled], color=entry.colour)
        style.si(left, "y", "J")
        left.set_ylabel("energy")
        shared.title(left, network, virtual=virtual)
        right.set_ylim(bottom=0)
        style.percent(right, "y", signed=False)
        right.set_ylabel("deviation of runs")
        if not np.isfinite(own["deviation_j"].to_numpy(float)).any():
            right.text(0.5, 0.5, "one run at each point", transform=right.transAxes, ha="center", va="center")
    for axes in grid[-1]:
        axes.set_xlabel("time since the training began (s)")
    style.legend(figure, list(entries.values()), "")
    style.footer(
        figure,
        "Left: mean over repetitions, band: one deviation. Right: that deviation relative to the mean. Both go to the "
        "end of the longest repetition; one that is over keeps its energy.",
        shared.left_out(data["point"], entries),
    )
    return figure
