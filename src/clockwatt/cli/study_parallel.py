"""`clockwatt study-parallel-run` and `study-parallel`: training on one and several GPUs of a node, and drawn."""

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
        "clockwatt study-parallel-run --config config/config.yaml --gpu h100 --study-dir results/studies/parallel/h100"
    )
)
def study_parallel_run(config_file: Config, gpu: GpuLabel, study_dir: StudyDir) -> None:
    """Train networks on one and several GPUs, measured."""
    from clockwatt.studies.parallel.measure import measure_study

    measure_study(config.load(config_file), gpu, study_dir)
