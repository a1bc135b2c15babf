"""`clockwatt study-workloads-run` and `study-workloads`: eleven programs recorded by all sensors, and drawn."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import Config, GpuLabel, StudyDir


@app.command(
    epilog=examples(
        "clockwatt study-workloads-run --config config/config.yaml --gpu h200 --study-dir "
        "results/studies/workloads/h200"
    )
)
def study_workloads_run(config_file: Config, gpu: GpuLabel, study_dir: StudyDir) -> None:
    """Record the study's workloads on a GPU."""
    from clockwatt.studies.workloads.stage import run

    run(config.load(config_file), gpu, study_dir)


@app.command(
    epilog=examples(
        "clockwatt study-workloads --config config/config.yaml --gpu h200 --study-dir results/studies/workloads/h200"
    )
)
def study_workloads(config_file: Config, gpu: GpuLabel, study_dir: StudyDir) -> None:
    """Draw sensors and correlations of recorded workloads."""
    from clockwatt.studies.workloads.stage import figures

    figures(config.load(config_file), gpu, study_dir)
