"""`clockwatt study-power-run` and `study-power`: training under power limits and clocks, recorded and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import Config, GpuLabel, StudyDir
from clockwatt.errors import ClockwattError


@app.command(
    epilog=examples(
        "clockwatt study-power-run --config config/config.yaml --gpu h200 --study-dir results/studies/power/h200"
    )
)
def study_power_run(config_file: Config, gpu: GpuLabel, study_dir: StudyDir) -> None:
    """Train the power study's networks at operating points."""
    from clockwatt.studies.power.measure import measure_study

    measure_study(config.load(config_file), gpu, study_dir)


@app.command(
    epilog=examples(
        "clockwatt study-power --study-dir results/studies/power/h200",
        "clockwatt study-power --study-dir v100 --runs shipped --gpu v100 --network resnet50 --network ncf-b4096",
    )
)
def study_power(
    study_dir: StudyDir,
    only: Annotated[str, typer.Option(help="Names of tables and figures, separated by commas; else all.")] = "",
    runs: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Runs measured by others, .csv or .parquet; `shipped`: those of Zeus."),
    ] = None,
    gpu: Annotated[str, typer.Option(help="Label in the table's column gpu; with --runs.")] = "",
    network: Annotated[
        list[str] | None, typer.Option(help="Network, or NAME-bBATCH, of the table; with --runs. Repeatable.")
    ] = None,
) -> None:
    """Fit and draw the results of the power study."""
    from clockwatt.studies.power import draw

    if runs is None and (gpu or network):
        raise ClockwattError("--gpu and --network choose rows of a table. Name the table with --runs.")
    if runs is not None and only:
        raise ClockwattError("--only chooses among results of a recorded study. Leave it out with --runs.")
    if runs is None:
        draw.draw_study(study_dir, [name.strip() for name in only.split(",") if name.strip()])
        return
    from clockwatt.studies.power.analysis import OBJECTIVES
    from clockwatt.studies.power.runs_by_others import read_runs

    for row in draw.draw_runs(read_runs(runs, gpu, network or []), study_dir).to_dict("records"):
        batch = f"batch {row['batch_size']:.0f}, " if row["batch_size"] == row["batch_size"] else ""
        print(
            f"{row['network']}, least {OBJECTIVES[row['objective']][0]}: {batch}"
            f"{row['power_limit_w']:.0f} W, {row['time_s']:.4g} s, {row['energy_j']:.4g} J"
        )
