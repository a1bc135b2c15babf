"""Draw the quality of a campaign: rows by status, flags, and missing measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.schema.flags import Flag, LearntFrom
from clockwatt.schema.records import FAILED, OK, OUT_OF_MEMORY

MISSING = "missing"
STATUSES = {
    OK: style.Entry("measured", style.COLOURS[2], "s"),
    OUT_OF_MEMORY: style.Entry("out of memory", style.COLOURS[4], "s"),
    FAILED: style.Entry("failed", style.COLOURS[1], "s"),
    MISSING: style.Entry("not measured yet", "#C9C9C9", "s"),
}
"""Statuses of rows."""


def counts(report: dict[str, Any]) -> pd.DataFrame:
    """Return the counts of `load.quality`, summed over operations, networks and reference operations.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `what` (a status, `missing` or a flag), `kind` (`status` or `flag`), `rows`, and `share` of the GPU's
        rows.
    """
    found: dict[tuple[str, str, str], int] = {}
    for point in report["points"]:
        missing = point["missing_operations"]["count"] + point["missing_networks"]["count"]
        told = [("status", point["by_status"] | {MISSING: missing}), ("flag", point["by_flag"])]
        for kind, numbers in told:
            for what, number in numbers.items():
                key = (point["gpu"], kind, str(what))
                found[key] = found.get(key, 0) + number
    rows = pd.DataFrame([(*key, number) for key, number in found.items()], columns=["gpu", "kind", "what", "rows"])
    there = rows[(rows["kind"] == "status") & (rows["what"] != MISSING)].groupby("gpu")["rows"].sum()
    return rows.assign(share=rows["rows"] / rows["gpu"].map(there))


def draw(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw the rows by how they ended, and the share that has each flag: a line for each GPU; `data` from `counts`."""
    if data.empty:
        return style.nothing("the dataset has no rows.")
    labels = [label for label in gpus.labels if label in set(data["gpu"])]
    labels += sorted(set(data["gpu"]) - set(labels))
    flags = data[data["kind"] == "flag"].pivot_table(index="what", columns="gpu", values="share", aggfunc="sum")
    flags = flags.reindex(columns=labels).fillna(0.0)
    flags = flags.loc[flags.max(axis=1).sort_values(ascending=False).index]
    figure, ((above,), (below,)) = style.panels(
        2, 1, height_in=[0.5 + 0.2 * len(labels), 0.6 + 0.2 * max(len(flags), 1)]
    )
    names = {label: gpus.words(label) if label in gpus.labels else label for label in labels}
    _bars(above, data[data["kind"] == "status"], labels, names)
    _table(below, flags.rename(columns=names))
    for axes, which in ((above, above.yaxis), (below, below.xaxis)):
        for text, label in zip(which.get_ticklabels(), labels, strict=False):
            if axes is above or len(flags):
                text.set_color(style.STAMP if label in gpus.labels and gpus.kind(label) == "virtual" else "black")
    style.legend(figure, list(STATUSES.values()), "")
    style.footer(
        figure,
        "Above: rows by how they ended. Below: share of the measured rows with a flag; in bold, what "
        "is excluded from training.",
    )
    return figure


def _bars(axes: Axes, data: pd.DataFrame, labels: list[str], names: dict[str, str]) -> None:
    table = data.pivot_table(index="gpu", columns="what", values="rows", aggfunc="sum").reindex(labels).fillna(0)
    total, left = table.sum(axis=1).to_numpy(float), np.zeros(len(labels))
    for name, entry in STATUSES.items():
        share = 100 * (table[name].to_numpy(float) if name in table else 0 * left) / np.maximum(total, 1)
        axes.barh(range(len(labels)), share, left=left, color=entry.colour, height=0.6)
        left = left + share
    rows = [f"{names[label]}, {int(number):,} rows" for label, number in zip(labels, total, strict=True)]
    axes.set_yticks(range(len(labels)), labels=rows)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    style.percent(axes, "x", signed=False)
    axes.grid(visible=False, axis="y")


def _table(axes: Axes, flags: pd.DataFrame) -> None:
    """Shares written into a grid; shape (flags, GPUs)."""
    if flags.empty:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no row has a flag", ha="center", va="center", transform=axes.transAxes)
        return
    share = 100 * flags.to_numpy(float)
    axes.imshow(share, cmap="Oranges", vmin=0, vmax=100, aspect="auto")
    for (y, x), value in np.ndenumerate(share):
        text = "0" if value == 0 else f"{value:.1f} %" if value < 10 else f"{value:.0f} %"
        axes.text(x, y, text, ha="center", va="center", fontsize=6.5, color="white" if value > 60 else "black")
    axes.set_yticks(range(len(flags)), labels=[str(name).replace("_", " ") for name in flags.index])
    for label, name in zip(axes.yaxis.get_ticklabels(), flags.index, strict=True):
        label.set_fontweight("bold" if _not_learnt(str(name)) else "normal")
    axes.set_xticks(range(flags.shape[1]), labels=list(flags.columns))
    axes.tick_params(axis="x", top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.grid(visible=False)


def _not_learnt(name: str) -> bool:
    return any(flag == name and flag.learnt_from is not LearntFrom.YES for flag in Flag)
