"""`clockwatt study-power-run` and `study-power`: training under power limits and clocks, recorded and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import Config, GpuLabel

StudyDir = Annotated[Path, typer.Option(help="The study's folder of this GPU.")]


@app.command(
    epilog=examples(
        "clockwatt study-power-run --config config/config.yaml --gpu h200 --study-dir results/studies/power/h200"
    )
)
def study_power_run(config_file: Config, gpu: GpuLabel, study_dir: StudyDir) -> None:
    """Train the study's networks at each operating point; keep existing records."""
    from clockwatt.studies.power.measure import measure_study

    measure_study(config.load(config_file), gpu, study_dir)


@app.command(epilog=examples("clockwatt study-power --study-dir results/studies/power/h200"))
def study_power(
    study_dir: StudyDir,
    only: Annotated[str, typer.Option(help="Names of tables and figures, separated by commas; else all.")] = "",
) -> None:
    """Fit and draw the results of the power study."""
    from clockwatt.studies.power.draw import draw_study

    draw_study(study_dir, [name.strip() for name in only.split(",") if name.strip()])
