"""`clockwatt init`: a folder for a campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt.cli.app import app, examples


@app.command(epilog=examples("clockwatt init campaign"))
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; it must be empty or new.")],
) -> None:
    """Create the folder of a campaign: configuration, Snakefile."""
    from clockwatt.workflow.campaign_folder import create

    for path in create(folder):
        print(folder / path)
    print(
        f"\n{folder / 'config' / 'config.yaml'} configures the campaign: two virtual GPUs, until you edit it. "
        f"Then in {folder}:\n"
        "  snakemake                    on this machine\n"
        "  snakemake --profile slurm    one Slurm job for each GPU, clock and shard"
    )
