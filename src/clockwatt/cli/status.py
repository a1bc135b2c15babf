"""`clockwatt status`: how far a campaign is."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import DEFAULT_CONFIG, RESULTS, CatalogueDir, Config, StoreDir


@app.command()
def status(
    config_file: Config = DEFAULT_CONFIG,
    catalogue_dir: CatalogueDir = RESULTS / "catalogue",
    store_dir: StoreDir = RESULTS / "store",
) -> None:
    """Say how far a campaign is."""
    from clockwatt.workflow import status as stage

    stage.show_status(stage.campaign_status(config.load(config_file), catalogue_dir, store_dir))
