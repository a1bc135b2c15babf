"""`clockwatt validate`: composed networks compared with those measured whole."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import CatalogueDir, Config, DatasetDir, OutputDir, PredictorsDir


@app.command()
def validate(
    config_file: Config,
    dataset_dir: DatasetDir,
    catalogue_dir: CatalogueDir,
    predictors_dir: PredictorsDir,
    output_dir: OutputDir,
) -> None:
    """Compose networks from measured and from predicted operations and compare them with networks measured whole."""
    from clockwatt.predict.validate import validate as stage

    stage(config.load(config_file), dataset_dir, catalogue_dir, predictors_dir, output_dir)
