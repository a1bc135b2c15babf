"""`clockwatt catalogue`: the operations and calls of a campaign's networks."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import DEFAULT_CONFIG, Config, OutputOfCampaign, in_results
from clockwatt.schema import layout


@app.command(
    epilog=examples("clockwatt catalogue", "clockwatt catalogue --config config/config.yaml --output-dir catalogue")
)
def catalogue(config_file: Config = DEFAULT_CONFIG, output_dir: OutputOfCampaign = None) -> None:
    """Trace the campaign's networks and list their operations."""
    from clockwatt.operations.catalogue_process import write_catalogue_apart

    campaign = config.load(config_file)
    write_catalogue_apart(campaign, in_results(output_dir, campaign, layout.CATALOGUE))
