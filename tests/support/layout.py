"""Figures measured with the renderer: nothing beyond the paper, no tick label over another, nothing warned of."""

from __future__ import annotations

import itertools
import warnings
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
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and _on_paper(text):
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


def _on_paper(text: Text) -> bool:
    """Whether a text is drawn at all: not in axes that are off, and no label of a tick beyond its axis."""
    axes = text.axes
    if axes is None:
        return True
    ticks = {label for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels(which="both")}
    if text in ticks:
        return axes.axison and any(text in shown(axis) for axis in (axes.xaxis, axes.yaxis))
    return axes.axison or text in axes.texts
