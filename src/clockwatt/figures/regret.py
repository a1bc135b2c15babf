"""What choosing an operating point by prediction costs, beside the best fixed one and the default."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.load import reference_point
from clockwatt.predict.evaluation.errors import OBJECTIVES, objective_of

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
        `gpu`, `pass`, `tf32`, `objective`, `network_id`, `choice` (of `CHOICES`), `point`, `regret`.
    """
    rows = compositions[(compositions["source"] == "predicted") & (compositions["calls_without_cost"] == 0)]
    parts = []
    for (gpu, pass_, tf32), group in rows.groupby(["gpu", "pass", "tf32"]):
        for objective in OBJECTIVES:
            measured, predicted = _per_point(group, objective)
            if measured.shape[0] and measured.shape[1] > 1:
                about = {"gpu": str(gpu), "pass": str(pass_), "objective": objective}
                parts.append(_of_choices(measured, predicted).assign(tf32=bool(tf32), **about))
    columns = ["gpu", "pass", "tf32", "objective", "network_id", "choice", "point", "regret"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _per_point(group: pd.DataFrame, objective: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measured and predicted objective, networks by operating points; complete networks alone."""
    measured, predicted = (
        group.assign(value=objective_of(objective, *(group[name] for name in names)))
        .pivot_table(index="network_id", columns="point", values="value", dropna=False)
        for names in (("measured_time_s", "measured_energy_j"), ("time_s", "energy_j"))
    )  # fmt: skip
    complete = measured.notna().all(axis=1) & predicted.notna().all(axis=1)
    return measured[complete], predicted[complete]


def _of_choices(measured: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    values = measured.to_numpy(float)
    regret = values / values.min(axis=1, keepdims=True) - 1
    at = {
        "predicted": predicted.to_numpy(float).argmin(axis=1),
        "fixed": np.full(len(measured), regret.mean(axis=0).argmin()),
        "reference": np.full(len(measured), list(measured.columns).index(reference_point(measured.columns))),
    }
    parts = [
        pd.DataFrame(
            {
                "network_id": measured.index,
                "choice": choice,
                "point": measured.columns[where],
                "regret": regret[np.arange(len(measured)), where],
            }
        )
        for choice, where in at.items()
    ]
    return pd.concat(parts, ignore_index=True)


def draw(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """A row for each pass, a column for each GPU; small marks are networks, large ones their mean."""
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
        "Regret: what a network takes more at the chosen clock than at its own best one. Small: a network; "
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
