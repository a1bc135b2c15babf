"""`clockwatt status`: how far a campaign is."""

from __future__ import annotations

from pathlib import Path

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import DEFAULT_CONFIG, CatalogueOfCampaign, Config, StoreOfCampaign
from clockwatt.schema import layout


@app.command()
def status(
    config_file: Config = DEFAULT_CONFIG,
    catalogue_dir: CatalogueOfCampaign = None,
    store_dir: StoreOfCampaign = None,
) -> None:
    """Say how far a campaign is."""
    from clockwatt.workflow import status as stage

    campaign = config.load(config_file)
    results = Path(campaign.results_dir)
    catalogue_dir, store_dir = catalogue_dir or results / layout.CATALOGUE, store_dir or results / layout.STORE
    stage.show_status(stage.campaign_status(campaign, catalogue_dir, store_dir))
