"""Compute the regret of an operating point chosen by prediction, with the best fixed one and the default."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.load import reference_point
from clockwatt.predict.evaluation import errors as evaluation
from clockwatt.predict.evaluation.errors import OBJECTIVES

CHOICES = {
    "predicted": style.Entry("chosen for each network by prediction", style.COLOURS[0], "s"),
    "fixed": style.Entry("best single clock for all networks", style.COLOURS[1], "o"),
    "reference": style.Entry("default, or the highest clock", style.COLOURS[2], "^"),
}
_NAMES = {"time": "time", "energy": "energy", "edp": "energy-delay\nproduct"}


def regrets(compositions: pd.DataFrame) -> pd.DataFrame:
    """Regret of each choice for each network: the measured objective there over the least measured one, minus one.

    Parameters
    ----------
    compositions
        From `load.compositions`. Networks that lack one of a GPU's operating points do not count.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `pass`, `execution`, `objective`, `network_id`, `choice` (of `CHOICES`), `point`, `regret`.
    """
    rows = compositions[(compositions["source"] == "predicted") & (compositions["calls_without_cost"] == 0)]
    parts = [
        _of_choices(found).assign(gpu=str(gpu)) for gpu, own in rows.groupby("gpu") for found in evaluation.regrets(own)
    ]
    columns = ["gpu", "pass", "execution", "objective", "network_id", "choice", "point", "regret"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _of_choices(found: evaluation.Regrets) -> pd.DataFrame:
    networks, points = found.at_points.index, found.at_points.columns
    reference = points.get_loc(reference_point(points))
    at = {
        "predicted": found.predicted,
        "fixed": np.full(len(networks), found.fixed),
        "reference": np.full(len(networks), reference),
    }
    parts = [
        pd.DataFrame({"network_id": networks, "choice": choice, "point": points[where], "regret": found.of(where)})
        for choice, where in at.items()
    ]
    rows = pd.concat(parts, ignore_index=True).assign(execution=found.execution, objective=found.objective)
    rows["pass"] = found.pass_
    return rows


def draw(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw a row for each pass, a column for each GPU; small marks are networks, large ones their mean."""
    if data.empty:
        return style.nothing("no GPU ran its networks at two operating points, so there is no choice to judge.")
    shown, passes = gpus.shown(data["gpu"].unique()), sorted(data["pass"].unique())
    figure, grid = style.panels(len(passes), len(shown), height_in=1.8, share_y=True)
    for line, pass_ in zip(grid, passes, strict=True):
        for axes, gpu in zip(line, shown, strict=True):
            own = data[(data["gpu"] == gpu) & (data["pass"] == pass_)]
            _panel(axes, own)
            gpus.title(axes, gpu, f"{own['network_id'].nunique()} networks" if len(own) else "")
        line[0].set_ylabel(f"{pass_}\nregret")
    style.legend(figure, list(CHOICES.values()), "")
    style.footer(
        figure,
        "Regret: how much more a network takes at the chosen clock than at its best one. Small: a network; "
        "large: the mean.",
        gpus.note(shown, data["gpu"].unique()),
        style.without_curve(set(gpus.labels) - set(data["gpu"])),
    )
    return figure


def _panel(axes: Axes, own: pd.DataFrame) -> None:
    for number, objective in enumerate(OBJECTIVES):
        for offset, (choice, entry) in enumerate(CHOICES.items()):
            values = 100 * own.loc[(own["objective"] == objective) & (own["choice"] == choice), "regret"].to_numpy(
                float
            )
            if len(values):
                x = number + (offset - 1) * 0.25
                axes.plot(
                    x + np.linspace(-0.06, 0.06, len(values)), np.sort(values), linestyle="", marker=entry.marker,
                    color=entry.colour, markersize=2, alpha=0.5, markeredgewidth=0, rasterized=len(values) > 3000,
                )  # fmt: skip
                axes.plot(
                    x, values.mean(), marker=entry.marker, color=entry.colour, markersize=6.5, markeredgecolor="black",
                    markeredgewidth=0.5, linestyle="",
                )  # fmt: skip
    axes.set_xticks(range(len(OBJECTIVES)), labels=[_NAMES[name] for name in OBJECTIVES])
    axes.set_xlim(-0.5, len(OBJECTIVES) - 0.5)
    style.percent(axes, "y", signed=False)
