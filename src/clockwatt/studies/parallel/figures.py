"""Draw the study: speed-up, where the energy goes, and kernels and communications of a step of each rank over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt import signals
from clockwatt.figures import style
from clockwatt.studies.parallel.names import SINGLE
from clockwatt.studies.parallel.tables import CASE

_COLUMNS = 3
_KERNELS, _NCCL = style.COLOURS[0], style.COLOURS[1]
_PARTS = (("dynamic", style.COLOURS[0]), ("idle", style.COLOURS[5]), ("waiting", style.COLOURS[1]))
_SHORTEST_GAP = 1 / 1000
"""Of a step, below which spans are drawn as one."""


def speedup(steps: pd.DataFrame) -> tuple[Figure, pd.DataFrame]:
    """Draw how many times as fast as one GPU networks are trained, against the number of GPUs."""
    data = steps[[*CASE, "speedup", "efficiency", "items_per_j", "virtual"]]
    known = data[data["speedup"].notna() & (data["strategy"] != SINGLE)]
    if known.empty:
        return style.nothing("networks were not trained on one GPU and on several."), data
    names = list(dict.fromkeys(known["strategy"]))
    figure, panels = _grid(known)
    for axes, (title, rows) in panels:
        counts = np.array(sorted({1, *rows["gpus"]}))
        axes.plot(counts, counts, "--", color=style.GREY)
        for entry, strategy in zip(style.entries(names), names, strict=True):
            of_strategy = rows[rows["strategy"] == strategy].sort_values("gpus")
            x, y = [1, *of_strategy["gpus"]], [1.0, *of_strategy["speedup"]]
            axes.plot(x, y, marker=entry.marker, color=entry.colour)
        axes.set(xlabel="GPUs", ylabel="speed-up" if axes in _first_column(panels) else "", xticks=counts, title=title)
        axes.set_ylim(bottom=0)
    shown = [*style.entries(names), style.Entry("linear", style.GREY, line="--")]
    style.legend(figure, shown, f"{_where(steps)}: items per second, relative to one GPU")
    return figure, data


def energy(steps: pd.DataFrame) -> tuple[Figure, pd.DataFrame]:
    """Draw the energy of an item, split into idle power while kernels run, while none runs, and the rest."""
    idle_j = steps["power_idle_w"] * steps["time_s"] - steps["waiting_j"]
    parts = {"dynamic": steps["energy_j"] - idle_j - steps["waiting_j"], "idle": idle_j, "waiting": steps["waiting_j"]}
    data = steps[[*CASE, "virtual"]].assign(**{f"{name}_j": part / steps["items"] for name, part in parts.items()})
    figure, panels = _grid(data)
    for axes, (title, rows) in panels:
        labels = [
            name if name == SINGLE else f"{name} {count}" for name, count in rows[["strategy", "gpus"]].to_numpy()
        ]
        bottom = np.zeros(len(rows))
        for name, colour in _PARTS:
            heights = rows[f"{name}_j"].to_numpy(float)
            axes.bar(range(len(rows)), heights, bottom=bottom, color=colour, width=0.7)
            bottom = bottom + heights
        axes.set_xticks(range(len(rows)), labels=labels, rotation=45, ha="right")
        axes.set(title=title, ylabel="energy per item" if axes in _first_column(panels) else "")
        axes.grid(visible=False, axis="x")
        style.si(axes, "y", "J")
    words = ("kernels, above idle power", "idle power while kernels run", "idle power while none runs")
    shown = [style.Entry(text, colour, "s") for text, (_, colour) in zip(words, _PARTS, strict=True)]
    style.legend(figure, shown, f"{_where(steps)}: energy of all GPUs for an item")
    style.footer(figure, "Idle power is that with a CUDA context; communications count as no kernel.")
    return figure, data


def timeline(steps: pd.DataFrame, spans: pd.DataFrame) -> tuple[Figure, pd.DataFrame]:
    """Draw when kernels and communications run in a step of each rank, on the most GPUs."""
    several = spans[spans["gpus"] == max(spans["gpus"], default=0)]
    data = pd.DataFrame([
        {**dict(zip([*CASE, "rank", "communication"], key, strict=True)), "start_s": start_s, "end_s": end_s}
        for key, rows in several.groupby([*CASE, "rank", "communication"], sort=False)
        for start_s, end_s in _merged(rows)
    ])  # fmt: skip
    if data.empty:
        return style.nothing("no step was profiled."), data
    cases = list(data.groupby(list(CASE), sort=False))
    ranks = data["rank"].nunique()
    figure, grid = style.panels(len(cases), 1, height_in=0.45 + 0.16 * ranks)
    for (key, rows), (axes,) in zip(cases, grid, strict=True):
        for rank, communication in rows[["rank", "communication"]].drop_duplicates().itertuples(index=False):
            lane = rows[(rows["rank"] == rank) & (rows["communication"] == communication)]
            height = 0.3 if communication else 0.4
            lengths = 1e3 * (lane["end_s"] - lane["start_s"])
            colour = _NCCL if communication else _KERNELS
            place = rank + 0.05 - (0.35 if communication else 0.0)
            axes.broken_barh(list(zip(1e3 * lane["start_s"], lengths, strict=True)), (place, height), color=colour)
        axes.set_yticks(range(ranks), labels=[f"rank {rank}" for rank in range(ranks)])
        axes.set_ylim(ranks - 0.4, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_title(" ".join([str(key[0]).rpartition(":")[2], str(key[3])]), loc="left")
        axes.set_xlim(left=0)
    grid[-1][0].set_xlabel("time, ms")
    kinds = [style.Entry("kernels", _KERNELS, "s"), style.Entry("communications", _NCCL, "s")]
    style.legend(figure, kinds, f"{_where(steps)}: a training step on {several['gpus'].iloc[0]} GPUs")
    return figure, data


def _grid(data: pd.DataFrame) -> tuple[Figure, list[tuple[Axes, tuple[str, pd.DataFrame]]]]:
    """Return a figure, and a panel for each network with its title and rows."""
    groups = [
        (f"{str(name).rpartition(':')[2]} {str(shape).replace('x', '×')}, {precision}", rows)
        for (name, shape, precision), rows in data.groupby(["network", "input", "precision"], sort=False)
    ]
    columns = min(_COLUMNS, len(groups))
    figure, grid = style.panels(-(-len(groups) // columns), columns, height_in=2.2)
    flat = [axes for row in grid for axes in row]
    for axes in flat[len(groups) :]:
        axes.set_axis_off()
    for axes in flat[: len(groups)]:
        axes.title.set_fontsize(7)
    return figure, list(zip(flat, groups, strict=False))


def _first_column(panels: list[tuple[Axes, tuple[str, pd.DataFrame]]]) -> list[Axes]:
    return [axes for axes, _ in panels[::_COLUMNS]]


def _merged(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Return spans as `start_s` and `end_s`, those as one between which hardly any time passes."""
    starts = rows["start_s"].to_numpy(float)
    ends = starts + rows["time_s"].to_numpy(float)
    return list(zip(*signals.joined(starts, ends, gap=_SHORTEST_GAP * float(ends.max() - starts.min())), strict=True))


def _where(steps: pd.DataFrame) -> str:
    words = ", ".join(dict.fromkeys(steps["gpu_name"]))
    return f"{words}: CPU processes and gloo, VIRTUAL" if steps["virtual"].any() else words
