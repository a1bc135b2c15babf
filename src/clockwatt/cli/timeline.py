"""`clockwatt timeline`: the sensors of a record below the kernels of a profiler's trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from clockwatt.cli.app import app, examples
from clockwatt.cli.options import AsJson


@app.command(
    epilog=examples(
        "clockwatt timeline record trace.json --output timeline.json",
        "clockwatt timeline record trace.json.gz --output timeline.json.gz --json",
    )
)
def timeline(
    record: Annotated[Path, typer.Argument(help="Folder that clockwatt record wrote.")],
    trace: Annotated[Path, typer.Argument(help="Trace of torch.profiler, from the same run.")],
    output: Annotated[Path, typer.Option(help="File to write the trace with sensors to.")],
    as_json: AsJson = False,
) -> None:
    """Show the sensors of a record in a profiler's trace."""
    from rich.console import Console

    from clockwatt.cli.record_summary import phases_table
    from clockwatt.telemetry.recording import kineto

    found = kineto.timeline(record, trace)
    kineto.write_trace(found.trace, output)
    if as_json:
        answer = {"ranges": found.ranges, "short": found.short, "trace": str(output)}
        print(json.dumps(found.summary | answer, allow_nan=False))
        return
    console = Console(highlight=False)
    if found.summary["virtual"]:
        console.print("[red]VIRTUAL GPU: nothing was measured on real hardware.[/red]")
    if found.ranges:
        console.print(phases_table(found.summary))
    else:
        print("The trace has no range of record_function, so there is no table of phases.")
    if found.short:
        print(
            f"{found.short} of {found.ranges} ranges are shorter than two readings of power. Their energy is a share "
            "of what was read around them: use sums over many."
        )
    print(f"Trace: {output}. Open it in https://ui.perfetto.dev or chrome://tracing.")
