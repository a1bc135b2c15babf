"""Figures measured with the renderer: nothing beyond the paper, no tick label over another, nothing warned of."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

from clockwatt.figures import style

SLACK_PX = 2


def check_layout(figure: Figure) -> None:
    """Draw a figure without a warning, and check where its words lie."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        style.settle(figure)
        figure.draw_without_rendering()
    paper = figure.bbox
    for text in words(figure):
        if text.get_visible() and text.get_text().strip():
            box = text.get_window_extent()
            inside = box.x0 >= -SLACK_PX and box.y0 >= -SLACK_PX
            inside &= box.x1 <= paper.x1 + SLACK_PX and box.y1 <= paper.y1 + SLACK_PX
            assert inside, f"{text.get_text()!r} leaves the paper"
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            labels = [label for label in shown(axis) if label.get_text().strip()]
            boxes = [label.get_window_extent() for label in labels]
            for (one, first), (other, second) in itertools.pairwise(zip(boxes, labels, strict=True)):
                assert not one.overlaps(other), f"{first.get_text()!r} touches {second.get_text()!r}"


def shown(axis: Any) -> list[Text]:
    """Tick labels that lie on the axis."""
    low, high = sorted(axis.get_view_interval())
    margin = 1e-9 * (high - low)
    ticks = [tick for tick in axis.get_major_ticks() if low - margin <= tick.get_loc() <= high + margin]
    return [label for tick in ticks for label in (tick.label1, tick.label2) if label.get_visible()]


def words(figure: Figure) -> Iterator[Text]:
    """Every text that is drawn."""
    yield from figure.texts
    for legend in figure.legends:
        yield from (legend.get_title(), *legend.get_texts())
    for axes in figure.axes:
        yield from axes.texts
        if axes.axison:
            yield from (axes.title, axes._left_title, axes._right_title)
            for axis in (axes.xaxis, axes.yaxis):
                yield from (axis.label, *shown(axis))
