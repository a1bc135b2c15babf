"""`clockwatt preflight`: what a training script would cost on a GPU that this machine lacks, before it runs there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from clockwatt.cli.app import app, examples
from clockwatt.cli.options import AsJson, Point, Verbose
from clockwatt.errors import ClockwattError, RequestError

_REQUEST = "CLOCKWATT_PREFLIGHT"


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "clockwatt preflight --gpu h200 -- python train.py --batch-size 64",
        "clockwatt preflight --gpu h100 --json -- python -m my_package.train",
    ),
)
def preflight(
    gpu: Annotated[str, typer.Option("--gpu", help="GPU: its label (h200) or product name (NVIDIA H200).")],
    command: Annotated[list[str] | None, typer.Argument(help="The script and its arguments, after --.")] = None,
    point: Point = "default",
    host: Annotated[
        str | None, typer.Option("--host", help="Host calibrated with `clockwatt calibrate --host`.")
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Predict a step of your training script."""
    from clockwatt.io.folders import temporary_folder
    from clockwatt.predict.api import load
    from clockwatt.predict.request import Request
    from clockwatt.telemetry import injected
    from clockwatt.telemetry.recording.program import check_program

    check_program(command or [])
    try:
        load().gpu_at(Request.of(gpus=(gpu,), points=(point,), host=host))
    except RequestError as error:
        raise ClockwattError(error.as_options()) from error
    assert command is not None
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        told = Path(folder, "reported")
        asked = {
            "gpu": gpu, "point": point, "host": host, "json": as_json, "verbose": verbose, "told": str(told),
        }  # fmt: skip
        hooks = [str(Path(injected.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        changed = {_REQUEST: json.dumps(asked), "PYTHONPATH": os.pathsep.join(hooks)}
        ended = subprocess.run(command, env={**os.environ, **changed}, check=False).returncode
        if not told.exists():
            program = Path(shutil.which(command[0]) or command[0])
            how = f"with status {ended}" if ended >= 0 else f"by {signal.Signals(-ended).name}"
            if ended == -signal.SIGKILL:
                fix = (
                    "Slurm or the kernel may have ended it for its main memory: ask for more, or use a smaller network."
                )
            elif ended and program.name.startswith("python") and program.parent != Path(sys.executable).parent:
                fix = f"It ran with {program}, without the packages of clockwatt. Give {sys.executable} instead."
            elif ended:
                fix = "See its message above. Correct the program or its arguments, or install its packages here."
            else:
                fix = "Give a script that trains, or infers, with a torch.nn.Module on a CUDA device."
            raise ClockwattError(f"{' '.join(command)}: ended {how} before a step on the GPU could be predicted. {fix}")
    sys.exit(ended if ended >= 0 else 128 - ended)
