"""Time against energy of everything that a recommendation chose from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpu, Gpus
from clockwatt.figures.pareto_front import front as pareto_front
from clockwatt.io.files import written_aside
from clockwatt.predict.recommend import Recommendation


def pareto_figure(answer: Recommendation) -> Figure:
    """Draw a marker for each candidate, a colour for each GPU; the front in black, the choice ringed.

    Hollow is what lies beyond the limits. Candidates without energy are not shown. Of several execution settings,
    those on the front are named where they are fastest.
    """
    shown = [candidate for candidate in answer.candidates if candidate.expected.energy_j is not None]
    allowed = {id(candidate) for candidate in answer.candidates[: answer.allowed]}
    best = answer.best
    virtual = {candidate.gpu: candidate.virtual for candidate in shown}
    gpus = Gpus(Gpu(label, is_virtual) for label, is_virtual in virtual.items())
    figure, ((axes,),) = style.panels(1, 1, height_in=3.4)
    time_s = np.array([candidate.expected.time_s for candidate in shown], dtype=float)
    energy_j = np.array([candidate.expected.energy_j for candidate in shown], dtype=float)
    for position, candidate in enumerate(shown):
        entry = gpus.entry(candidate.gpu)
        axes.plot(
            time_s[position], energy_j[position], linestyle="", marker=entry.marker, color=entry.colour,
            markerfacecolor=entry.colour if id(candidate) in allowed else "none", zorder=2,
        )  # fmt: skip
    front = pareto_front(time_s, energy_j)
    axes.plot(time_s[front], energy_j[front], color="black", linewidth=0.8, zorder=3)
    several = len(answer.execution) > 1
    named = {best.execution}
    for position in front if several else ():
        candidate = shown[position]
        if candidate.execution not in named:
            named.add(candidate.execution)
            axes.annotate(
                candidate.execution, (time_s[position], energy_j[position]), xytext=(6, 4),
                textcoords="offset points", fontsize=6,
            )  # fmt: skip
    if best.expected.energy_j is not None:
        axes.plot(
            best.expected.time_s, best.expected.energy_j, linestyle="", marker="o", markersize=11,
            markerfacecolor="none", color="black", zorder=4,
        )  # fmt: skip
        axes.annotate(
            f"{gpus.words(best.gpu)}, {best.point}{f', {best.execution}' if several else ''}",
            (best.expected.time_s, best.expected.energy_j), xytext=(8, 6),
            textcoords="offset points", fontsize=7,
        )  # fmt: skip
    axes.margins(0.12)
    style.log_axis(axes, "x", "s", "time per pass, predicted")
    style.log_axis(axes, "y", "J", "energy per pass, predicted")
    network, _ = style.network_and_input(best.network_id)
    network = f"{network}, {len(answer.execution)} settings" if several else f"{network} {best.execution.words}"
    title = f"{network}, {best.pass_}: least {answer.objective} ringed, Pareto front black"
    style.legend(figure, [gpus.entry(label) for label in gpus.labels], title)
    hidden = len(answer.candidates) - len(shown)
    style.footer(figure, f"{hidden} candidates without energy." if hidden else "")
    return figure


def draw_pareto(answer: Recommendation, path: Path) -> None:
    """Write the figure as PNG; equal answers give equal bytes.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    with style.styled():
        figure = pareto_figure(answer)
        with written_aside(path) as aside:
            figure.savefig(aside, format="png", metadata={"Software": None})
