"""The thesis's figure 5.3: named operations on the A30, measured and predicted, as bars.

    python benchmarks/thesis_operations.py [--trees 100]

Takes of each class the operation that needs most energy, in inference with TensorFloat-32 in convolutions. Predictions
are of folds that hold out class and channels, by our roofline predictor and by the forest of the thesis. Writes
`docs/results/thesis-operations.png`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import others
import pandas as pd
import result_file
from matplotlib.ticker import NullFormatter
from thesis_a30 import (
    TARGETS,
    at_default_clock,
    evaluate,
    forest,
    prepared,
    roofline,
    thesis_encoding,
)

from clockwatt.figures import style
from clockwatt.predict.features import channel_groups
from clockwatt.schema.execution import TF32

FIGURE = Path(__file__).parents[1] / "docs" / "results" / "thesis-operations.png"
TIME, POWER = TARGETS
MOST = 10
KINDS = ("measured", "predicted (ours)", "predicted (forest of the thesis)")
DPI = 130


def main() -> None:
    """Write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=100)
    trees = parser.parse_args().trees
    rows = others.read("thesis-a30-operations.parquet")
    of = prepared(rows[(rows["mode"] == "inference") & rows["tf32"]], "inference")
    rows, groups = of.measured, channel_groups(of.features).to_numpy()
    learners = (
        (at_default_clock(of.features, TF32), roofline(trees)),
        (thesis_encoding(of.operations), forest(trees)),
    )
    found = [
        of.targets,
        *(evaluate(encoded, of.targets, groups, of.works, learner, 0) for encoded, learner in learners),
    ]
    energies = pd.DataFrame({kind: one[TIME] * one[POWER] for kind, one in zip(KINDS, found, strict=True)})
    times = pd.DataFrame({kind: one[TIME] for kind, one in zip(KINDS, found, strict=True)})
    dearest = rows.assign(energy=energies[KINDS[0]])[of.works].sort_values("energy").groupby("op_class").tail(1)
    chosen = dearest.tail(MOST).index
    names = [f"{rows.loc[at, 'op_class']} {rows.loc[at, 'input_shape']}" for at in chosen]
    shown = pd.concat([1e3 * times.loc[chosen], energies.loc[chosen]], axis=1)
    table = [
        [name, *(f"{value:.3g}" for value in values)] for name, values in zip(names, shown.to_numpy(), strict=True)
    ]
    result_file.write(
        "reproductions", "Thesis: ten operations, measured and predicted",
        ["operation", *(f"{quantity}, {kind}" for quantity in ("ms", "J") for kind in KINDS)], table[::-1],
        hardware="NVIDIA A30 (thesis)",
        notes=["![Time and energy of ten operations, measured and predicted](thesis-operations.png)"],
    )  # fmt: skip
    draw(names, {("time per call", "s"): times.loc[chosen], ("energy per call", "J"): energies.loc[chosen]})


def draw(names: list[str], quantities: dict[tuple[str, str], pd.DataFrame]) -> None:
    """Draw a panel of bars for each quantity."""
    with style.styled():
        figure, (line,) = style.panels(1, len(quantities), height_in=0.42 * len(names))
        places = np.arange(len(names))
        for axes, ((name, unit), values) in zip(line, quantities.items(), strict=True):
            for number, (kind, colour) in enumerate(zip(KINDS, style.COLOURS, strict=False)):
                axes.barh(places + 0.27 * (1 - number), values[kind], height=0.25, color=colour)
            axes.set_xscale("log")
            axes.set_xlim(left=10 ** np.floor(np.log10(values.to_numpy().min())))
            axes.xaxis.set_minor_formatter(NullFormatter())
            style.si(axes, "x", unit)
            axes.set_xlabel(name)
            axes.set_yticks(places, names)
            axes.tick_params(axis="y", labelsize=6.5)
        line[1].set_yticklabels([])
        style.legend(
            figure, [style.Entry(kind, colour, "s") for kind, colour in zip(KINDS, style.COLOURS, strict=False)], ""
        )
        style.footer(
            figure,
            "NVIDIA A30, inference, TF32 in convolutions; measured by C. Nicolai. Of each class the operation that "
            "needs most energy. Its class with its channels is held out. "
            "Axes are logarithmic: read values, not lengths.",
        )
        figure.savefig(FIGURE, dpi=DPI)


if __name__ == "__main__":
    main()
