"""`clockwatt record`: the sensors while a program of the user's own runs."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn, get_args

import typer

from clockwatt.cli.app import app, examples
from clockwatt.cli.options import AsJson
from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.config.control import ControlMethod
from clockwatt.errors import ClockwattError, OutputError

_METHODS = tuple(name for name in get_args(ControlMethod) if name != "command")  # which needs a campaign's command


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "clockwatt record --output record -- python train.py",
        "clockwatt record --output record --gpu 0 --point sm1440 --repeat 3 -- python train.py",
    ),
)
def record(
    output: Annotated[Path, typer.Option("--output", help="Folder of the record; with --name, of records.")],
    command: Annotated[list[str] | None, typer.Argument(help="The program and its arguments, after --.")] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", help="UUID, its beginning, index, or virtual:a30; repeat for several."),
    ] = None,
    all_gpus: Annotated[
        bool, typer.Option("--all-gpus", help="Record every GPU of the machine; else the visible ones.")
    ] = False,
    point: Annotated[str, typer.Option(help="Operating point to hold: default, sm1440, pl150 …")] = "default",
    method: Annotated[str, typer.Option(help="How clocks are set: nvml, helper …, see `clockwatt doctor`.")] = "nvml",
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs.")] = 1,
    rest_to: Annotated[
        str | None, typer.Option(help="Cool the GPUs down to this temperature before each run: 35C.")
    ] = None,
    rest_max_s: Annotated[float, typer.Option(min=0, help="Stop cooling down after this time, in s.")] = 600,
    idle_s: Annotated[float, typer.Option(min=0.3, help="Time to read idle power before each run, in s.")] = 3,
    name: Annotated[str | None, typer.Option(help="Name of the record, a folder in --output.")] = None,
    phases: Annotated[bool, typer.Option(help="Mark phases of Keras, Lightning and transformers.")] = True,
    wait_for_children: Annotated[
        bool, typer.Option("--wait-for-children", help="Record until all child processes have ended.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Show an existing record, complete or not; run nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Record time, energy and all sensors of your program."""
    from clockwatt.telemetry.recording.choose import chosen_gpus
    from clockwatt.telemetry.recording.program import check_program
    from clockwatt.telemetry.recording.session import Settings, UnwrittenRecordError
    from clockwatt.telemetry.recording.session import record as stage

    folder = output / _checked_name(name) if name is not None else output
    if show:
        _tell(folder, as_json=as_json)
        return
    check_program(command or [])
    if method not in _METHODS:
        raise ClockwattError(f"--method {method}: choose {', '.join(_METHODS)}.")
    settings = Settings(
        point=OperatingPoint.parse(point), control=ControlConfig.model_validate({"method": method}), repeat=repeat,
        name=name, rest_to_c=None if rest_to is None else _temperature_c(rest_to), rest_max_s=rest_max_s,
        idle_s=idle_s, hooks=phases, wait_for_children=wait_for_children,
    )  # fmt: skip
    with contextlib.ExitStack() as opened:
        gpus = chosen_gpus(gpu or [], every=all_gpus)
        for each in gpus:
            opened.callback(each.close)
        try:
            told = stage(command or [], gpus, folder, settings)
        except UnwrittenRecordError as error:
            _end(error.status, f"{error} {_free(folder)}")
    status = next((run.status for run in told.runs if run.status), 0)
    try:
        _tell(folder, as_json=as_json)
    except OutputError as error:
        what = error.what
    except ClockwattError as error:
        what = str(error)
    except OSError as error:
        what = f"its summary could not be computed: {error}."
    else:
        raise typer.Exit(status)
    _end(status, f"the program {told.runs[-1].ending}, but {what} {_free(folder)}")


def _free(folder: Path) -> str:
    shown = shlex.join(["clockwatt", "record", "--show", "--output", str(folder)])
    return f"Free some space or make the folder writable, then {shown} shows what was recorded."


def _end(status: int, message: str) -> NoReturn:
    """End with the program's own status, whatever became of its record."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(status)


def _tell(folder: Path, *, as_json: bool) -> None:
    """Summarise a record and draw it; on standard error, since the program has the standard output."""
    from clockwatt.cli.record_summary import print_record
    from clockwatt.figures.recording import draw_record
    from clockwatt.telemetry.recording.summary import summarise

    summary = summarise(folder)
    draw_record(folder)
    if as_json:
        print(json.dumps(summary, allow_nan=False), flush=True)
    else:
        sys.stdout.flush()
        print_record(summary, folder)


def _checked_name(name: str) -> str:
    if not name or "/" in name or name in (".", ".."):
        raise ClockwattError(f"--name {name!r}: it names a folder in --output. Give a word without slashes.")
    return name


def _temperature_c(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("C").removesuffix("°").strip())
    except ValueError:
        value = 0.0
    if not 0 < value <= 120:
        raise ClockwattError(f"--rest-to {text!r}: write a temperature such as 35C.")
    return value
