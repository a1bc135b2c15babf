"""Predicted against measured costs of operations, and the errors class by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm

from clockwatt.figures import style
from clockwatt.predict.evaluation.metrics import metrics
from clockwatt.schema.costs import BY_CORRECTED

POINTS_AT_MOST = 3000
"""More than this in a panel are drawn as density."""

CLASSES_NAMED = 7
OTHER = "other"

_DENSITY = LinearSegmentedColormap.from_list("density", ["#D6E6F2", style.COLOURS[0], "#00263D"])


@dataclass(frozen=True)
class Quantity:
    """A predicted quantity as it is drawn."""

    column: str
    name: str
    unit: str
    logarithmic: bool


TIME = Quantity("time_device_corrected_s", "device time per call", "s", logarithmic=True)
POWER = Quantity("power_corrected_w", "power under load", "W", logarithmic=False)
ENERGY = Quantity("energy_dynamic_corrected_j", "dynamic energy per call", "J", logarithmic=True)


def common_classes(rows: pd.DataFrame) -> list[str]:
    """The most frequent operation classes, so many as can be told apart, and `other` if there are more."""
    counts = rows["operation_class"].value_counts()
    ordered = sorted(counts.index, key=lambda name: (-counts[name], name))
    return ordered if len(ordered) <= CLASSES_NAMED + 1 else [*ordered[:CLASSES_NAMED], OTHER]


def predicted_vs_measured(axes: Axes, rows: pd.DataFrame, quantity: Quantity, classes: Sequence[str]) -> Axes:
    """Predicted against measured values of one GPU and pass, held-out predictions.

    Parameters
    ----------
    axes
        To draw on.
    rows
        Of `crossval.parquet`: one GPU, pass and predictor, learnt rows.
    quantity
        What to draw.
    classes
        From `common_classes`; each has its colour. Density is drawn if there is none.
    """
    measured = rows[quantity.column].to_numpy(float)
    predicted = rows[BY_CORRECTED[quantity.column].predicted].to_numpy(float)
    limits = _limits(measured, predicted, quantity.logarithmic)
    scale: Literal["log", "linear"] = "log" if quantity.logarithmic else "linear"
    axes.set(xscale=scale, yscale=scale, xlim=limits, ylim=limits)
    axes.plot(limits, limits, color=style.GREY, linewidth=0.8, zorder=1)
    if not classes:
        extent = np.log10(limits) if quantity.logarithmic else limits
        axes.hexbin(
            measured,
            predicted,
            gridsize=60,
            xscale=scale,
            yscale=scale,
            extent=(*extent, *extent),
            cmap=_DENSITY,
            norm=LogNorm(),
            linewidths=0.1,
            zorder=2,
        )
    else:
        named = rows["operation_class"].where(rows["operation_class"].isin(classes), OTHER).to_numpy(str)
        for number, name in enumerate(classes):
            chosen = named == name
            axes.plot(
                measured[chosen], predicted[chosen], linestyle="", marker=style.MARKERS[number], markersize=3,
                color=style.COLOURS[number], alpha=0.6, markeredgewidth=0, zorder=2,
            )  # fmt: skip
    axes.set_aspect("equal")
    for which in ("x", "y"):
        if quantity.logarithmic:
            style.log_axis(axes, which, quantity.unit)
        else:
            style.si(axes, which, quantity.unit)
    axes.text(0.04, 0.96, _summary(measured, predicted), transform=axes.transAxes, va="top", fontsize=6.5)
    return axes


def error_by_class(
    axes: Axes, rows: pd.DataFrame, quantity: Quantity, classes: Sequence[str], predictors: Sequence[str]
) -> Axes:
    """Absolute percentage error of each class: a dot at the median, a line to the 95th percentile.

    Parameters
    ----------
    axes
        To draw on.
    rows
        Of `crossval.parquet`: one GPU and pass, learnt rows, every predictor.
    quantity
        Whose error.
    classes
        From top to bottom.
    predictors
        Each has its colour, and its line beside the others'.
    """
    for offset, name in enumerate(predictors):
        own = rows[rows["predictor"] == name]
        for position, operation_class in enumerate(classes):
            of_class = own[own["operation_class"] == operation_class]
            values = metrics(
                of_class[quantity.column].to_numpy(float),
                of_class[BY_CORRECTED[quantity.column].predicted].to_numpy(float),
            )
            if values["rows"]:
                y = position + (offset - (len(predictors) - 1) / 2) * 0.3
                colour = style.COLOURS[offset]
                low, high = (100 * max(values[key], 1e-4) for key in ("median_ape", "p95_ape"))
                axes.plot([low, high], [y, y], color=colour, linewidth=1)
                axes.plot(low, y, marker=style.MARKERS[offset], color=colour, linestyle="", markersize=3.5)
    style.log_axis(axes, "x", "%")
    axes.set_yticks(range(len(classes)), labels=list(classes))
    axes.set_ylim(len(classes) - 0.4, -0.6)
    axes.xaxis.set_major_formatter("{x:g} %")
    return axes


def _limits(measured: np.ndarray, predicted: np.ndarray, logarithmic: bool) -> tuple[float, float]:
    values = np.concatenate([measured, predicted])
    values = values[np.isfinite(values) & (values > 0)]
    if values.size == 0:
        return (0.1, 10.0) if logarithmic else (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    if logarithmic:
        return low / 1.5, high * 1.5
    margin = max(0.05 * (high - low), 0.02 * high)
    return low - margin, high + margin


def _summary(measured: np.ndarray, predicted: np.ndarray) -> str:
    values = metrics(measured, predicted)
    if not values["rows"]:
        return "no rows"
    r2 = "–" if values["r2"] is None else f"{values['r2']:.3f}"
    return f"n = {values['rows']:,}\nR² = {r2}\nMAPE {100 * values['mape']:.1f} %"
