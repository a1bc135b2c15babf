"""`clockwatt fit`: predictors of every GPU of a dataset."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import CatalogueDir, Config, DatasetDir, OutputDir


@app.command()
def fit(config_file: Config, dataset_dir: DatasetDir, catalogue_dir: CatalogueDir, output_dir: OutputDir) -> None:
    """Fit predictors of time, power and energy, with grouped cross-validation."""
    from clockwatt.predict.fit import fit as stage

    stage(config.load(config_file), dataset_dir, catalogue_dir, output_dir)
