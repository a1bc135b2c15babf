"""`clockwatt measure`: a shard of operations or networks on a GPU at an operating point."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import CatalogueDir, Config, GpuLabel, Output, Point, StoreDir, point_of
from clockwatt.schema import layout


@app.command(
    epilog=examples(
        "clockwatt measure --config config/config.yaml --gpu h200 --point sm1440 --catalogue-dir "
        "results/catalogue --store-dir results/store --output h200.parquet --shard 1/4"
    )
)
def measure(
    config_file: Config,
    gpu: GpuLabel,
    point: Point,
    catalogue_dir: CatalogueDir,
    store_dir: StoreDir,
    output: Output,
    shard: Annotated[str, typer.Option(help="Part of the operations to measure: K/N, the K-th of N.")] = "1/1",
    calibration: Annotated[
        Path | None,
        typer.Option(help="File that `clockwatt calibrate` wrote; without it, standard errors are less accurate."),
    ] = None,
    networks: Annotated[bool, typer.Option("--networks", help="Measure whole networks instead of operations.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Measure again what failed.")] = False,
    stop_after: Annotated[
        float | None, typer.Option(help="Start no measurement after this many seconds; rerun to continue.")
    ] = None,
) -> None:
    """Measure operations or networks at an operating point."""
    from clockwatt.measure import worker

    name = f"networks-{shard}" if networks else shard
    worker.run(
        partial(
            _measure, config_file, gpu, point, catalogue_dir, store_dir, output, shard, calibration,
            networks=networks, retry_failed=retry_failed, stop_after=stop_after,
        ),
        layout.shard_file(store_dir, gpu, point, name, "under-way"),
    )  # fmt: skip


def _measure(
    config_file: Path,
    gpu: str,
    point: str,
    catalogue_dir: Path,
    store_dir: Path,
    output: Path,
    shard: str,
    calibration: Path | None,
    *,
    networks: bool,
    retry_failed: bool,
    stop_after: float | None,
) -> None:
    """What a worker does."""
    from clockwatt.io.files import damaged_set_aside
    from clockwatt.measure.calibrate.calibration import read
    from clockwatt.measure.session import measure_shard
    from clockwatt.measure.tasks import Shard

    campaign = config.load(config_file)
    with damaged_set_aside():
        measure_shard(
            campaign,
            label=gpu,
            point=point_of(campaign, gpu, point),
            shard=Shard.parse(shard, networks=networks),
            catalogue_dir=catalogue_dir,
            store_dir=store_dir,
            output=output,
            calibration=read(calibration) if calibration else None,
            retry_failed=retry_failed,
            stop_after_s=stop_after,
        )
