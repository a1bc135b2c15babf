"""Networks composed from their operations against networks measured whole, all of them together."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.networks import METHODS, QUANTITIES, SOURCES
from clockwatt.schema.costs import MEASURED_WHOLE, PLAIN_SUM


def errors(compositions: pd.DataFrame, gpus: Gpus) -> pd.DataFrame:
    """Return how far off each composition is: a row for each, quantity and method.

    Parameters
    ----------
    compositions
        From `load.compositions`; those that lack the cost of a call are left out.
    gpus
        The GPUs of the campaign.

    Returns
    -------
    pandas.DataFrame
        `kind`, `gpu`, `point`, `network_id`, `execution`, `pass`, `quantity`, `method`, `measured` (s or J), `error`
        (composed over measured, minus one).
    """
    rows = compositions[compositions["calls_without_cost"] == 0]
    rows = rows.assign(kind=[gpus.kind(gpu) for gpu in rows["gpu"]])
    parts = []
    for quantity, whole in MEASURED_WHOLE.items():
        if quantity in QUANTITIES:
            for method, source in SOURCES.items():
                own = rows[rows["source"] == source]
                value = own[PLAIN_SUM[quantity] if method == "plain" else quantity]
                told = own[["kind", "gpu", "point", "network_id", "execution", "pass"]]
                told = told.assign(quantity=quantity, method=method, measured=own[whole], error=value / own[whole] - 1)
                parts.append(told[told["error"].notna()])
    return pd.concat(parts, ignore_index=True)


def draw(data: pd.DataFrame, gpus: Gpus, incomplete: int) -> Figure:
    """Draw a row for each kind of GPUs and pass, a column for each quantity.

    Parameters
    ----------
    data
        From `errors`.
    gpus
        The GPUs of the campaign.
    incomplete
        How many compositions lack the cost of a call.
    """
    missing = f"{incomplete} compositions lack the cost of a call and are left out." if incomplete else ""
    if data.empty:
        return style.nothing(f"no network was measured whole and composed. {missing}")
    kinds = gpus.kinds(data["gpu"].unique())
    rows = [(kind, pass_) for kind in kinds for pass_ in sorted(data.loc[data["kind"] == kind, "pass"].unique())]
    figure, grid = style.panels(len(rows), len(QUANTITIES), height_in=1.8)
    for line, (kind, pass_) in zip(grid, rows, strict=True):
        own = data[(data["kind"] == kind) & (data["pass"] == pass_)]
        for axes, (quantity, (name, unit)) in zip(line, QUANTITIES.items(), strict=True):
            _panel(axes, own[own["quantity"] == quantity])
            style.log_axis(axes, "x", unit, f"measured {name}")
        gpus.kind_title(line[0], kind, f"{', '.join(kinds[kind])}: {pass_}", loc="left")
        gpus.kind_title(line[1], kind, pass_, loc="left")
        line[0].set_ylabel("composed against\nmeasured")
    style.legend(figure, list(METHODS.values()), "")
    style.footer(
        figure,
        "A marker for each network, GPU, operating point and TF32 setting; numbers: median error, signed.",
        missing,
    )
    return figure


def _panel(axes: Axes, own: pd.DataFrame) -> None:
    told = []
    for method, entry in METHODS.items():
        part = own[own["method"] == method]
        axes.plot(
            part["measured"], 100 * part["error"], linestyle="", marker=entry.marker, color=entry.colour,
            markersize=3.5 if len(part) < 300 else 2, alpha=0.7, markeredgewidth=0, rasterized=len(part) > 3000,
        )  # fmt: skip
        if len(part):
            told.append((style.percent_words(100 * float(np.median(part["error"])), ".1f"), entry.colour))
    for number, (text, colour) in enumerate(told):
        axes.text(1.01, 0.95 - 0.11 * number, text, transform=axes.transAxes, fontsize=6.5, color=colour, va="top")
    axes.axhline(0, color=style.GREY, linewidth=0.8, zorder=1)
    style.percent(axes, "y")
    axes.margins(x=0.12)
