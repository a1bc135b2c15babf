"""`clockwatt figures`: the figures of a campaign."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import Config, DatasetDir, MeasurementsDir, OutputDir, PredictorsDir, ValidationDir


@app.command(
    epilog=examples(
        "clockwatt figures --config config/config.yaml --measurements-dir results/measurements "
        "--dataset-dir results/dataset --predictors-dir results/predictors --validation-dir "
        "results/validation --output-dir figures"
    )
)
def figures(
    config_file: Config,
    measurements_dir: MeasurementsDir,
    dataset_dir: DatasetDir,
    predictors_dir: PredictorsDir,
    validation_dir: ValidationDir,
    output_dir: OutputDir,
) -> None:
    """Draw the figures of a campaign."""
    from clockwatt.figures.draw import draw_figures

    draw_figures(config.load(config_file), measurements_dir, dataset_dir, predictors_dir, validation_dir, output_dir)
