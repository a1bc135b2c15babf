"""The GPUs that figures show: real and virtual ones apart, each with its colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes

from clockwatt.figures import style
from clockwatt.figures.palette import gpu_colours

Place = Literal["left", "center", "right"]
REAL, VIRTUAL = "real", "virtual"
AT_MOST = 4
"""GPUs that have panels of their own."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of a campaign, by its label; and whether it is virtual."""

    label: str
    virtual: bool


class Gpus:
    """All GPUs of a campaign, real ones first."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self.all = sorted(gpus, key=lambda gpu: (gpu.virtual, gpu.label))
        self.labels = [gpu.label for gpu in self.all]
        self._virtual = {gpu.label: gpu.virtual for gpu in self.all}
        self._colours, self._markers = gpu_colours(self.labels), style.gpu_markers(self.labels)

    def kind(self, label: str) -> str:
        """Return the kind: `REAL` or `VIRTUAL`."""
        return VIRTUAL if self._virtual[label] else REAL

    def kinds(self, labels: Iterable[str]) -> dict[str, list[str]]:
        """Return the kinds of which there is a GPU among these, each to its GPUs."""
        wanted = set(labels)
        found: dict[str, list[str]] = {}
        for label in self.labels:
            if label in wanted:
                found.setdefault(self.kind(label), []).append(label)
        return found

    def shown(self, labels: Iterable[str], at_most: int = AT_MOST) -> list[str]:
        """Return the GPUs that have panels: real ones before virtual ones."""
        found: list[str] = []
        for of_kind in self.kinds(labels).values():
            found += style.spread(of_kind, at_most - len(found))
        return found

    def entry(self, label: str) -> style.Entry:
        """Return a GPU's line in a legend."""
        return style.Entry(self.words(label), self._colours[label], self._markers[label])

    def title(self, axes: Axes, label: str, more: str = "", *, loc: Place = "center", lines: int = 1) -> None:
        """A GPU's name above its panel, on one line or two; that of a virtual one says so."""
        between = ("\n" if lines > 1 else ", ") if more else ""
        virtual = self._virtual[label]
        axes.set_title(f"{self.words(label)}{between}{more}", loc=loc, color=style.STAMP if virtual else "black")

    def words(self, label: str) -> str:
        """Return a GPU's label; that of a virtual one says so."""
        return f"{label} ({VIRTUAL})" if self._virtual[label] else label

    @staticmethod
    def kind_title(axes: Axes, kind: str, text: str, *, loc: Place = "center") -> None:
        """A title of a panel of one kind of GPUs; the stamp `virtual` is on what is, and on nothing else."""
        if kind == VIRTUAL:
            axes.set_title(f"{text} ({VIRTUAL})", color=style.STAMP, loc=loc)
        else:
            axes.set_title(text, loc=loc)

    @staticmethod
    def note(shown: Sequence[str], labels: Iterable[str]) -> str:
        """Return a note on GPUs without a panel."""
        left_out = sorted(set(labels) - set(shown))
        return style.left_out(left_out, "GPU", "GPUs")
