"""Figures of workloads: sensors over time, which of them go together, and the table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from clockwatt.figures import style
from clockwatt.studies.relations.sensors import (
    CPU_TEMPERATURE,
    CPU_UTILIZATION,
    POWER,
    TEMPERATURE,
    Sensors,
    in_words,
)

_PANELS = (
    ("power (W)", (POWER,)),
    ("GPU (%)", ("gpu_utilization_percent", "memory_utilization_percent")),
    ("memory (GiB)", ("memory_used_bytes",)),
    ("CPU (°C)", (CPU_TEMPERATURE,)),
    ("CPU (%)", (CPU_UTILIZATION,)),
)
"""Below the GPU's temperature: what may go with it. Of a CPU's sensors there is one for each socket."""

_PANEL_IN, _ROW_IN, _CELL_IN = 1.0, 0.26, 0.34
_SHOWN = (
    ("temperature_max_c", "highest temperature (°C)", 1.0),
    ("gpu_utilization_percent", "GPU busy (mean, %)", 1.0),
    ("memory_share", "most memory (%)", 100.0),
    ("power_mean_w", "mean power (W)", 1.0),
)
_DARK_FROM = 0.6


def draw_time(sensors: Sensors, workload: str, where: str) -> Figure:
    """Draw the GPU's temperature over time, and below it what may go with it.

    Parameters
    ----------
    sensors
        The sensors of a run.
    workload
        Its name.
    where
        Which GPU, and whether it is virtual.
    """
    found = [(label, _columns(sensors.there, names)) for label, names in _PANELS]
    drawn = [(label, columns) for label, columns in found if columns]
    if TEMPERATURE in sensors.there:
        drawn.insert(0, ("GPU (°C)", [TEMPERATURE]))
    if not drawn:
        return style.nothing(f"no sensor was read while {workload} ran.")
    figure, grid = style.panels(len(drawn), 1, height_in=_PANEL_IN, share_x=True)
    for (label, columns), (axes,) in zip(drawn, grid, strict=True):
        for column, colour in zip(columns, style.COLOURS * len(columns), strict=False):
            _line(axes, sensors.table[column], colour, in_words(column))
        axes.set_ylabel(label)
        axes.yaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3, integer="°C" in label))
        if "%" in label:
            axes.set_ylim(-4, 104)
            axes.set_yticks([0, 50, 100])
        elif "GiB" in label:
            axes.set_ylim(bottom=0)
        if len(columns) > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.95), ncols=len(columns), borderaxespad=0.0)
    figure.align_ylabels()
    grid[0][0].set_title(f"{workload.replace('_', ' ')}, {where}", loc="left")
    grid[-1][0].set_xlabel("time since the program's start (s)")
    style.footer(figure, "Means over a second.", missing_words(sensors))
    return figure


def draw_correlations(data: pd.DataFrame, sensors: Sensors, workload: str, where: str) -> Figure:
    """Draw the correlations of sensors; `data` is from `correlations`, other parameters as for `draw_time`."""
    names = [name for name in sensors.varying if name in set(data["sensor"])]
    if len(names) < 2:
        why = f"{workload}: no two sensors vary together for long enough. {missing_words(sensors)}"
        return style.nothing(why.strip())
    matrix = data.pivot_table(index="sensor", columns="other", values="correlation").reindex(index=names, columns=names)
    figure, ((axes,),) = style.panels(1, 1, height_in=0.9 + _CELL_IN * len(names))
    shown = np.ma.masked_invalid(matrix.to_numpy(float))
    image = axes.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(matrix.to_numpy(float)):
        if np.isfinite(value):
            colour = "white" if abs(value) > _DARK_FROM else "black"
            text = f"{value:.2f}".replace("-", style.MINUS)
            axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)
    words = [in_words(name) for name in names]
    axes.set_yticks(range(len(names)), labels=words)
    axes.set_xticks(
        range(len(names)), labels=["\n".join(textwrap.wrap(word, 9, break_long_words=False)) for word in words]
    )
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.set_title(f"{workload.replace('_', ' ')}, {where}", loc="left")
    figure.colorbar(image, ax=axes, label="Pearson's correlation", fraction=0.03, pad=0.01)
    constant = ", ".join(in_words(name) for name in sensors.constant)
    style.footer(
        figure,
        f"Of means over a second, {int(data['readings'].max())} of them.",
        f"Constant, so that nothing goes with it: {constant}." if constant else "",
        missing_words(sensors),
    )
    return figure


def draw_table(data: pd.DataFrame, where: str) -> Figure:
    """Peak temperature, mean use, share of memory and mean power of each workload; `data` from `summary_table`."""
    told = data[data["status"] == 0]
    if told.empty:
        return style.nothing("no workload was recorded to its end.")
    figure, (row,) = style.panels(1, len(_SHOWN), height_in=0.7 + _ROW_IN * len(told), share_y=True)
    for number, (axes, (column, label, factor)) in enumerate(zip(row, _SHOWN, strict=True)):
        _bars(axes, factor * told[column].to_numpy(float), style.COLOURS[number])
        axes.set_xlabel(label)
    row[0].set_yticks(range(len(told)), labels=[name.replace("_", " ") for name in told["workload"]])
    row[0].invert_yaxis()
    style.footer(figure, f"{where}. {_lacking(told)}")
    return figure


def missing_words(sensors: Sensors) -> str:
    """Return what the machine lacks: `The machine does not give: CPU temperature, fan.`."""
    missing = ", ".join(in_words(name) for name in sensors.missing)
    return f"The machine does not give: {missing}." if missing else ""


def _columns(there: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns of these names, also with a number after `cpu`."""
    kinds = [name.removeprefix("cpu") for name in names if name.startswith("cpu")]
    return [
        column
        for column in there
        if column in names or any(column.startswith("cpu") and column.endswith(kind) for kind in kinds)
    ]


def _line(axes: Axes, values: pd.Series[float], colour: str, label: str) -> None:
    scale = 2**30 if str(values.name).endswith("_bytes") else 1.0
    axes.plot(
        values.index, values.to_numpy(float) / scale, color=colour, label=label, marker=".", markersize=2, linewidth=1.0
    )


def _bars(axes: Axes, values: np.ndarray, colour: str) -> None:
    """Bars with their values; what is not known has a dash."""
    known = np.where(np.isfinite(values), values, 0.0)
    axes.barh(range(len(values)), known, color=colour, height=0.65)
    axes.set_xlim(0, max(known.max(), 1e-9) * 1.25)
    for place, value in enumerate(values):
        text = f" {value:.0f}" if abs(value) >= 10 else f" {value:.2g}" if np.isfinite(value) else " –"
        axes.text(known[place], place, text, va="center", fontsize=6.5)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(style.few())


def _lacking(data: pd.DataFrame) -> str:
    """Return the quantities without any value."""
    unknown = [label.split(" (")[0] for column, label, _ in _SHOWN if data[column].isna().all()]
    return f"A dash: not known on this machine ({', '.join(unknown)})." if unknown else ""
