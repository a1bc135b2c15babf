"""`clockwatt record`: the sensors while a program of the user's own runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt.cli.app import app


@app.command(context_settings={"ignore_unknown_options": True})
def record(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")],
    output_dir: Annotated[Path, typer.Option("--output", help="Folder for the telemetry.")],
) -> None:
    """Log the sensors of the visible GPUs while a command of your own runs."""
    from clockwatt.gpu.registry import visible_gpus
    from clockwatt.telemetry.record import record as stage

    raise typer.Exit(stage(command, visible_gpus(), output_dir))
