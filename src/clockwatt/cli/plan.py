"""`clockwatt plan`: what a campaign will cost, before anything is submitted."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import DEFAULT_CONFIG, RESULTS, CatalogueDir, Config, StoreDir


@app.command()
def plan(
    config_file: Config = DEFAULT_CONFIG,
    catalogue_dir: CatalogueDir = RESULTS / "catalogue",
    store_dir: StoreDir = RESULTS / "store",
) -> None:
    """Say what a campaign will cost: jobs, GPU-hours, files, bytes. Traces the networks first if that was not done."""
    from clockwatt.workflow import plan as stage

    campaign = config.load(config_file)
    with stage.catalogue_for(campaign, catalogue_dir) as catalogue:
        stage.show_plan(stage.make_plan(campaign, catalogue, store_dir))
