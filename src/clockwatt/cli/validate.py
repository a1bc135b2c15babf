"""`clockwatt validate`: composed networks compared with those measured whole."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import (
    DEFAULT_CONFIG,
    Config,
    DatasetCatalogueOfCampaign,
    DatasetOfCampaign,
    OutputOfCampaign,
    PredictorsOfCampaign,
    in_results,
)
from clockwatt.schema import layout


@app.command(
    epilog=examples("clockwatt validate", "clockwatt validate --predictors-dir predictors --output-dir validation")
)
def validate(
    config_file: Config = DEFAULT_CONFIG,
    dataset_dir: DatasetOfCampaign = None,
    catalogue_dir: DatasetCatalogueOfCampaign = None,
    predictors_dir: PredictorsOfCampaign = None,
    output_dir: OutputOfCampaign = None,
) -> None:
    """Compare predicted networks with networks measured whole."""
    from clockwatt.predict.validate import validate as stage

    campaign = config.load(config_file)
    stage(
        campaign,
        in_results(dataset_dir, campaign, layout.DATASET),
        in_results(catalogue_dir, campaign, layout.DATASET_CATALOGUE),
        in_results(predictors_dir, campaign, layout.PREDICTORS),
        in_results(output_dir, campaign, layout.VALIDATION),
    )
