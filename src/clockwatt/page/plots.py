"""The plots of the page: empty when they are made, filled by the page's script from what it knows.

Each plot takes its rows from sources by name, so that the script needs to know columns and nothing of glyphs. Colours
of text, axes and grids are left to the script: they follow the reader's light or dark setting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from bokeh.core.properties import value
from bokeh.embed import json_item
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    FactorRange,
    HoverTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
)
from bokeh.plotting import figure

_TYPEFACE = "system-ui, sans-serif"
_FONT = "13px"
_HEIGHT = 300
_NEUTRAL = "#8a919c"
"""Seen on light and on dark."""

CURVES = {"time": "time per pass", "power": "mean power", "energy": "energy per pass", "edp": "energy × time"}
"""Plots against clock or power limit: name and what they show."""


def plots() -> dict[str, Any]:
    """Return every plot of the page by name, as JSON that BokehJS embeds."""
    made = {
        "tradeoff": _tradeoff(),
        **{f"curve-{name}": _curve(name, title) for name, title in CURVES.items()},
        **{f"networks-{side}": _networks(side) for side in ("on", "off")},
        "joules": _joules(),
        "heldout": _held_out(),
        "transient": _transient(),
        "polling": _polling(),
    }
    text = json.dumps({name: json_item(plot) for name, plot in made.items()})
    found: dict[str, Any] = json.loads(_numbered(text))
    return found


def _numbered(text: str) -> str:
    """Return models numbered from 1, however many the process made before: equal plots give equal bytes."""
    numbers = {found: number for number, found in enumerate(dict.fromkeys(re.findall(r'"p(\d{4,})"', text)), 1)}
    return re.sub(r'"p(\d{4,})"', lambda found: f'"p{numbers[found[1]]}"', text)


def _figure(name: str, *, height: int = _HEIGHT, **settings: Any) -> Any:
    plot = figure(
        name=name, height=height, sizing_mode="stretch_width", tools=[], toolbar_location=None,
        background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None, min_border_left=8, min_border_right=12,
        **settings,
    )  # fmt: skip
    plot.axis.major_label_text_font_size = plot.axis.axis_label_text_font_size = _FONT
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.minor_tick_line_color = None
    plot.axis.major_tick_line_color = None
    plot.axis.axis_line_color = None
    plot.axis.major_label_text_font = plot.axis.axis_label_text_font = _TYPEFACE
    return plot


def _source(name: str, columns: Sequence[str]) -> ColumnDataSource:
    return ColumnDataSource(name=name, data={column: [] for column in columns})


def _hover(plot: Any, renderers: Sequence[Any]) -> None:
    """A box that shows the column `said` of what the pointer is at: sentences made by the script."""
    plot.add_tools(HoverTool(renderers=list(renderers), tooltips="@said{safe}", mode="mouse"))


_SI = """
const prefixes = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
const [scale, prefix] = prefixes.find(([one]) => tick >= 0.999 * one) || prefixes[3];
return `${Number((tick / scale).toPrecision(3))} ${prefix}`;
"""
"""Ticks of a logarithmic axis with the prefixes of units in place of powers of ten."""

_POINT = ("x", "y", "colour", "fill", "size", "label", "said", "marker")


def _whiskers(plot: Any, name: str) -> None:
    source = _source(name, ("x0", "x1", "y0", "y1", "colour"))
    plot.segment("x0", "y0", "x1", "y1", source=source, line_color="colour", line_width=1.2, line_alpha=0.45)


def _lines(plot: Any, name: str, **settings: Any) -> None:
    source = _source(name, ("xs", "ys", "colour"))
    plot.multi_line("xs", "ys", source=source, line_color="colour", **settings)


def _points(plot: Any, name: str) -> Any:
    return plot.scatter(
        "x", "y", source=_source(name, _POINT), marker="marker", size="size", line_color="colour", fill_color="fill",
        line_width=1.6,
    )  # fmt: skip


def _tradeoff() -> Any:
    plot = _figure("tradeoff", height=420)
    _lines(plot, "tradeoff-lines", line_width=1.5, line_alpha=0.5)
    front = _source("tradeoff-front", ("xs", "ys", "colour"))
    plot.multi_line("xs", "ys", source=front, line_color="colour", line_width=5, line_alpha=0.18, line_cap="round")
    _whiskers(plot, "tradeoff-whiskers")
    points = _points(plot, "tradeoff-points")
    labels = _source("tradeoff-labels", ("x", "y", "text", "colour", "dx", "dy", "align"))
    plot.text(
        "x", "y", text="text", source=labels, text_color="colour", text_font_size="12px", x_offset="dx", y_offset="dy",
        text_align="align", text_baseline="middle", text_font=value(_TYPEFACE),
    )  # fmt: skip
    _hover(plot, [points])
    plot.x_range = DataRange1d(range_padding=0.12, only_visible=True)
    plot.y_range = DataRange1d(range_padding=0.15, only_visible=True)
    return plot


def _curve(name: str, title: str) -> Any:
    plot = _figure(f"curve-{name}", height=250)
    _lines(plot, f"curve-{name}-predicted", line_width=1.6, line_dash=[5, 4])
    _lines(plot, f"curve-{name}-measured", line_width=1.8)
    _whiskers(plot, f"curve-{name}-whiskers")
    points = _points(plot, f"curve-{name}-points")
    _hover(plot, [points])
    plot.yaxis.axis_label = title
    plot.y_range = DataRange1d(range_padding=0.12)
    plot.x_range = DataRange1d(range_padding=0.08)
    return plot


def _networks(side: str) -> Any:
    plot = _figure(f"networks-{side}", y_range=FactorRange(factors=["–"]), x_range=DataRange1d(range_padding=0.06))
    plot.vspan(x=[0], line_width=1, line_alpha=0.6, line_color=_NEUTRAL)
    source = _source(f"networks-{side}-whiskers", ("x0", "x1", "y0", "y1", "colour"))
    plot.segment("x0", "y0", "x1", "y1", source=source, line_color="colour", line_width=6, line_alpha=0.22)
    points = _points(plot, f"networks-{side}-points")
    plot.x_range.renderers = [points]  # a measurement that says little does not blow up the scale
    plot.xaxis.ticker = BasicTicker(desired_num_ticks=5)
    _hover(plot, [points])
    return plot


def _joules() -> Any:
    plot = _figure("joules", height=340, x_range=Range1d(start=0, end=1), y_range=Range1d(start=-0.05, end=4))
    plot.axis.visible = False
    plot.grid.visible = False
    blocks = _source("joules-blocks", ("left", "right", "bottom", "top", "fill", "alpha", "said"))
    quads = plot.quad(
        left="left", right="right", bottom="bottom", top="top", source=blocks, fill_color="fill", fill_alpha="alpha",
        line_width=1, name="joules-quads",
    )  # fmt: skip
    texts = _source("joules-texts", ("x", "y", "text", "colour"))
    plot.text(
        "x", "y", text="text", source=texts, text_color="colour", text_font_size="12px", text_baseline="middle",
        x_offset=5, text_font=value(_TYPEFACE),
    )  # fmt: skip
    _hover(plot, [quads])
    return plot


def _held_out() -> Any:
    plot = _figure("heldout", height=420, x_axis_type="log", y_axis_type="log")
    _lines(plot, "heldout-diagonal", line_width=1.2, line_alpha=0.7)
    source = _source("heldout-points", ("x", "y", "colour", "said"))
    dots = plot.scatter("x", "y", source=source, size=5, color="colour", fill_alpha=0.45, line_alpha=0)
    _hover(plot, [dots])
    plot.add_tools(WheelZoomTool(), ResetTool())
    plot.axis.formatter = CustomJSTickFormatter(code=_SI)
    return plot


def _transient() -> Any:
    plot = _figure("transient", height=250)
    source = _source("transient-ring", ("x", "y", "colour"))
    plot.line("x", "y", source=source, line_width=1.6, name="transient-line")
    slow = _source("transient-fast", ("x", "y", "colour"))
    plot.scatter("x", "y", source=slow, size=6, line_width=1.4, fill_alpha=0, name="transient-dots")
    plot.xaxis.axis_label, plot.yaxis.axis_label = "time since the load began (s)", "board power (W)"
    plot.y_range = DataRange1d(start=0, range_padding=0.1)
    return plot


def _polling() -> Any:
    plot = _figure("polling", height=250)
    for lane, marker in (("ring", "circle"), ("fast", "square")):
        source = _source(f"polling-{lane}", ("x", "y", "colour"))
        plot.scatter(
            "x", "y", source=source, marker=marker, size=4, line_alpha=0, fill_alpha=0.7, fill_color="colour",
            line_color="colour",
        )  # fmt: skip
    plot.xaxis.axis_label, plot.yaxis.axis_label = "time since the first reading (s)", "off the median interval"
    plot.y_range = DataRange1d(range_padding=0.12)
    plot.x_range = DataRange1d(range_padding=0.03)
    return plot
