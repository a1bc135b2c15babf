"""`clockwatt doctor`: what this machine can do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt.cli.app import app, examples


@app.command(
    epilog=examples(
        "clockwatt doctor",
        "clockwatt doctor --config config/config.yaml",
        "clockwatt doctor --write-config config/proposed.yaml",
    )
)
def doctor(
    config_file: Annotated[Path | None, typer.Option("--config", help="Check this campaign too.")] = None,
    write_config: Annotated[
        Path | None, typer.Option(help="Write a proposed campaign to this file, which must not exist.")
    ] = None,
) -> None:
    """Check GPUs, sensors, clock permission, Slurm, a campaign."""
    from clockwatt.workflow import doctor as stage

    raise typer.Exit(stage.run(config_file, write_config))
