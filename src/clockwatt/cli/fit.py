"""`clockwatt fit`: predictors of every GPU of a dataset."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import (
    DEFAULT_CONFIG,
    Config,
    DatasetCatalogueOfCampaign,
    DatasetOfCampaign,
    OutputOfCampaign,
    in_results,
)
from clockwatt.schema import layout


@app.command(
    epilog=examples(
        "clockwatt fit", "clockwatt fit --config config/config.yaml --dataset-dir dataset --output-dir predictors"
    )
)
def fit(
    config_file: Config = DEFAULT_CONFIG,
    dataset_dir: DatasetOfCampaign = None,
    catalogue_dir: DatasetCatalogueOfCampaign = None,
    output_dir: OutputOfCampaign = None,
) -> None:
    """Fit and evaluate predictors of time, power and energy."""
    from clockwatt.predict.fit import fit as stage

    campaign = config.load(config_file)
    stage(
        campaign,
        in_results(dataset_dir, campaign, layout.DATASET),
        in_results(catalogue_dir, campaign, layout.DATASET_CATALOGUE),
        in_results(output_dir, campaign, layout.PREDICTORS),
    )
