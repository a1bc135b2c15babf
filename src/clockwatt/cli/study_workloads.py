"""`clockwatt study-workloads`: a dozen programs recorded by all sensors, and what goes with the GPU's temperature."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import Config, GpuLabel

study_workloads = typer.Typer(no_args_is_help=True, help="Record a dozen workloads on a GPU, and draw their sensors.")
app.add_typer(study_workloads, name="study-workloads")

GpuFolder = Annotated[Path, typer.Option("--output-dir", help="Folder of this GPU's records, tables and figures.")]


@study_workloads.command("run")
def study_workloads_run(config_file: Config, gpu: GpuLabel, output_dir: GpuFolder) -> None:
    """Record every workload of the campaign's study that is not recorded yet, one after another."""
    from clockwatt.studies.workloads.stage import run

    run(config.load(config_file), gpu, output_dir)


@study_workloads.command("figures")
def study_workloads_figures(config_file: Config, gpu: GpuLabel, output_dir: GpuFolder) -> None:
    """Draw what was recorded: sensors over time, which of them go together, the table of workloads."""
    from clockwatt.studies.workloads.stage import figures

    figures(config.load(config_file), gpu, output_dir)
