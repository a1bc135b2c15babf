"""Energy and time of the thesis's networks in its three configurations, as its figures 5.1 and 5.2 and tables I and II.

    python benchmarks/thesis_figures.py

Reads the networks that C. Nicolai measured whole on the A30, with TensorFloat-32 in convolutions and without, and on
the RTX 2080 Ti. Beside each stands what the shipped predictors answer, which know operations of the thesis alone;
in inference alone, since predictors of training are not shipped. Writes `docs/results/thesis-networks.png` and tables.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import others
import pandas as pd
import result_file
from thesis_left_out import GPUS, MEASURED, asked, traces

from clockwatt.figures import style
from clockwatt.predict.description import shipped_predictors
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.schema.execution import DEFAULT, FP32

FIGURE = Path(__file__).parents[1] / "docs" / "results" / "thesis-networks.png"
CONFIGURATIONS = {("a30", True): "A30, TF32", ("rtx2080ti", False): "RTX 2080 Ti", ("a30", False): "A30, float32"}
QUANTITIES = {"energy_j": ("energy of a pass", "J"), "time_s": ("time of a pass", "s")}
KEY = ["model", "input_shape"]
DPI = 130


def main() -> None:
    """Write the tables and the figure."""
    networks = pd.concat(
        [others.read(f"thesis-{gpu}-networks.parquet").assign(label=gpu) for gpu in GPUS], ignore_index=True
    )
    networks = networks.rename(columns={theirs: ours for ours, theirs in MEASURED.items() if theirs != ours})
    inference = networks[networks["mode"] == "inference"]
    shapes = inference[[*KEY, "mode"]].drop_duplicates(ignore_index=True)
    traced = dict(zip(shapes[KEY].itertuples(index=False, name=None), traces(shapes), strict=True))
    models = load_models(shipped_predictors())
    answers = [
        asked(models[row.label], traced[row.model, row.input_shape], DEFAULT if row.tf32 else FP32)
        for row in inference.itertuples()
    ]
    networks = networks.join(pd.DataFrame(answers, index=inference.index).add_prefix("of_"))
    tables(networks)
    draw(networks)


def tables(networks: pd.DataFrame) -> None:
    """Write a row for each network in inference, with all configurations."""
    rows = []
    inference = networks[networks["mode"] == "inference"].set_index(["label", "tf32", *KEY]).sort_index()
    for key in sorted(set(zip(*(inference.index.get_level_values(name) for name in KEY), strict=True))):
        cells = []
        for quantity, scale in (("energy_j", 1.0), ("time_s", 1e3)):
            for configuration in CONFIGURATIONS:
                row = inference.loc[(*configuration, *key)]
                cells.append(f"{scale * row[quantity]:.3g} / {scale * row[f'of_{quantity}']:.3g}")
        rows.append([" ".join(key), *cells])
    ratios = {
        name: [(own[f"of_{quantity}"] / own[quantity]).median() for quantity in QUANTITIES]
        for configuration, name in CONFIGURATIONS.items()
        for own in [inference.loc[configuration]]
    }
    energy_time = "; ".join(f"{name} {energy:.2f} / {time:.2f}" for name, (energy, time) in ratios.items())
    columns = ["network", *(f"{name} ({unit})" for unit in ("J", "ms") for name in CONFIGURATIONS.values())]
    result_file.write(
        "reproductions", "Thesis: networks in inference, measured / predicted", columns, rows,
        hardware="NVIDIA A30, NVIDIA GeForce RTX 2080 Ti (thesis)",
        notes=[
            "TF32 was on in convolutions alone. Turing has no TF32.",
            f"Predicted over measured, median of energy / time: {energy_time}.",
            "RTX 2080 Ti: batch normalisation is known from later campaigns alone, at 228 W; the networks drew 151 W.",
            "![Energy and time of networks in three configurations](thesis-networks.png)",
        ],
    )  # fmt: skip


def draw(networks: pd.DataFrame) -> None:
    """Draw a row for each quantity, a column for each pass."""
    counts = networks.groupby("mode")[KEY].apply(lambda own: len(own.drop_duplicates()))
    with style.styled():
        figure, grid = style.panels(len(counts), len(QUANTITIES), height_in=[0.19 * count + 0.5 for count in counts])
        for line, pass_ in zip(grid, counts.index, strict=True):
            own = networks[networks["mode"] == pass_]
            order = own.groupby(KEY)["energy_j"].mean().sort_values().index.tolist()
            for axes, (quantity, (name, unit)) in zip(line, QUANTITIES.items(), strict=True):
                for configuration, colour in zip(CONFIGURATIONS, style.COLOURS, strict=False):
                    label, tf32 = configuration
                    of = own[(own["label"] == label) & (own["tf32"] == tf32)]
                    y = np.array([order.index(key) for key in of[KEY].itertuples(index=False, name=None)])
                    axes.plot(of[quantity], y, linestyle="", marker="o", markersize=4, color=colour)
                    axes.plot(
                        of[f"of_{quantity}"], y, linestyle="", marker="D", markersize=6, color=colour,
                        markerfacecolor="none", markeredgewidth=0.8,
                    )  # fmt: skip
                axes.set_xscale("log")
                style.si(axes, "x", unit)
                axes.set_xlabel(name)
                axes.set_title(pass_, loc="left")
                axes.set_yticks(range(len(order)), [f"{model} {shape.split('x')[-1]}" for model, shape in order])
                axes.tick_params(axis="y", labelsize=6)
            line[1].set_yticklabels([])
        entries = [
            style.Entry(name, colour, "o") for name, colour in zip(CONFIGURATIONS.values(), style.COLOURS, strict=False)
        ]
        style.legend(figure, entries, "")
        style.footer(
            figure,
            "Filled: measured by C. Nicolai, batch 32. Diamonds: predicted by the shipped predictors, which add up "
            "operations that were measured alone; inference only. The number is the size of the image in pixels.",
        )
        figure.savefig(FIGURE, dpi=DPI)


if __name__ == "__main__":
    main()
