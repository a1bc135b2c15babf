"""The command line as an object that each command adds itself to."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from clockwatt import __version__
from clockwatt.cli.help_text import name_value, write_help
from clockwatt.errors import ClockwattError

_OTHER_NAMES = {
    "--training": "--pass training", "--inference": "--pass inference", "--dtype": "--precision",
    "--tf32": "--precision tf32", "--batch": "--input 32,3,224,224 (batch first)",
}  # fmt: skip
"""Options that people look for, to what the commands call them."""


class Command(TyperCommand):
    """A command that refuses an option given twice, of which the last would win, and names options of other names."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for parameter in self.params:
            name_value(parameter)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line.

        Raises
        ------
        ClockwattError
            Naming the option, and what to give.
        """
        options = {name for parameter in self.params for name in parameter.opts}
        for word in args if ctx.allow_interspersed_args else ():
            right = _OTHER_NAMES.get(word.partition("=")[0], "")
            if right.partition(" ")[0] in options and word.partition("=")[0] not in options:
                raise ClockwattError(f"{word}: no such option. Give {right}.")
        *_, given = self.make_parser(ctx).parse_args(args=list(args))
        for one in {*given}:
            if one.param_type_name == "option" and not one.multiple and given.count(one) > 1:
                raise ClockwattError(f"{one.opts[0]}: is given {given.count(one)} times. Give it once.")
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        write_help(self, ctx, formatter)


class App(typer.Typer):
    """A program, or a group of its commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=Group, **settings)

    def command(  # type: ignore[override]  # all other settings as they are
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator that adds a command."""
        return super().command(name, cls=Command, **settings)


app = App(
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
