"""The command line: one command per stage, each a call of one function.

Stages are imported where they are called: `clockwatt plan` must not wait for torch.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from clockwatt import config
from clockwatt.cli.options import (
    DEFAULT_CONFIG,
    RESULTS,
    CatalogueDir,
    ClockMethod,
    Config,
    DatasetDir,
    GpuLabel,
    MeasurementsDir,
    OneGpu,
    Output,
    OutputDir,
    Point,
    PredictorsDir,
    StoreDir,
    ValidationDir,
)
from clockwatt.cli.questions import Answered, predict, recommend
from clockwatt.config import OperatingPoint
from clockwatt.errors import ClockwattError

app = typer.Typer(
    name="clockwatt", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="What every PyTorch operation costs, in seconds and joules, on every GPU of a cluster at every clock.",
)  # fmt: skip
clocks_app = typer.Typer(no_args_is_help=True, help="Show, lock or reset the clocks of a GPU by hand.")
app.add_typer(clocks_app, name="clocks")


@app.command()
def doctor(
    config_file: Annotated[Path | None, typer.Option("--config", help="Check this campaign too.")] = None,
    write_config: Annotated[Path | None, typer.Option(help="Write a proposed `gpus:` block to this file.")] = None,
) -> None:
    """Say what this machine can do: GPUs, sensors, clock permission, Slurm, the campaign."""
    from clockwatt.workflow import doctor as stage

    raise typer.Exit(stage.run(config_file, write_config))


@app.command()
def plan(
    config_file: Config = DEFAULT_CONFIG,
    catalogue_dir: CatalogueDir = RESULTS / "catalogue",
    store_dir: StoreDir = RESULTS / "store",
) -> None:
    """Say what a campaign will cost: jobs, GPU-hours, files, bytes. Traces the networks first if that was not done."""
    from clockwatt.workflow import plan as stage

    campaign = config.load(config_file)
    with stage.catalogue_for(campaign, catalogue_dir) as catalogue:
        stage.show_plan(stage.make_plan(campaign, catalogue, store_dir))


@app.command()
def status(
    config_file: Config = DEFAULT_CONFIG,
    catalogue_dir: CatalogueDir = RESULTS / "catalogue",
    store_dir: StoreDir = RESULTS / "store",
) -> None:
    """Say how far a campaign is."""
    from clockwatt.workflow import status as stage

    stage.show_status(stage.campaign_status(config.load(config_file), catalogue_dir, store_dir))


@app.command()
def catalogue(config_file: Config, output_dir: OutputDir) -> None:
    """Trace every network of the campaign and write its operations and calls."""
    from clockwatt.operations.catalogue import write_catalogue

    write_catalogue(config.load(config_file), output_dir)


@app.command()
def calibrate(config_file: Config, gpu: GpuLabel, point: Point, catalogue_dir: CatalogueDir, output: Output) -> None:
    """Calibrate a GPU at an operating point: sensors, idle power, what networks add to their calls."""
    from clockwatt.measure.calibrate import run as stage

    campaign = config.load(config_file)
    stage.calibrate(campaign, label=gpu, point=_point(campaign, gpu, point), catalogue_dir=catalogue_dir, output=output)


@app.command()
def measure(
    config_file: Config,
    gpu: GpuLabel,
    point: Point,
    catalogue_dir: CatalogueDir,
    store_dir: StoreDir,
    output: Output,
    shard: Annotated[str, typer.Option(help="K/N: the K-th of N shards.")] = "1/1",
    calibration: Annotated[
        Path | None, typer.Option(help="What `clockwatt calibrate` wrote; without it errors are known less well.")
    ] = None,
    networks: Annotated[bool, typer.Option("--networks", help="Measure whole networks instead of operations.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Measure again what failed.")] = False,
    stop_after: Annotated[
        float | None, typer.Option(help="Seconds after which nothing more is begun; the same command goes on.")
    ] = None,
) -> None:
    """Measure a shard of the operations, or of the networks, on a GPU at an operating point."""
    from clockwatt.measure.calibrate.calibration import read
    from clockwatt.measure.session import measure_shard
    from clockwatt.measure.tasks import Shard

    campaign = config.load(config_file)
    measure_shard(
        campaign,
        label=gpu,
        point=_point(campaign, gpu, point),
        shard=Shard.parse(shard, networks=networks),
        catalogue_dir=catalogue_dir,
        store_dir=store_dir,
        output=output,
        calibration=read(calibration) if calibration else None,
        retry_failed=retry_failed,
        stop_after_s=stop_after,
    )


@app.command()
def dataset(
    config_file: Config, measurements_dir: MeasurementsDir, catalogue_dir: CatalogueDir, output_dir: OutputDir
) -> None:
    """Join all shards, check and flag the rows, count what is there and what is not."""
    from clockwatt.dataset.build import build_dataset

    build_dataset(config.load(config_file), measurements_dir, catalogue_dir, output_dir)


@app.command()
def fit(config_file: Config, dataset_dir: DatasetDir, catalogue_dir: CatalogueDir, output_dir: OutputDir) -> None:
    """Fit predictors of time, power and energy, with grouped cross-validation."""
    from clockwatt.predict.fit import fit as stage

    stage(config.load(config_file), dataset_dir, catalogue_dir, output_dir)


@app.command()
def validate(
    config_file: Config,
    dataset_dir: DatasetDir,
    catalogue_dir: CatalogueDir,
    predictors_dir: PredictorsDir,
    output_dir: OutputDir,
) -> None:
    """Compose networks from measured and from predicted operations and hold them against whole networks."""
    from clockwatt.predict.validate import validate as stage

    stage(config.load(config_file), dataset_dir, catalogue_dir, predictors_dir, output_dir)


@app.command()
def figures(
    config_file: Config,
    dataset_dir: DatasetDir,
    predictors_dir: PredictorsDir,
    validation_dir: ValidationDir,
    output_dir: OutputDir,
) -> None:
    """Draw the figures."""
    from clockwatt.figures.draw import draw_figures

    draw_figures(config.load(config_file), dataset_dir, predictors_dir, validation_dir, output_dir)


app.command()(predict)
app.command()(recommend)


@app.command(context_settings={"ignore_unknown_options": True})
def record(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")],
    output_dir: Annotated[Path, typer.Option("--output", help="Folder for the telemetry.")],
) -> None:
    """Log the sensors of the visible GPUs while a command of your own runs."""
    from clockwatt.gpu.registry import visible_gpus
    from clockwatt.telemetry.record import record as stage

    raise typer.Exit(stage(command, visible_gpus(), output_dir))


@clocks_app.command("show")
def clocks_show() -> None:
    """Show clocks, limits and what they could be set to."""
    from clockwatt.control import manual

    manual.show()


@clocks_app.command("lock")
def clocks_lock(
    point: Annotated[str, typer.Argument(help="Operating point: sm1440, sm1440-mem5001, pl150 …")],
    gpu: OneGpu = None,
    method: ClockMethod = "nvml",
) -> None:
    """Lock a GPU at an operating point: with nvml until it is reset, with helper or slurm until you press Ctrl-C."""
    from clockwatt.control import manual

    manual.lock(OperatingPoint.parse(point), gpu=gpu, control=_control(method, "nvml", "helper", "slurm"))


@clocks_app.command("reset")
def clocks_reset(gpu: OneGpu = None, method: ClockMethod = "nvml") -> None:
    """Give clocks and power limit back to the driver; with helper, put back what this job had set."""
    from clockwatt.control import manual

    manual.reset(gpu=gpu, control=_control(method, "nvml", "helper"))


def _point(campaign: config.CampaignConfig, label: str, text: str) -> OperatingPoint:
    point = OperatingPoint.parse(text)
    known = campaign.gpu(label).points
    if point not in known:
        raise ClockwattError(
            f"--point {text}: gpus.{label} has no such operating point; it has {', '.join(map(str, known))}. "
            f"Add it under gpus.{label}.clocks_mhz (or memory_clocks_mhz, power_limits_w)."
        )
    return point


def _control(method: str, *known: str) -> config.ControlConfig:
    if method not in known:
        raise ClockwattError(f"--method {method}: choose {', '.join(known)}.")
    return config.ControlConfig.model_validate({"method": method})


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Turn a signal into an exception, so that clocks are released and files closed on the way out."""
    raise SystemExit(128 + number)


def main() -> NoReturn:
    """Run the command line; a `ClockwattError` is shown as one message."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name="clockwatt")
    except Answered:
        os._exit(0)
    except ClockwattError as error:
        print(f"clockwatt: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("clockwatt: interrupted; what was finished is kept, run the same command to go on.", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
