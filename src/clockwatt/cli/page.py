"""`clockwatt page`: the page that answers from a campaign's results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import Config, DatasetDir, Output, PredictorsDir, ValidationDir


@app.command(
    epilog=examples(
        "clockwatt page --config config/config.yaml --dataset-dir results/dataset --predictors-dir "
        "results/predictors --validation-dir results/validation --output explore.html"
    )
)
def page(
    config_file: Config,
    dataset_dir: DatasetDir,
    predictors_dir: PredictorsDir,
    validation_dir: ValidationDir,
    output: Output,
    measurements_dir: Annotated[
        Path | None, typer.Option(help="Folder with the shards' files: how regularly sensors were read.")
    ] = None,
    study_figure: Annotated[
        list[Path] | None, typer.Option(help="Picture or table of a study; repeat it for several.")
    ] = None,
) -> None:
    """Write the page of results, one file for a browser."""
    from clockwatt.page.write import write_page

    write_page(
        config.load(config_file),
        dataset_dir,
        predictors_dir,
        validation_dir,
        output,
        study_figure or [],
        measurements_dir,
    )
