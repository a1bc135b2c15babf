"""`clockwatt dataset`: all measurements in one table of costs."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import CatalogueDir, Config, MeasurementsDir, OutputDir


@app.command()
def dataset(
    config_file: Config, measurements_dir: MeasurementsDir, catalogue_dir: CatalogueDir, output_dir: OutputDir
) -> None:
    """Join all shards, check and flag the rows, count what is there and what is not."""
    from clockwatt.dataset.build import build_dataset

    build_dataset(config.load(config_file), measurements_dir, catalogue_dir, output_dir)
