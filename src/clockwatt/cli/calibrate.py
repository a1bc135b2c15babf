"""`clockwatt calibrate`: sensors, idle power and overheads of a GPU at an operating point, or the profile of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import RESULTS, Config, GpuLabel, Point, PredictorsDir, point_of
from clockwatt.errors import ClockwattError


@app.command(
    epilog=examples(
        "clockwatt calibrate --config config/config.yaml --gpu h200 --output h200.json",
        "clockwatt calibrate --config config/config.yaml --gpu h200 --host node7",
    )
)
def calibrate(
    config_file: Config,
    gpu: GpuLabel,
    point: Point = "default",
    catalogue_dir: Annotated[Path | None, typer.Option(help="Folder that `clockwatt catalogue` wrote.")] = None,
    output: Annotated[Path | None, typer.Option(help="File to write.")] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Calibrate this host instead; name its profile for `predict --host`."),
    ] = None,
    predictors_dir: PredictorsDir = RESULTS / "predictors",
) -> None:
    """Calibrate sensors, idle power and overheads of a GPU, or a host."""
    campaign = config.load(config_file)
    chosen = point_of(campaign, gpu, point)
    if host is not None:
        if catalogue_dir is not None or output is not None:
            raise ClockwattError("--host needs no --catalogue-dir and no --output: its profile goes to predictors.")
        from clockwatt.io.progress import say
        from clockwatt.measure.calibrate.host import measure_host
        from clockwatt.predict.hosts import profile_of, profile_path

        profile_path(predictors_dir, host)  # reject an invalid file name before a minute is spent
        found = measure_host(campaign, label=gpu, point=chosen)
        profile = profile_of(host, found.rows, found.operations, found.calls, found.networks, found.seconds)
        say(f"host {host}: measured in {profile.seconds:.0f} s; its profile is {profile.write(predictors_dir)}")
        return
    if catalogue_dir is None or output is None:
        raise ClockwattError("calibrate needs --catalogue-dir and --output, or --host NAME to measure a host.")
    from clockwatt.measure.calibrate import run as stage

    stage.calibrate(campaign, label=gpu, point=chosen, catalogue_dir=catalogue_dir, output=output)
