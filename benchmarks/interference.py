"""How much two programs on one H100, and two H100s of one host, slow each other down.

    python benchmarks/interference.py

Reads `benchmarks/conditions/`: one CSV for each repetition of `clockwatt study-conditions`, with two GPUs and the
conditions `together` and `shared`; and steps of two programs that ran with no other process on the host. Writes
`docs/results/interference-h100.png` and a table.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import result_file
from matplotlib.backends.backend_agg import FigureCanvasAgg

from clockwatt.config import CONDITION_PROGRAMS
from clockwatt.figures import style
from clockwatt.studies.survey import interference
from clockwatt.studies.survey.conditions import ALONE, TOGETHER

FOLDER = Path(__file__).parent / "conditions"
FIGURE = Path(__file__).parents[1] / "docs" / "results" / "interference-h100.png"
HARDWARE = "2 × NVIDIA H100 80GB HBM3 of one host, 2026-11-26, PyTorch 2.11.0"


def main() -> None:
    """Write table and figure."""
    rows = interference.read([FOLDER])
    table = interference.slowdowns(rows)
    alone = rows[(rows["condition"] == ALONE) & (rows["card"] == 0)].groupby("base")["step_s"]
    pairs = table[table["test"] != ""].set_index(["base", "test"])
    solo = dict(line.split() for line in (FOLDER / "h100-solo.txt").read_text(encoding="utf-8").splitlines())
    (together,) = table[table["condition"] == TOGETHER].to_dict("records")
    cells = [
        [
            base,
            f"{1e3 * alone.get_group(base).mean():.2f}",
            f"{100 * (alone.get_group(base).max() / alone.get_group(base).min() - 1):.1f}",
            f"{1e3 * float(solo[base]):.2f}" if base in solo else "–",
            *(words(pairs.loc[base, test]) for test in CONDITION_PROGRAMS),
        ]
        for base in CONDITION_PROGRAMS
    ]
    result_file.write(
        "cards",
        "Programs beside each other on one H100",
        [
            "program", "step alone, ms", "range of repetitions, %", "no other process, ms",
            *(f"times as long beside {name}" for name in CONDITION_PROGRAMS),
        ],
        cells,
        notes=[
            f"Mean steps over those alone, with 95 % intervals over {together['repetitions']} repetitions.",
            "Programs are processes of their own that share the GPU by time slicing, without MPS.",
            "`sgemm`: a float32 product of two 8192 × 8192 matrices.",
            "The others are inference with PyTorch's default precision.",
            "Batches: 64 images in `resnet50`, 16 × 128 tokens in `bert`, 16,384 examples in `dlrm`.",
            "*Alone*: the other programs are started and wait. *No other process*: none is started; measured once.",
            "One of the repetitions of `bert` alone is slower than the others, so its intervals are wide.",
            f"`sgemm` on both GPUs at once takes {words(pd.Series(together))} times as long as on one alone.",
            "![How much longer steps take beside another program](interference-h100.png)",
        ],
        hardware=HARDWARE,
    )  # fmt: skip
    with style.styled():
        figure = interference.draw(table, "NVIDIA H100 80GB HBM3")
        style.settle(figure)
        figure.set_dpi(150)
        FigureCanvasAgg(figure).print_png(FIGURE, metadata={"Software": None})


def words(row: pd.Series) -> str:
    """Return a slowdown with its interval."""
    return f"{row['slowdown']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


if __name__ == "__main__":
    main()
