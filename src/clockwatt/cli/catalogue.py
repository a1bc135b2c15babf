"""`clockwatt catalogue`: the operations and calls of a campaign's networks."""

from __future__ import annotations

from clockwatt import config
from clockwatt.cli.app import app
from clockwatt.cli.options import Config, OutputDir


@app.command()
def catalogue(config_file: Config, output_dir: OutputDir) -> None:
    """Trace every network of the campaign and write its operations and calls."""
    from clockwatt.operations.catalogue import write_catalogue

    write_catalogue(config.load(config_file), output_dir)
