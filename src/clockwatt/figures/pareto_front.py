"""Energy against time of networks over all GPUs and operating points."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.networks import NORMAL_95
from clockwatt.schema.execution import ExecutionSettings

NETWORKS_AT_MOST = 4
_LABEL_PT = 6
_EDGE = 0.3
"""Share of a panel's width from its left or right axis in which a centred label could cross the axis."""
_KEY = ["gpu", "network_id", "execution", "compared"]
_PANEL = ["kind", "network_id", "compared"]


def front(time: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """Return the positions of the points that no other beats in both, by rising time."""
    order = np.lexsort((energy, time))
    order = order[np.isfinite(time[order]) & np.isfinite(energy[order])]
    least = np.minimum.accumulate(energy[order])
    better = np.concatenate([[True], energy[order][1:] < least[:-1]]) if order.size else np.array([], dtype=bool)
    return np.asarray(order[better])


def points(compositions: pd.DataFrame, errors: pd.DataFrame, gpus: Gpus, pass_: str) -> pd.DataFrame:
    """Return measured time and energy of networks; points of one GPU that agree within error are merged.

    Parameters
    ----------
    compositions
        From `load.compositions`.
    errors
        From `load.whole_errors`.
    gpus
        The GPUs of the campaign.
    pass_
        Which pass.

    Returns
    -------
    pandas.DataFrame
        `kind` (real or virtual), `gpu`, `network_id`, `execution`, `compared`, `time_s`, `energy_j`, halves of their
        95 % intervals `time_error_s` and `energy_error_j`, `points` (in words), and `front`: whether no other of its
        kind is faster and takes less energy.
    """
    rows = compositions[(compositions["pass"] == pass_) & (compositions["source"] == "predicted")]
    rows = rows[rows["measured_time_s"].notna() & rows["measured_energy_j"].notna()]
    rows = rows.merge(errors, on=["gpu", "point", "execution", "network_id", "pass"], how="left").fillna(
        {"time_s_error": 0.0, "energy_j_error": 0.0}
    )
    parts = [_merged(own).assign(**dict(zip(_KEY, map(str, key), strict=True))) for key, own in rows.groupby(_KEY)]
    columns = ["kind", *_KEY, "time_s", "energy_j", "time_error_s", "energy_error_j", "points", "front"]
    if not parts:
        return pd.DataFrame(columns=columns)
    found = pd.concat(parts, ignore_index=True)
    found = found.assign(kind=[gpus.kind(gpu) for gpu in found["gpu"]], front=False)
    for _, own in found.groupby(_PANEL):
        best = front(own["time_s"].to_numpy(float), own["energy_j"].to_numpy(float))
        found.loc[own.index[best], "front"] = True
    return found[columns]


def _merged(own: pd.DataFrame) -> pd.DataFrame:
    """Points of one curve; those that follow each other by clock and agree within their intervals are averaged."""
    own = own.sort_values(["sm_clock_mhz", "power_limit_w", "point"])
    time, energy = own["measured_time_s"].to_numpy(float), own["measured_energy_j"].to_numpy(float)
    time_error, energy_error = (NORMAL_95 * own[name].to_numpy(float) for name in ("time_s_error", "energy_j_error"))
    starts = [0]
    for number in range(1, len(own)):
        first = starts[-1]
        tied = abs(time[number] - time[first]) <= np.hypot(time_error[number], time_error[first])
        tied &= abs(energy[number] - energy[first]) <= np.hypot(energy_error[number], energy_error[first])
        if not tied:
            starts.append(number)
    counts = np.diff([*starts, len(own)])
    names = list(own["point"])
    values = {"time_s": time, "energy_j": energy, "time_error_s": time_error, "energy_error_j": energy_error}
    means = {name: np.add.reduceat(known, starts) / counts for name, known in values.items()}
    ranges = [_range(names[start], names[start + count - 1]) for start, count in zip(starts, counts, strict=True)]
    return pd.DataFrame({**means, "points": ranges})


def _range(first: str, last: str) -> str:
    """Return `sm420`, or `sm420 to sm780`."""
    return first if first == last else f"{first} to {last}"


def draw(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw a column for each network, a row for each kind of GPUs; `data` from `points`."""
    if data.empty:
        return style.nothing("no network has both time and energy in this pass.")
    compared = data.groupby(_PANEL)["time_s"].transform("size") > 1
    alone = "" if compared.all() else "Networks that ran on one GPU at one operating point are left out."
    data = data[compared]
    if data.empty:
        return style.nothing(f"no network ran on two GPUs or at two operating points. {alone}")
    rows = {kind: _networks(data[data["kind"] == kind]) for kind in gpus.kinds(data["gpu"].unique())}
    columns = max(len(chosen) for chosen in rows.values())
    figure, grid = style.panels(len(rows), columns, height_in=2.3)
    for line, (kind, chosen) in zip(grid, rows.items(), strict=True):
        for axes in line[len(chosen) :]:
            axes.set_axis_off()
        for axes, (network, execution) in zip(line, chosen, strict=False):
            own = data[(data["kind"] == kind) & (data["network_id"] == network) & (data["compared"] == execution)]
            _panel(axes, own, gpus)
            gpus.kind_title(axes, kind, style.network_words(network, execution=execution).replace(" ", "\n", 1))
        line[0].set_ylabel("energy per pass (log)")
    labels = [label for of_kind in gpus.kinds(data["gpu"].unique()).values() for label in of_kind]
    style.legend(figure, [gpus.entry(label) for label in labels], "")
    networks = {network for chosen in rows.values() for network, _ in chosen}
    style.footer(
        figure,
        "Measured; bars: 95 % intervals. Ringed: no other GPU or clock of its kind is faster and takes less "
        "energy. Points "
        "of a GPU within error of each other are one.",
        style.without_tf32(data),
        style.networks_left_out(set(data["network_id"]) - networks),
        alone,
    )
    return figure


def _networks(data: pd.DataFrame) -> list[tuple[str, ExecutionSettings]]:
    """Return the networks with the most points, each with a TF32 setting, spread over them by time."""
    counted = data.groupby(["network_id", "compared"]).agg(points=("time_s", "size"), time=("time_s", "median"))
    most = counted[counted["points"] == counted["points"].max()].sort_values("time")
    ordered = [(str(name), ExecutionSettings(str(execution))) for name, execution in most.index]
    kept = set(style.spread([str(number) for number in range(len(ordered))], NETWORKS_AT_MOST))
    return [pair for number, pair in enumerate(ordered) if str(number) in kept]


def _panel(axes: Axes, own: pd.DataFrame, gpus: Gpus) -> None:
    for gpu, curve in own.groupby("gpu"):
        entry = gpus.entry(str(gpu))
        axes.errorbar(
            curve["time_s"], curve["energy_j"], xerr=curve["time_error_s"], yerr=curve["energy_error_j"],
            color=entry.colour, marker=entry.marker, markersize=4 if len(curve) <= 12 else 2, linewidth=0.7,
            elinewidth=0.7, zorder=2,
        )  # fmt: skip
    best = own[own["front"]].sort_values("time_s")
    axes.plot(
        best["time_s"], best["energy_j"], color="black", linewidth=0.8, marker="o", markersize=7.5,
        markerfacecolor="none", markeredgewidth=0.8, zorder=3,
    )  # fmt: skip
    axes.margins(0.28)
    style.log_axis(axes, "x", "s", "time per pass")
    style.log_axis(axes, "y", "J")
    _label(axes, best)


def _label(axes: Axes, best: pd.DataFrame) -> None:
    """Label the operating points of the front: least energy below, least time above, others where labels fit.

    A label near the left or right axis begins or ends near its point.
    """
    taken: list[tuple[float, float]] = []
    apart = 2.4 * _LABEL_PT * axes.figure.dpi / 72
    for place in [len(best) - 1, *range(len(best) - 1)]:
        row = best.iloc[place]
        x, y = axes.transData.transform((row["time_s"], row["energy_j"]))
        if place in (0, len(best) - 1) or all(np.hypot(x - other, y - below) > 2 * apart for other, below in taken):
            taken.append((x, y))
            above = place < len(best) - 1
            across = axes.transAxes.inverted().transform((x, y))[0]
            side, shift = ("left", -9) if across < _EDGE else ("right", 9) if across > 1 - _EDGE else ("center", 0)
            axes.annotate(
                row["points"], (row["time_s"], row["energy_j"]), xytext=(shift, 6 if above else -6), fontsize=_LABEL_PT,
                textcoords="offset points", ha=side, va="bottom" if above else "top", zorder=5,
            )  # fmt: skip
