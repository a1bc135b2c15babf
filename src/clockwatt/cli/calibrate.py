"""`clockwatt calibrate`: sensors, idle power and overheads of a GPU at an operating point."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import CatalogueDir, Config, GpuLabel, Output, Point, point_of


@app.command()
def calibrate(config_file: Config, gpu: GpuLabel, point: Point, catalogue_dir: CatalogueDir, output: Output) -> None:
    """Calibrate a GPU at an operating point: sensors, idle power, what networks add to their calls."""
    from clockwatt.measure.calibrate import run as stage

    campaign = config.load(config_file)
    stage.calibrate(
        campaign, label=gpu, point=point_of(campaign, gpu, point), catalogue_dir=catalogue_dir, output=output
    )
