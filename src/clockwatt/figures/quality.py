"""How much of a campaign can be trusted: rows by how they ended, flags, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from clockwatt.figures import style
from clockwatt.schema.records import FAILED, OK, OUT_OF_MEMORY

STATUSES = (OK, OUT_OF_MEMORY, FAILED, "missing")
_COLOURS = (style.COLOURS[2], style.COLOURS[4], style.COLOURS[1], "#C9C9C9")


def per_gpu(report: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Counts of quality.json summed over operating points.

    Returns
    -------
    statuses, flags : pandas.DataFrame
        GPU by status (with `missing`), and GPU by flag, of operations, networks and anchors together.
    """
    statuses: dict[str, dict[str, int]] = {}
    flags: dict[str, dict[str, int]] = {}
    for point in report["points"]:
        of_gpu = statuses.setdefault(point["gpu"], dict.fromkeys(STATUSES, 0))
        for status, count in point["by_status"].items():
            of_gpu[status] = of_gpu.get(status, 0) + count
        of_gpu["missing"] += point["missing_operations"]["count"] + point["missing_networks"]["count"]
        flagged = flags.setdefault(point["gpu"], {})
        for flag, count in point["by_flag"].items():
            flagged[flag] = flagged.get(flag, 0) + count
    return pd.DataFrame(statuses).T.fillna(0), pd.DataFrame(flags).T.fillna(0)


def status_bars(axes: Axes, statuses: pd.DataFrame) -> Axes:
    """A bar per GPU: its rows by how they ended, and what is missing; shape (GPUs, statuses)."""
    left = np.zeros(len(statuses))
    total = statuses.sum(axis=1).to_numpy(float)
    for name, colour in zip(STATUSES, _COLOURS, strict=True):
        share = 100 * statuses[name].to_numpy(float) / np.maximum(total, 1)
        axes.barh(range(len(statuses)), share, left=left, color=colour, label=name.replace("_", " "), height=0.6)
        left += share
    axes.set_yticks(range(len(statuses)), labels=list(statuses.index))
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.xaxis.set_major_formatter("{x:g} %")
    axes.grid(visible=False, axis="y")
    return axes


def flag_table(axes: Axes, flags: pd.DataFrame, rows: pd.Series) -> Axes:
    """Share of each GPU's rows that carry each flag, written into a grid; shapes (GPUs, flags) and (GPUs,)."""
    if flags.empty or not flags.shape[1]:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no row has a flag", ha="center", va="center", transform=axes.transAxes)
        return axes
    share = 100 * flags.div(rows, axis=0).reindex(rows.index).fillna(0)
    axes.imshow(share.to_numpy(float), cmap="Oranges", vmin=0, vmax=100, aspect="auto")
    for y, gpu in enumerate(share.index):
        for x, flag in enumerate(share.columns):
            value = float(share.loc[gpu, flag])
            text = "0" if value == 0 else f"{value:.1f} %" if value < 10 else f"{value:.0f} %"
            axes.text(x, y, text, ha="center", va="center", fontsize=6.5, color="white" if value > 60 else "black")
    axes.set_xticks(
        range(share.shape[1]), labels=[name.replace("_", " ") for name in share.columns], rotation=35, ha="right"
    )
    axes.set_yticks(range(share.shape[0]), labels=list(share.index))
    axes.grid(visible=False)
    return axes
