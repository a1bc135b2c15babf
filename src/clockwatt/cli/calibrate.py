"""`clockwatt calibrate`: sensors, idle power and overheads of a GPU at a point, or the profile of a host or links."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import RESULTS, Point, point_of
from clockwatt.errors import ClockwattError, OutputError
from clockwatt.schema.links import ALL_REDUCE


@app.command(
    epilog=examples(
        "clockwatt calibrate --host node7",
        "clockwatt calibrate --links links.json --gpus 2",
        "clockwatt calibrate --config config/config.yaml --gpu h200 --output h200.json",
    )
)
def calibrate(
    config_file: Annotated[
        Path | None, typer.Option("--config", help="Campaign; needed without --host and --links.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="Label or product name; else this machine's first GPU.")
    ] = None,
    point: Point = "default",
    catalogue_dir: Annotated[Path | None, typer.Option(help="Folder that `clockwatt catalogue` wrote.")] = None,
    output: Annotated[Path | None, typer.Option(help="File to write.")] = None,
    host: Annotated[str | None, typer.Option(help="Calibrate this host as HOST, for `predict --host HOST`.")] = None,
    links: Annotated[Path | None, typer.Option(help="Measure links into FILE, for `predict --links`.")] = None,
    gpus: Annotated[int | None, typer.Option(min=2, max=64, help="Number of GPUs for --links; else all.")] = None,
    predictors_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for --host; else results/predictors or ~/.local/share/clockwatt."),
    ] = None,
) -> None:
    """Calibrate a GPU, a host (--host) or links (--links)."""
    if links is not None and any(given is not None for given in (catalogue_dir, output, host, predictors_dir)):
        raise ClockwattError("--links FILE needs no other file or folder, and no --host. Leave them out.")
    if gpus is not None and links is None:
        raise ClockwattError("--gpus is for --links: give --links FILE too.")
    if host is not None and (catalogue_dir is not None or output is not None):
        raise ClockwattError("--host needs no --catalogue-dir and no --output. Leave them out.")
    if host is None and links is None and (catalogue_dir is None or output is None):
        raise ClockwattError("calibrate needs --host NAME, or --links FILE, or --catalogue-dir and --output.")
    if config_file is None:
        if host is None and links is None:
            raise ClockwattError("--output needs the campaign of the GPU. Give --config FILE and --gpu LABEL.")
        if point != "default":
            raise ClockwattError(f"--point {point} needs the campaign that has it. Give --config FILE too.")
        from clockwatt.measure.calibrate.host import campaign_here

        campaign, label = campaign_here(gpu)
    elif gpu is None:
        raise ClockwattError("--config FILE needs the label of a GPU in it. Give --gpu LABEL too.")
    else:
        campaign, label = config.load(config_file), gpu
    if links is not None:
        calibrate_links(campaign, label, links, gpus)
        return
    chosen = point_of(campaign, label, point)
    if host is not None:
        calibrate_host(
            campaign, label, chosen, host, predictors_dir or (RESULTS / "predictors" if config_file else None)
        )
        return
    from clockwatt.measure.calibrate import run as stage

    assert catalogue_dir is not None
    assert output is not None
    stage.calibrate(campaign, label=label, point=chosen, catalogue_dir=catalogue_dir, output=output)


def calibrate_host(
    campaign: config.CampaignConfig, label: str, point: config.OperatingPoint, host: str, folder: Path | None
) -> None:
    """Measure this host and write its profile beside the predictors in `folder`, else into the user's folder."""
    from clockwatt.io.folders import data_folder
    from clockwatt.io.progress import say
    from clockwatt.measure.calibrate.host import measure_host
    from clockwatt.predict.hosts import profile_of, profile_path

    path = profile_path(folder or data_folder(), host)  # reject what cannot be written before a minute is spent
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        fix = "Set XDG_DATA_HOME to a folder of yours." if folder is None else "Give another --predictors-dir."
        raise OutputError(f"{path}: cannot be written.", fix)
    found = measure_host(campaign, label=label, point=point)
    profile = profile_of(host, found.rows, found.operations, found.seconds)
    profile.write(path.parents[1])
    say(
        f"host {host}{' (VIRTUAL GPU)' * profile.virtual}: measured in {profile.seconds:.0f} s, written to {path}. "
        f"Use it: `clockwatt predict NETWORK --gpu GPU --host {host}`."
    )


def calibrate_links(campaign: config.CampaignConfig, label: str, file: Path, count: int | None) -> None:
    """Measure the links between a campaign's GPUs and write their profile."""
    from clockwatt.io.output import told_as_output
    from clockwatt.io.progress import say
    from clockwatt.measure.links.run import measure_links
    from clockwatt.predict.parallel.links import LinkProfile, fit_links

    with told_as_output(file):  # before a measurement whose result could not be kept
        file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir():
        raise ClockwattError(f"--links {file}: this is a folder. Name a file in it.")
    found = measure_links(campaign, label=label, count=count)
    profile = LinkProfile(
        found.name, found.gpu_name, found.virtual, fit_links(found.rows), found.power_w, found.host_costs,
        found.seconds, rows=tuple(found.rows),
    )  # fmt: skip
    profile.write(file)
    (fit, *_) = [one for one in profile.fits if one.kind == ALL_REDUCE]
    say(
        f"{file}: links of {fit.gpus} {profile.gpu_name} ({profile.name}), measured in {profile.seconds:.0f} s. "
        f"All-reduce: latency {1e6 * fit.latency_s:.0f} µs, bandwidth {1e-9 * fit.bytes_per_s:.3g} GB/s."
    )
