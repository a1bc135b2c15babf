"""Predicted against measured costs of operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.predict.evaluation.errors import metrics
from clockwatt.schema.costs import BY_CORRECTED

POINTS_AT_MOST = 3000
"""More than this in a panel are drawn, and written, as density."""
_BINS = 70
_DENSITY = LinearSegmentedColormap.from_list("density", ["#BBD3E8", style.COLOURS[0], "#00263D"])


@dataclass(frozen=True)
class Quantity:
    """A predicted quantity as it is drawn."""

    column: str
    name: str
    unit: str
    logarithmic: bool

    @property
    def predicted(self) -> str:
        """Column of its prediction."""
        return BY_CORRECTED[self.column].predicted


TIME = Quantity("time_device_corrected_s", "device time per call", "s", logarithmic=True)
POWER = Quantity("power_corrected_w", "power under load", "W", logarithmic=False)
ENERGY = Quantity("energy_dynamic_corrected_j", "dynamic energy per call", "J", logarithmic=True)


def weighted(rows: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Held-out rows with `weight_j`: the energy that all networks' calls of the operation take, 0 where not known.

    Parameters
    ----------
    rows
        From `load.held_out`, with `operation_id` and dynamic energy.
    calls
        From `load.calls`.
    """
    counts = calls.groupby(["operation_id", "pass"])["calls"].sum()
    number = counts.reindex(pd.MultiIndex.from_frame(rows[["operation_id", "pass"]])).to_numpy(float)
    return rows.assign(weight_j=np.nan_to_num(number * rows[ENERGY.column].to_numpy(float)))


def compared(rows: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """Return the data of a figure of predicted against measured values; bins where there are many.

    Parameters
    ----------
    rows
        From `weighted`, of one predictor: every GPU that is shown.
    quantity
        What to compare.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `pass`, `measured`, `predicted`, `operations`: how many lie there, 1 where they are not binned.
    """
    columns = ["gpu", "pass", "measured", "predicted", "operations"]
    parts = []
    for (gpu, pass_), own in rows.groupby(["gpu", "pass"]):
        told = pd.DataFrame({"measured": own[quantity.column], "predicted": own[quantity.predicted]}).astype(float)
        values = told.to_numpy(float)
        told = told[((values > 0) & np.isfinite(values)).all(axis=1)].assign(operations=1)
        if len(told) > POINTS_AT_MOST:
            told = _binned(told, logarithmic=quantity.logarithmic)
        parts.append(told.assign(**{"gpu": str(gpu), "pass": str(pass_)}))
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _binned(told: pd.DataFrame, *, logarithmic: bool) -> pd.DataFrame:
    scale, back = (np.log10, lambda values: 10**values) if logarithmic else (np.asarray, np.asarray)
    measured, predicted = (scale(told[name].to_numpy(float)) for name in ("measured", "predicted"))
    low, high = min(measured.min(), predicted.min()), max(measured.max(), predicted.max())
    width = (high - low) / _BINS or 1.0
    places = pd.DataFrame(
        {name: np.floor((values - low) / width) for name, values in (("measured", measured), ("predicted", predicted))}
    )
    counted = places.groupby(["measured", "predicted"]).size().rename("operations").reset_index()
    for name in ("measured", "predicted"):
        counted[name] = back(low + (counted[name] + 0.5) * width)
    return counted


def summary(rows: pd.DataFrame, quantity: Quantity) -> dict[tuple[str, str], dict[str, Any]]:
    """GPU and pass to `metrics`, and `weighted_ape`: the mean error weighted by energy; `rows` as in `compared`."""
    found = {}
    for (gpu, pass_), own in rows.groupby(["gpu", "pass"]):
        measured, predicted = (own[name].to_numpy(float) for name in (quantity.column, quantity.predicted))
        found[str(gpu), str(pass_)] = metrics(measured, predicted) | {
            "weighted_ape": weighted_error(measured, predicted, own["weight_j"].to_numpy(float))
        }
    return found


def weighted_error(measured: np.ndarray, predicted: np.ndarray, weight: np.ndarray) -> float | None:
    """Return the mean of |predicted / measured − 1| weighted; None where nothing has a weight."""
    known = np.isfinite(measured) & np.isfinite(predicted) & (measured > 0) & (weight > 0)
    if not known.any():
        return None
    return float(np.average(np.abs(predicted[known] / measured[known] - 1), weights=weight[known]))


def draw_compared(
    data: pd.DataFrame,
    told: dict[tuple[str, str], dict[str, Any]],
    quantity: Quantity,
    gpus: Gpus,
    predictor: str,
) -> Figure:
    """Draw a row for each pass and a column for each GPU.

    Parameters
    ----------
    data, told
        From `compared` and `summary`.
    quantity
        As for `compared`.
    gpus
        The GPUs of the campaign.
    predictor
        Whose predictions they are.
    """
    if data.empty:
        return style.nothing(f"no operation has both a measured {quantity.name} and a prediction of it.")
    shown, passes = gpus.shown(data["gpu"].unique()), sorted(data["pass"].unique())
    height = min(2.9, 0.92 * style.WIDTH_IN / len(shown))
    figure, grid = style.panels(len(passes), len(shown), height_in=height)
    for line, pass_ in zip(grid, passes, strict=True):
        for axes, gpu in zip(line, shown, strict=True):
            _scatter(axes, data[(data["gpu"] == gpu) & (data["pass"] == pass_)], quantity, gpus.entry(gpu))
            axes.text(
                0.03, 0.97, _words(told.get((gpu, pass_))), transform=axes.transAxes, va="top", fontsize=6,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            )  # fmt: skip
            gpus.title(axes, gpu)
        line[0].set_ylabel(f"{pass_}\npredicted{' (log)' if quantity.logarithmic else ''}")
    for axes in grid[-1]:
        axes.set_xlabel(f"measured{' (log)' if quantity.logarithmic else ''}")
    style.footer(
        figure,
        f"{quantity.name.capitalize()}, predicted by {predictor} without the operation's group. Darker: more "
        "operations.",
        "Errors: median, 95th percentile and mean weighted by the energy that networks spend on an operation.",
        gpus.note(shown, gpus.labels),
    )
    return figure


def _scatter(axes: Axes, own: pd.DataFrame, quantity: Quantity, entry: style.Entry) -> None:
    limits = _limits(own[["measured", "predicted"]].to_numpy(float).ravel(), logarithmic=quantity.logarithmic)
    scale: Literal["log", "linear"] = "log" if quantity.logarithmic else "linear"
    axes.set(xscale=scale, yscale=scale, xlim=limits, ylim=limits)
    axes.plot(limits, limits, color=style.GREY, linewidth=0.8, zorder=1)
    if len(own) and own["operations"].max() > 1:
        ordered = own.sort_values("operations")
        axes.scatter(
            ordered["measured"], ordered["predicted"], c=ordered["operations"], cmap=_DENSITY, norm=LogNorm(vmin=1),
            s=2.2, marker="s", linewidths=0, zorder=2, rasterized=True,
        )  # fmt: skip
    else:
        axes.plot(
            own["measured"], own["predicted"], linestyle="", marker=entry.marker, markersize=2.5, color=entry.colour,
            alpha=0.4, markeredgewidth=0, zorder=2, rasterized=True,
        )  # fmt: skip
    axes.set_aspect("equal")
    for which in ("x", "y"):
        if quantity.logarithmic:
            style.log_axis(axes, which, quantity.unit)
        else:
            style.si(axes, which, quantity.unit)
            (axes.xaxis if which == "x" else axes.yaxis).set_major_locator(style.few())


def _limits(values: np.ndarray, *, logarithmic: bool) -> tuple[float, float]:
    if values.size == 0:
        return (0.1, 10.0) if logarithmic else (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    if logarithmic:
        return low / 1.5, high * 1.5
    margin = max(0.05 * (high - low), 0.02 * high)
    return low - margin, high + margin


def _words(told: dict[str, Any] | None) -> str:
    if not told or not told["rows"]:
        return "no rows"
    r2 = "–" if told["r2"] is None else f"{told['r2']:.3f}"
    weighted = "–" if told["weighted_ape"] is None else f"{100 * told['weighted_ape']:.1f} %"
    return (
        f"n {told['rows']:,}, R² {r2}\nmedian {100 * told['median_ape']:.1f} %\n"
        f"95 % below {100 * told['p95_ape']:.0f} %\nby energy {weighted}"
    )
