"""The thesis's figures 5.4 to 5.11: networks on the A30, measured and predicted, in inference and training.

    python benchmarks/thesis_held_out.py [--folds 4]

Predictions are sums over the operations of a network, by the roofline predictor and by the forest of the thesis. Both
are fitted without the operations that the network's fold of architectures calls. Writes
`docs/results/thesis-held-out.png`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import others
import pandas as pd
import result_file
from thesis_left_out import MEASURED, held_out, traces

from clockwatt.figures import style
from clockwatt.schema.execution import DEFAULT, FP32

FIGURE = Path(__file__).parents[1] / "docs" / "results" / "thesis-held-out.png"
PREDICTORS = {"roofline": "ours", "forest": "forest of the thesis"}
QUANTITIES = {"time_s": ("time", "s"), "energy_j": ("energy", "J")}
PRECISIONS = {True: "TF32", False: "float32"}
DPI = 130


def main() -> None:
    """Write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=4)
    folds = parser.parse_args().folds
    networks = others.read("thesis-a30-networks.parquet")
    networks["execution"] = [DEFAULT if tf32 else FP32 for tf32 in networks["tf32"]]
    traced = traces(networks)
    for predictor in PREDICTORS:
        values = pd.DataFrame(held_out("a30", networks, traced, folds, predictor))
        networks = networks.join(values.add_prefix(f"{predictor}_"))
    rows = []
    for (pass_, tf32), own in networks.groupby(["mode", "tf32"]):
        for predictor, name in PREDICTORS.items():
            errors = [off(own, predictor, quantity) for quantity in QUANTITIES]
            rows.append([pass_, PRECISIONS[bool(tf32)], len(own), name, *errors])
    result_file.write(
        "reproductions", "Thesis: networks on the A30, predicted without their operations",
        ["pass", "convolutions", "networks", "predictor", "time", "energy"], rows, hardware="NVIDIA A30 (thesis)",
        notes=[
            "Errors are the median and the 90th percentile.",
            "![Predicted against measured time and energy of networks](thesis-held-out.png)",
        ],
    )  # fmt: skip
    draw(networks)


def off(rows: pd.DataFrame, predictor: str, quantity: str) -> str:
    """Return median and 90th percentile of the error."""
    errors = (rows[f"{predictor}_{quantity}"] / rows[MEASURED[quantity]] - 1).abs()
    return f"{errors.median():.0%} / {errors.quantile(0.9):.0%}"


def draw(networks: pd.DataFrame) -> None:
    """Draw a row for each pass, a column for each quantity and precision."""
    columns = [(quantity, tf32) for quantity in QUANTITIES for tf32 in PRECISIONS]
    with style.styled():
        figure, grid = style.panels(2, len(columns), height_in=1.75)
        for line, (pass_, of_pass) in zip(grid, networks.groupby("mode"), strict=True):
            for axes, (quantity, tf32) in zip(line, columns, strict=True):
                own, (name, unit) = of_pass[of_pass["tf32"] == tf32], QUANTITIES[quantity]
                measured = own[MEASURED[quantity]]
                for number, predictor in reversed(list(enumerate(PREDICTORS))):
                    axes.plot(
                        measured, own[f"{predictor}_{quantity}"], linestyle="", marker=style.MARKERS[number],
                        markersize=3, color=style.COLOURS[number],
                    )  # fmt: skip
                ends = np.array([measured.min(), measured.max()])
                axes.plot(ends, ends, color=style.GREY, linewidth=0.8, zorder=0)
                axes.set_xscale("log")
                axes.set_yscale("log")
                style.si(axes, "x", unit)
                style.si(axes, "y", unit)
                axes.set_title(f"{name}, {PRECISIONS[tf32]}", loc="left")
            line[0].set_ylabel(f"{pass_}\npredicted")
        for axes in grid[-1]:
            axes.set_xlabel("measured")
        entries = [
            style.Entry(name, style.COLOURS[number], style.MARKERS[number])
            for number, name in enumerate(PREDICTORS.values())
        ]
        style.legend(figure, entries, "")
        style.footer(
            figure,
            "NVIDIA A30, measured by C. Nicolai. Predictions are sums of operations, without those that the network "
            "calls. Grey: predicted as measured.",
        )
        figure.savefig(FIGURE, dpi=DPI)


if __name__ == "__main__":
    main()
