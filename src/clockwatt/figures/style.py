"""Shared style of figures: fonts, colours, units, the word `virtual`, and reproducible files."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from pyarrow import csv

from clockwatt.figures.palette import GPU_COLOURS
from clockwatt.io.files import written_aside
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.optimizers import TRAINED

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#000000")
"""Eight colours that colour-blind readers distinguish (after Okabe and Ito, 2008; yellow is too pale on white)."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#8A8A8A"
MINUS = "\N{MINUS SIGN}"
WIDTH_IN = 7.2
"""Width of a page with two columns."""

STAMP = "#B00020"
"""Colour of the word `virtual`."""
DARK = "#444444"

LABELS_AT_LEAST, LABELS_AT_MOST = 3, 6
"""On a logarithmic axis, where they do not touch."""

LEAST_SPAN = 1.2
"""Highest over lowest value of a logarithmic axis: what varies by less is not blown up to look like an effect."""

_DPI = 200
_LEGEND_CHARACTERS = 125
_FOOTER_CHARACTERS = 138
_NAMED_AT_MOST = 6
_LABEL_WIDTH_IN = 0.42
_AROUND_IN = 0.1
_LINE_IN = 0.155
"""Height of a line in a legend or below the panels; a figure grows by as many as there are."""
_NOTHING = 1e-9
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titley": 1.0,  # no panel has ticks above it, for which each drawing would measure all its tick labels
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
    "pdf.fonttype": 3,  # text stays text; cutting TrueType fonts (42) to size would take as long as drawing
    "figure.dpi": _DPI,
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Within it, figures look alike whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


@dataclass(frozen=True)
class Entry:
    """A line of a legend; hollow where `filled` is not."""

    label: str
    colour: str
    marker: str = ""
    line: Literal["-", "--", ":", ""] = ""
    filled: bool = True


def entries(labels: Sequence[str]) -> list[Entry]:
    """Return a colour and a marker for each label, in their order."""
    return [Entry(label, colour, marker) for label, colour, marker in zip(labels, COLOURS, MARKERS, strict=False)]


def panels(
    rows: int, columns: int, *, height_in: float | Sequence[float], share_x: bool = False, share_y: bool = False
) -> tuple[Figure, list[list[Axes]]]:
    """Return a page-wide figure of rows and columns of panels, with space for a footer.

    Parameters
    ----------
    rows, columns
        How many.
    height_in
        Of every row, or of each.
    share_x, share_y
        Whether the panels of a column, or of a row, have one axis.
    """
    heights = [height_in] * rows if isinstance(height_in, int | float) else list(height_in)
    figure = Figure(figsize=(WIDTH_IN, sum(heights) + _AROUND_IN), layout="constrained")
    grid = figure.subplots(
        rows, columns, squeeze=False, sharex="col" if share_x else False, sharey="row" if share_y else False,
        height_ratios=heights,
    )  # fmt: skip
    return figure, [list(row) for row in grid]


def ragged(columns: Sequence[int], *, height_in: Sequence[float]) -> tuple[Figure, list[list[Axes]]]:
    """Return a page-wide figure whose rows have so many panels each, and such heights."""
    figure = Figure(figsize=(WIDTH_IN, sum(height_in) + _AROUND_IN), layout="constrained")
    width = math.lcm(*columns)
    spec = GridSpec(len(columns), width, figure=figure, height_ratios=height_in)
    grid = [
        [figure.add_subplot(spec[row, number * width // of : (number + 1) * width // of]) for number in range(of)]
        for row, of in enumerate(columns)
    ]
    return figure, grid


def nothing(why: str) -> Figure:
    """Return a figure that says why there is nothing to draw."""
    figure = Figure(figsize=(WIDTH_IN, 0.8))
    figure.text(0.5, 0.5, "\n".join(textwrap.wrap(f"Nothing to draw: {why}", 100)), ha="center", va="center")
    return figure


def si(axes: Axes, which: str, unit: str) -> None:
    """Tick labels of an axis (`x` or `y`) with SI prefixes: 20 µs, 3 mJ."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(EngFormatter(unit=unit, sep="\N{THIN SPACE}"))


def log_axis(axes: Axes, which: str, unit: str, label: str | None = None) -> None:
    """Make an axis (`x` or `y`) logarithmic after plotting, with round labels; `label` gets the word logarithmic."""
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
    if label is not None:
        axis.set_label_text(f"{label} (log)")


def round_values(low: float, high: float, at_most: int) -> list[float]:
    """Round values from `low` to `high` for a logarithmic axis: the finest series that has no more than `at_most`."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    decades = [10.0**exponent for exponent in exponents if low <= 10.0**exponent <= high]
    chosen = decades[:: max(1, math.ceil(len(decades) / at_most))]
    for mantissas in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        values = [mantissa * 10.0**exponent for exponent in exponents for mantissa in mantissas]
        values = [value for value in values if low <= value <= high]
        chosen = values if len(chosen) < len(values) <= at_most else chosen
    if len(chosen) < LABELS_AT_LEAST:  # the axis spans too little for a series of logarithms
        even = MaxNLocator(at_most - 1).tick_values(low, high)
        values = [float(value) for value in even if low <= value <= high]
        chosen = values if len(values) > len(chosen) else chosen
    return chosen


def legend(figure: Figure, shown: Sequence[Entry], title: str) -> None:
    """A legend above the panels."""
    handles = [
        Line2D(
            [], [], linestyle=entry.line, marker=entry.marker, color=entry.colour, label=entry.label,
            markerfacecolor=entry.colour if entry.filled else "white",
        )
        for entry in shown
    ]  # fmt: skip
    columns = max(1, _LEGEND_CHARACTERS // (max((len(entry.label) for entry in shown), default=0) + 6))
    figure.legend(
        handles=handles, title=title, loc="outside upper left", alignment="left", title_fontsize=7, ncols=columns,
        handletextpad=0.4, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip
    _grow(figure, -(-len(handles) // columns) + bool(title))


def footer(figure: Figure, *notes: str) -> None:
    """Write notes and what is not shown below the panels."""
    note = " ".join(note.strip() for note in notes if note)
    if note:
        lines = textwrap.wrap(note, _FOOTER_CHARACTERS)
        figure.supxlabel("\n".join(lines), fontsize=7, color=DARK, x=0.01, ha="left")
        _grow(figure, len(lines))


def _grow(figure: Figure, lines: int) -> None:
    figure.set_figheight(figure.get_figheight() + lines * _LINE_IN)


def left_out(names: Sequence[str], one: str, several: str) -> str:
    """Say what is not shown, if anything is: `4 GPUs are not shown: a, b, c, d.`."""
    if not names:
        return ""
    named = list(names[:_NAMED_AT_MOST]) + (
        [f"{len(names) - _NAMED_AT_MOST} more"] if len(names) > _NAMED_AT_MOST else []
    )
    return f"{len(names)} {one + ' is' if len(names) == 1 else several + ' are'} not shown: {', '.join(named)}."


def without_tf32(data: pd.DataFrame) -> str:
    """Return a sentence about GPUs that stand beside TF32 in float32; `data` with `gpu`, `execution`, `compared`."""
    labels = sorted(data.loc[data["execution"] != data["compared"], "gpu"].unique())
    return f"Without TF32, in float32: {', '.join(labels)}." if labels else ""


def without_curve(labels: Iterable[str]) -> str:
    """Return a sentence about GPUs that were measured at one operating point."""
    return f"Measured at one operating point only: {', '.join(sorted(labels))}." if labels else ""


def network_words(network_id: str, *, execution: ExecutionSettings) -> str:
    """Return the display name of a network: name, shape of its input, number format."""
    name, dtype = network_and_input(network_id)
    return f"{name} {execution.words}" if dtype else name


def network_and_input(network_id: str) -> tuple[str, str]:
    """Name and shape of the input, and number format: `resnet18 32×3×224×224` and `float32`; else the id alone."""
    found = TRAINED.search(network_id)
    trained = found[0] if found else ""
    name, *rest = network_id.removesuffix(trained).rsplit("-", 2)
    if len(rest) < 2:
        return network_id, ""
    shape = re.sub("(?<=[0-9])x(?=[0-9])", "×", rest[0])
    return f"{name.rpartition(':')[2]} {shape}{trained.replace('-', ' ', 1)}", rest[1]


def networks_left_out(network_ids: Iterable[str]) -> str:
    """Return `left_out` for networks, with their names and shapes."""
    words = sorted({" ".join(network_and_input(name)).strip().removesuffix(" float32") for name in network_ids})
    return left_out(words, "network", "networks")


def gpu_markers(names: Iterable[str]) -> dict[str, str]:
    """Return a marker for each GPU, as `palette.gpu_colours`; no two of the first 64 share both colour and marker."""
    ordered = sorted(set(names))
    return {name: MARKERS[(number + number // len(GPU_COLOURS)) % len(MARKERS)] for number, name in enumerate(ordered)}


def percent(axes: Axes, which: str, *, signed: bool = True) -> None:
    """Tick labels of an axis (`x` or `y`) in percent: `+20 %`, `0 %`."""

    def words(value: float, _: int) -> str:
        return percent_words(value, signed=signed)

    (axes.xaxis if which == "x" else axes.yaxis).set_major_formatter(FuncFormatter(words))


def percent_words(value: float, digits: str = "g", *, signed: bool = True) -> str:
    """Return `+20 %`; zero has no sign."""
    zero = abs(value) < _NOTHING or not float(f"{value:{digits}}")
    text = f"{0.0 if zero else value:{'+' if signed and not zero else ''}{digits}}"
    return f"{text.replace('-', MINUS)} %"


def few() -> MaxNLocator:
    """Return a few round ticks on a linear axis."""
    return MaxNLocator(4, min_n_ticks=3)


def spread(values: Sequence[str], count: int) -> list[str]:
    """Return at most `count` of some values, evenly spread, with the first and the last."""
    if len(values) <= count:
        return list(values)
    if count <= 1:
        return list(values[:count])
    step = (len(values) - 1) / (count - 1)
    return [values[math.floor(number * step + 0.5)] for number in range(count)]


def settle(figure: Figure) -> None:
    """Lay a figure out once and for all, and leave tick labels out that would touch the next one."""
    FigureCanvasAgg(figure)  # becomes the canvas: one without a renderer has one made for each text it measures
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    for axes in figure.axes:
        if axes.axison:
            _thin_out(axes.xaxis)
            _thin_out(axes.yaxis)


def _thin_out(axis: Axis) -> None:
    boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text() and label.get_visible()]
    places = axis.get_majorticklocs()
    if axis.get_scale() != "log" or len(boxes) < 2:
        return
    low, high = sorted(axis.get_view_interval())
    inside = [place for place in places if low <= place <= high]
    if len(inside) == len(boxes) and any(one.overlaps(other) for one, other in itertools.pairwise(boxes)):
        axis.set_major_locator(FixedLocator(inside[::2]))


def save(figure: Figure, data: pd.DataFrame, folder: Path, name: str) -> None:
    """Write a figure in every format, and the data that it is drawn from; equal data give equal bytes.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    from matplotlib.backends.backend_pdf import FigureCanvasPdf  # loads a library for fonts

    settle(figure)
    # not by `savefig`, which draws each of them twice
    with written_aside(folder / f"{name}.png") as aside:
        FigureCanvasAgg(figure).print_png(aside, metadata={"Software": None})  # type: ignore[no-untyped-call]
    undated = {"CreationDate": None, "Producer": None, "Creator": None}
    with written_aside(folder / f"{name}.pdf") as aside:
        FigureCanvasPdf(figure).print_pdf(aside, metadata=undated)  # type: ignore[no-untyped-call]
    with written_aside(folder / f"{name}.csv") as aside:
        csv.write_csv(pa.Table.from_pandas(_rounded(data), preserve_index=False), aside)


def _rounded(data: pd.DataFrame) -> pd.DataFrame:
    """Return the values with six significant digits."""
    numbers = data.select_dtypes(np.floating)
    values = numbers.to_numpy(float)
    known = np.isfinite(values) & (values != 0)
    scale = 10.0 ** (5 - np.floor(np.log10(np.abs(values, where=known, out=np.ones_like(values)))))
    rounded = np.round(np.where(known, values, 0.0) * scale) / scale
    rounded = np.where(known, rounded, values)
    return data.assign(**dict(zip(numbers.columns, rounded.T, strict=True)))
