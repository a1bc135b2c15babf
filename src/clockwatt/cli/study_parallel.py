"""`clockwatt study-parallel-run` and `study-parallel`: training on one and several GPUs of a node, and drawn."""

from __future__ import annotations

from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import Config, GpuLabel, StudyDir


@app.command(
    epilog=examples(
        "clockwatt study-parallel-run --config config/config.yaml --gpu h100 --study-dir results/studies/parallel/h100"
    )
)
def study_parallel_run(config_file: Config, gpu: GpuLabel, study_dir: StudyDir) -> None:
    """Measure training on one and several GPUs."""
    from clockwatt.studies.parallel.measure import measure_study

    measure_study(config.load(config_file), gpu, study_dir)


@app.command(epilog=examples("clockwatt study-parallel --study-dir results/studies/parallel/h100"))
def study_parallel(
    study_dir: StudyDir,
    images: Annotated[int, typer.Option(min=1, help="Examples of the epoch in the table.")] = 8192,
) -> None:
    """Draw measured training on several GPUs."""
    from rich.table import Table

    from clockwatt.cli.tables import print_whole
    from clockwatt.studies.parallel.draw import draw_study

    shown = Table("network", "strategy", "GPUs", "epoch", "energy", "speed-up", "NCCL", "items/J", box=None)
    for row in draw_study(study_dir, images).to_dict("records"):
        speedup, shares = f"{row['speedup']:.2f}".replace("nan", "–"), f"{row['communication_shares']} %"
        if isinstance(row["published_shares"], str):
            speedup += f" (published {row['published_speedup']:.2f})"
            shares += f" ({row['published_shares']} %)"
        shown.add_row(
            row["network"].rpartition(":")[2], row["strategy"], f"{row['gpus']}", f"{row['epoch_s']:.4g} s",
            f"{row['epoch_j']:.4g} J", speedup, shares, f"{row['items_per_j']:.3g}",
        )  # fmt: skip
    print_whole(shown)
