"""`clockwatt dataset`: all measurements in one table of costs."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import (
    DEFAULT_CONFIG,
    CatalogueOfCampaign,
    Config,
    MeasurementsOfCampaign,
    OutputOfCampaign,
    in_results,
)
from clockwatt.schema import layout


@app.command(epilog=examples("clockwatt dataset", "clockwatt dataset --config config/config.yaml --output-dir dataset"))
def dataset(
    config_file: Config = DEFAULT_CONFIG,
    measurements_dir: MeasurementsOfCampaign = None,
    catalogue_dir: CatalogueOfCampaign = None,
    output_dir: OutputOfCampaign = None,
) -> None:
    """Join measurements, flag rows and count missing ones."""
    from clockwatt.dataset.build import build_dataset

    campaign = config.load(config_file)
    build_dataset(
        campaign,
        in_results(measurements_dir, campaign, layout.MEASUREMENTS),
        in_results(catalogue_dir, campaign, layout.CATALOGUE),
        in_results(output_dir, campaign, layout.DATASET),
    )
