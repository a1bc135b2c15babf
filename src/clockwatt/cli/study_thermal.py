"""`clockwatt study-thermal`: temperature models of what other studies recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import Config, GpuLabel


@app.command(epilog=examples("clockwatt study-thermal --config config/config.yaml --gpu h200 --results-dir results"))
def study_thermal(
    config_file: Config, gpu: GpuLabel, results_dir: Annotated[Path, typer.Option(help="Folder of the results.")]
) -> None:
    """Fit temperature models to the records of other studies."""
    from clockwatt.cli.thermal import show_fit
    from clockwatt.studies.thermal.stage import run

    show_fit(run(config.load(config_file), gpu, results_dir))
