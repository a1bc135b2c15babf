"""`clockwatt calibrate`: sensors, idle power and overheads of a GPU at a point, or the profile of a host or links."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import RESULTS, Config, GpuLabel, Point, PredictorsDir, point_of
from clockwatt.errors import ClockwattError
from clockwatt.schema.links import ALL_REDUCE


@app.command(
    epilog=examples(
        "clockwatt calibrate --config config/config.yaml --gpu h200 --output h200.json",
        "clockwatt calibrate --config config/config.yaml --gpu h200 --host node7",
        "clockwatt calibrate --config config/config.yaml --gpu h200 --links links.json --gpus 2",
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
    links: Annotated[
        Path | None,
        typer.Option(help="Measure links between GPUs instead; file for `predict --links`."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=2, help="Number of GPUs for --links; else all visible ones.")] = None,
    predictors_dir: PredictorsDir = RESULTS / "predictors",
) -> None:
    """Calibrate a GPU's sensors and overheads, a host or links."""
    campaign = config.load(config_file)
    if links is not None:
        if any(given is not None for given in (catalogue_dir, output, host)):
            raise ClockwattError("--links needs no --catalogue-dir, --output or --host: it names its own file.")
        calibrate_links(campaign, gpu, links, gpus)
        return
    if gpus is not None:
        raise ClockwattError("--gpus is for --links: give --links FILE too.")
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
        raise ClockwattError("calibrate needs --catalogue-dir and --output, or --host NAME, or --links FILE.")
    from clockwatt.measure.calibrate import run as stage

    stage.calibrate(campaign, label=gpu, point=chosen, catalogue_dir=catalogue_dir, output=output)


def calibrate_links(campaign: config.CampaignConfig, label: str, file: Path, count: int | None) -> None:
    """Measure the links between a campaign's GPUs and write their profile."""
    from clockwatt.io.progress import say
    from clockwatt.measure.links.run import measure_links
    from clockwatt.predict.parallel.links import LinkProfile, fit_links

    found = measure_links(campaign, label=label, count=count)
    profile = LinkProfile(
        found.name, found.gpu_name, found.virtual, fit_links(found.rows), found.power_w, found.host_costs,
        found.seconds, rows=tuple(found.rows),
    )  # fmt: skip
    profile.write(file)
    (fit, *_) = [one for one in profile.fits if one.kind == ALL_REDUCE]
    say(
        f"{profile.name}, {fit.gpus} {profile.gpu_name}: all-reduce {1e6 * fit.latency_s:.0f} µs + bytes / "
        f"{1e-9 * fit.bytes_per_s:.3g} GB/s, measured in {profile.seconds:.0f} s; the profile is {file}"
    )
