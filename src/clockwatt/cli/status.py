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
    """Say how far a campaign is. Traces the networks first where the catalogue is not of the campaign's."""
    from clockwatt.workflow import status as stage
    from clockwatt.workflow.plan import catalogue_for

    campaign = config.load(config_file)
    results = Path(campaign.results_dir)
    with catalogue_for(campaign, catalogue_dir or results / layout.CATALOGUE) as catalogue:
        stage.show_status(stage.campaign_status(campaign, catalogue, store_dir or results / layout.STORE))
