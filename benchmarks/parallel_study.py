"""The study of several GPUs on two H100s: an epoch of the assignment, and its steps predicted.

    python benchmarks/parallel_study.py

Reads the tables of `clockwatt study-parallel-run` in `benchmarks/parallel/study-h100/`; of its spans, those of VGG-16
on two GPUs are kept, without names. Writes two tables, `docs/results/two-h100s-energy.png` and
`docs/results/two-h100s-timeline.png`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import result_file
from matplotlib.backends.backend_agg import FigureCanvasAgg

import clockwatt
from clockwatt.figures import style
from clockwatt.studies.parallel import figures, tables
from clockwatt.studies.parallel.names import PIPELINE, RANKS, SINGLE, SPANS, STEPS
from clockwatt.studies.parallel.strategies import SCHEDULE

FOLDER = Path(__file__).parent / "parallel" / "study-h100"
DOCS = Path(__file__).parents[1] / "docs" / "results"
HARDWARE = "2 × NVIDIA H100 80GB HBM3 of one host, 2026-11-26, PyTorch 2.11.0"
SETTINGS = ("network", "batch of all GPUs", "precision", "strategy")
IMAGES, MICROBATCHES, LINKS = 8192, 4, "h100-nvlink"
PUBLISHED = ["vgg16, published", "–", "–", "ddp", 2, "–", "–", "–", 1.89, "–", "19.8, 21.5", "–", 55.6, 99.3]


def main() -> None:
    """Write tables and figures."""
    steps, ranks, spans = (tables.read(FOLDER, name) for name in (STEPS, RANKS, SPANS))
    integrated = (ranks["energy_integrated_step_j"] / ranks["energy_counter_step_j"] - 1).abs().max()
    epochs = tables.epoch_table(steps, ranks, IMAGES).assign(
        deviation=steps["time_deviation_s"] / steps["time_s"], **steps[["items", "precision"]]
    )
    result_file.write(
        "several-gpus",
        "The assignment's experiment on two H100s",
        [
            *SETTINGS, "GPUs", "epoch, s", "deviation of a step, %", "epoch, kJ", "speed-up", "items per joule",
            "NCCL share of kernel time, %", "of it beside other kernels, %", "occupancy, %", "SM efficiency, %",
        ],
        [PUBLISHED, *(epoch_row(row) for _, row in epochs.iterrows())],
        notes=[
            f"An epoch is {IMAGES:,} items, in steps of median length: images, or sequences of 512 tokens in `gpt2`.",
            f"A pipeline splits the batch into {MICROBATCHES} microbatches.",
            f"SGD; the SM clock was {ranks['sm_clock_mhz'].min():.0f} MHz. Published values are of other GPUs.",
            "Two values are those of each GPU. NCCL kernels that wait for the other GPU count too.",
            "Occupancy and SM efficiency follow from launched blocks, as PyTorch's TensorBoard plugin computes them.",
            "Deviation of a step: between blocks of steps that take about 0.1 s.",
            f"Energy is that of the counter. Integrated power differs by at most {100 * integrated:.1f} %.",
            "![Energy of an item, and where it goes](two-h100s-energy.png)",
            "![Kernels and communications of VGG-16 on two GPUs](two-h100s-timeline.png)",
        ],
        file=result_file.RESULTS / "parallel_study.json",
        hardware=HARDWARE,
    )  # fmt: skip
    write_predicted(steps)
    with style.styled():
        for name, (figure, _) in (("energy", figures.energy(steps)), ("timeline", figures.timeline(steps, spans))):
            style.settle(figure)
            figure.set_dpi(150)
            FigureCanvasAgg(figure).print_png(DOCS / f"two-h100s-{name}.png", metadata={"Software": None})


def epoch_row(row: pd.Series) -> list[Any]:
    """Return a row of the table of epochs."""
    shares = (row[name] for name in ("overlap", "occupancy", "sm_efficiency"))
    return [
        *settings(row), row["gpus"], f"{row['epoch_s']:.2f}", f"{100 * row['deviation']:.1f}",
        f"{1e-3 * row['epoch_j']:.2f}", f"{row['speedup']:.2f}", f"{row['items_per_j']:.3g}",
        row["communication_shares"], *("–" if np.isnan(share) else f"{100 * share:.1f}" for share in shares),
    ]  # fmt: skip


def write_predicted(steps: pd.DataFrame) -> None:
    """Write predictions beside the measured steps."""
    rows, errors = [], []
    for _, measured in steps.iterrows():
        time_s, energy_j = predicted(measured)
        quantities = ((1e3 * measured["time_s"], 1e3 * time_s), (measured["energy_j"], energy_j))
        off = [100 * (stated / seen - 1) for seen, stated in quantities]
        cells = zip(quantities, off, strict=True)
        rows.append([
            *settings(measured),
            *(cell for (seen, stated), one in cells for cell in (f"{seen:.4g}", f"{stated:.4g}", f"{one:+.1f}")),
        ])  # fmt: skip
        errors.append(off if measured["strategy"] != SINGLE else [np.nan, np.nan])
    median_time, median_energy = np.nanmedian(np.abs(errors), axis=0)
    result_file.write(
        "several-gpus",
        "The assignment's experiment, measured and predicted, not blind",
        [*SETTINGS, *(f"{name}, {unit}" for quantity in ("ms", "J") for name, unit in (
            ("measured", quantity), ("predicted", quantity), ("off", "%")
        ))],
        rows,
        notes=[
            "One GPU: `clockwatt predict NETWORK --input SHAPE --gpu h100 --pass training --precision tf32`.",
            f"Two GPUs: the same with `--gpus-per-node 2 --strategy STRATEGY --links {LINKS}`.",
            "SHAPE: with the batch of one GPU; for pipelines, with that of all GPUs.",
            f"Medians of errors on two GPUs: time {median_time:.1f} %, energy {median_energy:.1f} %.",
            "Not blind: steps of these networks, measured the day before, are among those that set the costs of hosts.",
            "Time of the slowest GPU, energy of both. The host was not calibrated.",
        ],
        file=result_file.RESULTS / "parallel_study-predicted.json",
        hardware=HARDWARE,
    )  # fmt: skip


def predicted(measured: pd.Series) -> tuple[float, float]:
    """Return the predicted time and energy of a step."""
    shape = tuple(map(int, measured["input"].split("x")))
    several = measured["strategy"] != SINGLE
    pipeline = measured["strategy"] == PIPELINE
    batch = measured["items"] // (1 if pipeline else measured["gpus"])
    inputs: Any = (batch, *shape) if len(shape) > 1 else {"shape": (batch, *shape), "dtype": "int64", "below": 50257}
    question = {"training": True, "gpu": "h100"} | {name: measured[name] for name in ("precision", "optimizer")}
    if several:
        question |= {"gpus_per_node": int(measured["gpus"]), "strategy": measured["strategy"], "links": LINKS}
    if pipeline:
        question |= {"microbatches": MICROBATCHES, "schedule": SCHEDULE}
    answer = clockwatt.predict(measured["network"], inputs, **question)
    return answer.time_s, answer.energy_j


def settings(row: pd.Series) -> list[Any]:
    """Return the network's name without its module, the batch of all GPUs, the precision and the strategy."""
    return [row["network"].rpartition(":")[2], row["items"], row["precision"], row["strategy"]]


if __name__ == "__main__":
    main()
