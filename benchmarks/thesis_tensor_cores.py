"""What TensorFloat-32 gains against how much the calls of a network depend on each other, on the thesis's A30.

    python benchmarks/thesis_tensor_cores.py

Reads the networks that C. Nicolai measured whole in inference, with TensorFloat-32 in convolutions and without. The
complexity of dependencies is that of McCabe on the graph of calls: tensors that one call takes from another, less
calls, plus one; it counts branches that join again. Writes `docs/results/thesis-tensor-cores.png` and a table.
"""

from __future__ import annotations

import re
from pathlib import Path

import others
import pandas as pd
import result_file
from thesis_left_out import MEASURED, traces

from clockwatt.figures import style

FIGURE = Path(__file__).parents[1] / "docs" / "results" / "thesis-tensor-cores.png"
KEY = ["model", "input_shape"]
QUANTITIES = {"energy_j": "energy", "time_s": "time"}
ABSCISSAS = {"complexity": "branches that join again", "convolutions": "convolutions' share of FLOPs"}
DPI = 130


def main() -> None:
    """Write the table and the figure."""
    networks = others.read("thesis-a30-networks.parquet").query("mode == 'inference'")
    networks = networks.rename(columns={theirs: ours for ours, theirs in MEASURED.items() if theirs != ours})
    rows = gains(networks)
    shapes = rows.reset_index()[KEY].assign(mode="inference")
    traced = traces(shapes)
    rows["complexity"] = [complexity(one.calls) for one in traced]
    rows["convolutions"] = [convolutions(one.calls, one.operations) for one in traced]
    rows = rows.sort_values(["complexity", "energy_j"])
    table = [
        [" ".join(key), row.complexity, f"{row.convolutions:.0f} %", f"{row.energy_j:.2f}", f"{row.time_s:.2f}"]
        for key, row in zip(rows.index, rows.itertuples(index=False), strict=True)
    ]
    said = [
        f"Rank correlation of the gain in {name} with {abscissa}: "
        f"{rows[column].corr(rows[quantity], method='spearman'):+.2f}."
        for column, abscissa in ABSCISSAS.items()
        for quantity, name in QUANTITIES.items()
    ]
    result_file.write(
        "reproductions", "Thesis: gain of tensor cores against dependencies between calls",
        ["network", *ABSCISSAS.values(), "gain in energy (×)", "gain in time (×)"], table,
        hardware="NVIDIA A30 (thesis)",
        notes=[
            "Inference at batch 32: without TensorFloat-32 over with it, in convolutions.",
            "Branches: tensors that a call takes from another, less calls, plus one.",
            *said,
            "![Gain of tensor cores against dependencies](thesis-tensor-cores.png)",
        ],
    )  # fmt: skip
    draw(rows)


def gains(networks: pd.DataFrame) -> pd.DataFrame:
    """Return energy and time without TensorFloat-32 over those with it, of networks measured in both cases."""
    wide = networks.pivot_table(index=KEY, columns="tf32", values=list(QUANTITIES), aggfunc="mean").dropna()
    return pd.DataFrame({name: wide[name][False] / wide[name][True] for name in QUANTITIES})


def complexity(calls: pd.DataFrame) -> int:
    """Return the number of branches of the graph of calls that join again."""
    made_by: dict[int, int] = {}
    edges: set[tuple[int, int]] = set()
    for number, (taken, given) in enumerate(zip(calls["tensors_in"], calls["tensors_out"], strict=True)):
        edges |= {(made_by[tensor], number) for tensor in taken if tensor in made_by}
        made_by |= dict.fromkeys(given, number)
    return len(edges) - len(calls) + 1


def convolutions(calls: pd.DataFrame, operations: pd.DataFrame) -> float:
    """Return the share of convolutions in the FLOPs of a network, in percent."""
    rows = calls.merge(operations[["operation_id", "operation_class", "flops"]], on="operation_id")
    return 100 * float(rows.loc[rows["operation_class"] == "conv2d", "flops"].sum() / rows["flops"].sum())


def family(model: str) -> str:
    """Return a model's name without its size."""
    return re.match(r"[a-z]+", model)[0]


def draw(rows: pd.DataFrame) -> None:
    """Draw a row for each quantity, a column for each abscissa, a colour for each architecture."""
    names = sorted({family(model) for model, _ in rows.index})
    entries = dict(zip(names, style.entries(names), strict=True))
    with style.styled():
        figure, grid = style.panels(len(QUANTITIES), len(ABSCISSAS), height_in=1.9, share_x=True, share_y=True)
        for line, (quantity, name) in zip(grid, QUANTITIES.items(), strict=True):
            for axes, (column, abscissa) in zip(line, ABSCISSAS.items(), strict=True):
                for (model, _), row in rows.iterrows():
                    entry = entries[family(model)]
                    axes.plot(row[column], row[quantity], linestyle="", marker=entry.marker, color=entry.colour)
                axes.set_ylim(bottom=0.9)
                if line is grid[-1]:
                    axes.set_xlabel(abscissa)
                if column == "convolutions":
                    style.percent(axes, "x", signed=False)
                else:
                    axes.set_xscale("symlog", linthresh=10)
                    axes.xaxis.set_major_formatter("{x:g}")
            line[0].set_ylabel(f"gain in {name} (×)")
        style.legend(figure, list(entries.values()), "")
        style.footer(
            figure,
            "Measured by C. Nicolai on an A30, inference, batch 32, images of several sizes: without TensorFloat-32 "
            "over with it. Branches: tensors that a call takes from another, less calls, plus one.",
        )
        figure.savefig(FIGURE, dpi=DPI)


if __name__ == "__main__":
    main()
