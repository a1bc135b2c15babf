"""The command line as an object that each command adds itself to."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from clockwatt import __version__

app = typer.Typer(
    name="clockwatt", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Measure and predict the time, energy and memory of PyTorch programs on GPUs.",
)  # fmt: skip


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"clockwatt {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True, show_default=False
        ),
    ] = False,
) -> None:
    """Options of the program itself."""


def examples(*lines: str) -> str:
    """Return the end of a command's help with command lines to copy."""
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])


class Answered(SystemExit):
    """All is said and every file closed: the process may end at once, without freeing a thousand modules first."""


def answers_once(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command end with `Answered`, and keep the collector of reference cycles from it.

    Most of its time goes into importing torch, of which a tenth is the collector's, looking through modules again and
    again that stay until the end; freeing them there takes another tenth.
    """

    @functools.wraps(command)
    def run(**options: Any) -> None:
        gc.disable()
        try:
            command(**options)
        finally:
            gc.enable()
        sys.stdout.flush()
        raise Answered(0)

    return run
