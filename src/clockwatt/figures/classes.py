"""Errors and intervals of predictions, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.predictions import Quantity

CLASSES_AT_MOST = 14
GPUS_OF_A_KIND = 2
LEVEL = 0.9
"""Nominal coverage of prediction intervals."""


def class_errors(rows: pd.DataFrame, quantity: Quantity, predictors: Sequence[str]) -> pd.DataFrame:
    """Return the errors of each class; `rows` from `weighted`.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `pass`, `operation_class`, `predictor`, `operations`, `median`, `p95` (of the absolute relative error)
        and
        `share`: of the energy of all networks' calls in that GPU and pass.
    """
    known = rows[(rows[quantity.column] > 0) & rows[quantity.predicted].notna() & rows["predictor"].isin(predictors)]
    error = (known[quantity.predicted].astype(float) / known[quantity.column].astype(float) - 1).abs()
    key = ["gpu", "pass", "operation_class", "predictor"]
    grouped = known.assign(error=error).groupby(key)
    found = grouped.agg(operations=("error", "size"), median=("error", "median"), weight=("weight_j", "sum"))
    found = found.assign(p95=grouped["error"].quantile(0.95)).reset_index()
    total = found.groupby(["gpu", "pass", "predictor"])["weight"].transform("sum")
    return found.assign(share=found["weight"] / total.where(total > 0)).drop(columns="weight")


def draw_class_errors(data: pd.DataFrame, quantity: Quantity, gpus: Gpus, predictors: Sequence[str]) -> Figure:
    """Draw the median error and its way to the 95th percentile, class by class; `data` from `class_errors`."""
    if data.empty:
        return style.nothing(f"no operation has both a measured {quantity.name} and a prediction of it.")
    figure, rows = _by_class(data, gpus)
    for axes, gpu, pass_, classes in rows:
        own = data[(data["gpu"] == gpu) & (data["pass"] == pass_)]
        for offset, name in enumerate(predictors):
            of_predictor = own[own["predictor"] == name].set_index("operation_class").reindex(classes)
            y = np.arange(len(classes)) + (offset - (len(predictors) - 1) / 2) * 0.3
            low, high = (100 * of_predictor[column].clip(lower=1e-4).to_numpy(float) for column in ("median", "p95"))
            axes.hlines(y, low, high, color=style.COLOURS[offset], linewidth=1)
            axes.plot(low, y, marker=style.MARKERS[offset], color=style.COLOURS[offset], linestyle="", markersize=3.5)
        style.log_axis(axes, "x", "%", "error")
        style.percent(axes, "x", signed=False)
    style.legend(figure, style.entries(predictors), "")
    style.footer(
        figure,
        f"Absolute error of {quantity.name}, each operation's group held out. Marker: median; line: to the 95th "
        "percentile.",
        _CLASSES_NOTE,
        _classes_left_out(data, rows),
    )
    return figure


_CLASSES_NOTE = "In brackets: share of the energy of all networks, by which classes are sorted."


def coverages(report: dict[str, Any], errors: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return how many held-out operations lie in their intervals.

    Parameters
    ----------
    report
        From `load.metrics`.
    errors
        From `class_errors`: which classes matter.
    target
        A predicted column.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `pass`, `predictor`, `operation_class`, `coverage`, `half_width` (relative, median), `operations`,
        `share`.
    """
    found = []
    for gpu, told in report["gpus"].items():
        for pass_, of_pass in told["passes"].items():
            for predictor, judged in of_pass.get("predictors", {}).items():
                for name, one in judged["intervals"].get(target, {}).get("classes", {}).items():
                    found.append(
                        {
                            "gpu": gpu,
                            "pass": pass_,
                            "predictor": predictor,
                            "operation_class": name,
                            "coverage": one["held_out_coverage"],
                            "half_width": one["median_half_width"],
                        }
                    )
    columns = ["gpu", "pass", "predictor", "operation_class", "coverage", "half_width"]
    rows = pd.DataFrame(found, columns=columns).dropna(subset="coverage")
    key = ["gpu", "pass", "predictor", "operation_class"]
    return rows.merge(errors[[*key, "operations", "share"]], on=key)


def draw_coverages(data: pd.DataFrame, gpus: Gpus, predictor: str) -> Figure:
    """Draw the share of operations inside their intervals, class by class; `data` from `coverages`."""
    data = data[data["predictor"] == predictor]
    if data.empty:
        return style.nothing("no interval was judged on operations that were held out.")
    figure, rows = _by_class(data, gpus)
    for axes, gpu, pass_, classes in rows:
        own = data[(data["gpu"] == gpu) & (data["pass"] == pass_)].set_index("operation_class").reindex(classes)
        coverage, y = 100 * own["coverage"].to_numpy(float), np.arange(len(classes))
        error = 196 * np.sqrt(LEVEL * (1 - LEVEL) / own["operations"].clip(lower=1).to_numpy(float))
        known = np.isfinite(coverage)
        axes.hlines(y[known], 100 * LEVEL - error[known], 100 * LEVEL + error[known], color="#CFCFCF", linewidth=4)
        axes.axvline(100 * LEVEL, color=style.GREY, linewidth=0.8)
        axes.plot(coverage, y, marker="o", color=style.COLOURS[0], linestyle="", markersize=3.5)
        axes.set_xlim(min(40.0, float(np.nanmin([*coverage, 40.0]))) - 4, 104)
        axes.xaxis.set_major_locator(style.few())
        style.percent(axes, "x", signed=False)
        axes.set_xlabel("inside their interval")
    style.footer(
        figure,
        f"Device time by {predictor}: share of held-out operations within their {100 * LEVEL:.0f} % intervals. "
        "Grey: range expected by chance for this number of operations.",
        _CLASSES_NOTE,
        _classes_left_out(data, rows),
    )
    return figure


Panel = tuple[Axes, str, str, list[str]]


def _by_class(data: pd.DataFrame, gpus: Gpus) -> tuple[Figure, list[Panel]]:
    """Return a row for each kind of GPUs, a column for each of its GPUs and pass; classes by their share of energy."""
    kinds = {kind: gpus.shown(labels, GPUS_OF_A_KIND) for kind, labels in gpus.kinds(data["gpu"].unique()).items()}
    shares, panels = {}, {}
    for kind, labels in kinds.items():
        own = data[data["gpu"].isin(labels)]
        places = own.drop_duplicates(["gpu", "pass"])
        share = own.drop_duplicates(["gpu", "pass", "operation_class"]).groupby("operation_class")["share"].sum()
        share = share / len(places)
        ordered = sorted(share.index, key=lambda name, share=share: (-share[name], name))  # type: ignore[misc]
        shares[kind] = share[ordered[:CLASSES_AT_MOST]]
        panels[kind] = [(gpu, pass_) for gpu in labels for pass_ in sorted(own.loc[own["gpu"] == gpu, "pass"].unique())]
    heights = [0.75 + 0.155 * len(share) for share in shares.values()]
    figure, grid = style.ragged([len(pairs) for pairs in panels.values()], height_in=heights)
    found: list[Panel] = []
    for line, (kind, pairs) in zip(grid, panels.items(), strict=True):
        names = [f"{name} ({100 * value:.0f} %)" for name, value in shares[kind].items()]
        for axes, (gpu, pass_) in zip(line, pairs, strict=True):
            axes.set_yticks(range(len(names)), labels=names if axes is line[0] else [""] * len(names))
            axes.tick_params(axis="y", labelsize=6.5)
            axes.set_ylim(len(names) - 0.4, -0.6)
            gpus.title(axes, gpu, pass_, lines=2)
            found.append((axes, gpu, pass_, [str(name) for name in shares[kind].index]))
    return figure, found


def _classes_left_out(data: pd.DataFrame, panels: Sequence[Panel]) -> str:
    shown = {name for *_, classes in panels for name in classes}
    number = data["operation_class"].nunique() - len(shown)
    told = f"{number} classes with less are not shown." if number else ""
    return f"{told} {Gpus.note([gpu for _, gpu, *_ in panels], data['gpu'].unique())}"
