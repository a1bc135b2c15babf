"""Whether more operations would make predictions better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.predictions import Quantity

_ERRORS = {"median_ape": ("median", "-"), "p95_ape": ("95th percentile", ":")}


def curves(report: dict[str, Any], quantities: Sequence[Quantity]) -> pd.DataFrame:
    """Return errors on held-out operations against the number of training operations.

    Parameters
    ----------
    report
        `metrics.json`, as `load.metrics` gives it.
    quantities
        Quantities whose errors are reported.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `pass`, `operations`, `quantity`, `judged`: how many rows, `median_ape` and `p95_ape`.
    """
    rows = [
        {"gpu": gpu, "pass": pass_, "operations": step["operations"], "quantity": quantity.name,
         "judged": errors["rows"], **{name: errors[name] for name in _ERRORS}}
        for gpu, told in report["gpus"].items()
        for pass_, of_pass in told["passes"].items()
        for step in of_pass.get("learning_curve", [])
        for quantity in quantities
        if (errors := step["targets"][quantity.column])["rows"]
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["gpu", "pass", "operations", "quantity", "judged", *_ERRORS])


def draw(data: pd.DataFrame, gpus: Gpus, quantities: Sequence[Quantity]) -> Figure:
    """Draw a row for each pass, a column for each GPU, a curve for each quantity and measure; `data` from `curves`."""
    if data.empty:
        return style.nothing("no GPU has enough operations to hold out a fifth and fit to an eighth of the rest.")
    shown, passes = gpus.shown(data["gpu"].unique()), sorted(data["pass"].unique())
    figure, grid = style.panels(len(passes), len(shown), height_in=1.8)
    entries = style.entries([quantity.name for quantity in quantities])
    for line, pass_ in zip(grid, passes, strict=True):
        for axes, gpu in zip(line, shown, strict=True):
            own = data[(data["gpu"] == gpu) & (data["pass"] == pass_)]
            for entry in entries:
                one = own[own["quantity"] == entry.label].sort_values("operations")
                for name, (_, dashes) in _ERRORS.items():
                    axes.plot(
                        one["operations"], 100 * one[name], linestyle=dashes, marker=entry.marker, markersize=3,
                        color=entry.colour,
                    )  # fmt: skip
            style.log_axis(axes, "x", "", "operations in the training data" if line is grid[-1] else None)
            style.log_axis(axes, "y", "", f"{pass_}: error" if axes is line[0] else None)
            style.percent(axes, "y", signed=False)
            gpus.title(axes, gpu)
    style.legend(figure, entries, "")
    style.footer(
        figure,
        "Errors on the same held-out operations; solid: median, dotted: 95th percentile. If a curve still "
        "falls, more operations help: see `design` in config/README.md.",
        gpus.note(shown, gpus.labels),
    )
    return figure
