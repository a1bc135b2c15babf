"""What all figures share: fonts, colours, units, the word `virtual`, and files whose bytes depend on the data alone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator

from clockwatt.figures.names import FORMATS
from clockwatt.io.files import written_aside

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#000000")
"""Eight colours that colour-blind readers tell apart (after Okabe and Ito, 2008; yellow is too pale on white)."""

GPU_COLOURS = ("#4A39B3", "#FE8668", "#467B63", "#AD9407", "#682254", "#4ECDCF", "#636203", "#8878BF")
"""Of GPUs. Any two differ by 22 CIELAB units or more for readers with full, red-, green- or blue-blind sight, and by 7
units of lightness, so that they can be told apart in grey."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#8A8A8A"
WIDTH_IN = 7.2
"""Width of a page with two columns."""

LABELS_AT_MOST = 5
"""On a logarithmic axis."""

LEAST_SPAN = 1.2
"""Highest over lowest value of a logarithmic axis: what varies by less is not blown up to look like an effect."""

_DPI = 200
_LEGEND_CHARACTERS = 135
_LABEL_WIDTH_IN = 0.45
_FOOTER_IN = 0.3
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # text stays text
    "figure.dpi": _DPI,
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Within it, figures look alike whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def panels(rows: int, columns: int, *, height_in: float, share_x: bool = False) -> tuple[Figure, list[list[Axes]]]:
    """A page-wide figure of rows and columns of panels, each row `height_in` high, with room for a footer."""
    figure = Figure(figsize=(WIDTH_IN, rows * height_in + _FOOTER_IN), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share_x)
    return figure, [list(row) for row in grid]


def si(axes: Axes, which: str, unit: str) -> None:
    """Tick labels of an axis (`x` or `y`) with SI prefixes: 20 µs, 3 mJ."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(EngFormatter(unit=unit, sep=" "))  # a thin space


def log_axis(axes: Axes, which: str, unit: str) -> None:
    """Make an axis (`x` or `y`) logarithmic after plotting, with round labels that do not touch."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    if high < low * LEAST_SPAN:
        middle, half = math.sqrt(low * high), math.sqrt(LEAST_SPAN)
        low, high = middle / half, middle * half
        (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    at_most = LABELS_AT_MOST
    if which == "x":
        width_in = axes.get_window_extent().width / axes.figure.dpi
        at_most = min(LABELS_AT_MOST, max(3, round(width_in / _LABEL_WIDTH_IN)))
    axis.set_major_locator(FixedLocator(round_values(low, high, at_most)))
    axis.set_minor_locator(NullLocator())
    si(axes, which, unit)


def round_values(low: float, high: float, at_most: int) -> list[float]:
    """Round values from `low` to `high` for a logarithmic axis: the finest series that has no more than `at_most`."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    decades = [10.0**exponent for exponent in exponents if low <= 10.0**exponent <= high]
    chosen = decades[:: max(1, math.ceil(len(decades) / at_most))]
    for mantissas in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        values = [mantissa * 10.0**exponent for exponent in exponents for mantissa in mantissas]
        values = [value for value in values if low <= value <= high]
        chosen = values if len(chosen) < len(values) <= at_most else chosen
    if len(chosen) < 2:  # the axis spans too little for a series of logarithms
        chosen = [float(value) for value in MaxNLocator(at_most - 1).tick_values(low, high) if low <= value <= high]
    return chosen


def legend(figure: Figure, labels: Sequence[str], title: str) -> None:
    """A legend above the panels: a colour and a marker for each label, in their order."""
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=colour, label=label)
        for label, colour, marker in zip(labels, COLOURS, MARKERS, strict=False)
    ]
    columns = max(1, _LEGEND_CHARACTERS // (max(map(len, labels), default=0) + 6))
    figure.legend(
        handles=handles, title=title, loc="outside upper left", alignment="left", title_fontsize=7, ncols=columns,
        handletextpad=0.2, columnspacing=1.2,
    )  # fmt: skip


def footer(figure: Figure, virtual: Sequence[str], note: str = "") -> None:
    """What is virtual, and what is not shown, below the panels.

    Parameters
    ----------
    figure
        To write on.
    virtual
        Labels of GPUs that are modelled.
    note
        Anything else that a reader must know.
    """
    lines = [note.strip()] if note else []
    if virtual:
        kind = "is a modelled GPU" if len(virtual) == 1 else "are modelled GPUs"
        lines.insert(0, f"VIRTUAL: {', '.join(virtual)} {kind}; nothing of it was measured on real hardware.")
    if lines:
        figure.supxlabel("\n".join(lines), fontsize=7, color="#B00020" if virtual else GREY, x=0.01, ha="left")


def gpu_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each GPU, the same in every figure and on the page.

    Parameters
    ----------
    names
        Labels of all GPUs of the campaign, in any order, also where only some of them are shown. Beyond eight, colours
        come again; `gpu_markers` then tells those of one colour apart.
    """
    return {name: GPU_COLOURS[number % len(GPU_COLOURS)] for number, name in enumerate(sorted(set(names)))}


def gpu_markers(names: Iterable[str]) -> dict[str, str]:
    """A marker for each GPU, as `gpu_colours`; no two of the first 64 share both colour and marker."""
    ordered = sorted(set(names))
    return {name: MARKERS[(number + number // len(GPU_COLOURS)) % len(MARKERS)] for number, name in enumerate(ordered)}


def gpu_title(label: str, *, virtual: bool) -> str:
    """A GPU's label as figures show it."""
    return f"{label} (virtual)" if virtual else label


def spread(values: Sequence[str], count: int) -> list[str]:
    """At most `count` of some values, evenly spread over them, first and last among them."""
    if len(values) <= count:
        return list(values)
    step = (len(values) - 1) / (count - 1)
    return [values[math.floor(number * step + 0.5)] for number in range(count)]


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure in every format; equal data give equal bytes.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None, "Creator": None}}
    for ending in FORMATS:
        with written_aside(folder / f"{name}.{ending}") as aside:
            figure.savefig(aside, format=ending, dpi=_DPI, metadata=undated[ending])
