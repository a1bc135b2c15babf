"""`clockwatt status`: how far a campaign is."""

from __future__ import annotations

import time
from pathlib import Path

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import DEFAULT_CONFIG, CatalogueOfCampaign, Config, StoreOfCampaign
from clockwatt.schema import layout


@app.command(epilog=examples("clockwatt status", "clockwatt status --config config/config.yaml"))
def status(
    config_file: Config = DEFAULT_CONFIG,
    catalogue_dir: CatalogueOfCampaign = None,
    store_dir: StoreOfCampaign = None,
) -> None:
    """Report the progress of a campaign."""
    from clockwatt.workflow import status as stage
    from clockwatt.workflow.plan import catalogue_for

    campaign = config.load(config_file)
    results = Path(campaign.results_dir)
    catalogue_dir, store_dir = catalogue_dir or results / layout.CATALOGUE, store_dir or results / layout.STORE
    if not (catalogue_dir / layout.NETWORKS_FILE).exists():
        print("Tracing the networks; this can take a minute.")
    with catalogue_for(campaign, catalogue_dir) as catalogue:
        points = stage.campaign_status(campaign, catalogue, store_dir)
    stage.show_status(points)
    stage.show_pace(stage.pace(campaign, points, store_dir, time.time()))
    stage.show_queue(campaign)
