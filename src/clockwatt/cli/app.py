"""The command line as an object that each command adds itself to, and the help of a command."""

from __future__ import annotations

import copy
import functools
import gc
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_name

from clockwatt import __version__
from clockwatt.errors import ClockwattError

_OTHER_NAMES = {
    "--training": "--pass training", "--inference": "--pass inference", "--dtype": "--precision",
    "--tf32": "--precision tf32", "--batch": "--input 32,3,224,224 (batch first)",
    "--compile": "--precision tf32-conv+compile",
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

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        """Run the program. Only the command that is called is made: to make all takes a third of a start."""
        words = arguments[0] if arguments else settings.get("args") or sys.argv[1:]
        called = [one for one in self.registered_commands if [_name_of(one)] == list(words[:1])]
        program = copy.copy(self)
        if called:
            program.registered_commands, program.registered_groups = called, []
        return typer.Typer.__call__(program, *arguments, **settings)


def _name_of(command: Any) -> str:
    return command.name or get_command_name(command.callback.__name__)


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


_REST = {"argument": "Arguments", "option": "Options"}
"""Headings of parameters without a panel."""

_COLUMNS = 80
_RANGE = re.compile(r"  \[[\d.]*(<=)?x[<>=\d.]+\]$|(?<=\d); [\d.]*(<=)?x[<>=\d.]+(?=\]$)")
"""Of a number, which an error states when one is outside."""


def write_help(command: Any, context: Any, formatter: Any) -> None:
    """Write the help of a command or of a group, without frames and types, which take lines and columns."""
    command.format_usage(context, formatter)
    formatter.write(f"\n{command.help}\n")
    panels: dict[str, list[tuple[str, str]]] = {}
    commands = getattr(command, "commands", {})
    for inner in commands.values():
        panels.setdefault(inner.rich_help_panel or "Commands", []).append((inner.name, inner.help.removesuffix(".")))
    for parameter in command.get_params(context):
        if (row := parameter.get_help_record(context)) is not None and not (commands and parameter.name == "help"):
            panel = getattr(parameter, "rich_help_panel", None) or _REST[parameter.param_type_name]
            name = parameter.metavar if parameter.param_type_name == "argument" else row[0]
            panels.setdefault(panel, []).append((name, _RANGE.sub("", row[1]).replace(".  [", " [").removesuffix(".")))
    width = max(len(name) for rows in panels.values() for name, _ in rows)
    for panel in sorted(panels, key=lambda heading: heading == _REST["option"]):
        formatter.write(f"\n{typer.style(panel, bold=True)}\n")
        for name, text in panels[panel]:
            formatter.write(
                f"  {name:<{width}}  "
                + f"\n{'':{width + 4}}".join(textwrap.wrap(text, _COLUMNS - 4 - width, break_on_hyphens=False))
                + "\n"
            )
    if command.epilog:
        title, *lines = command.epilog.split("\n\n")
        cut = textwrap.TextWrapper(_COLUMNS - 8, break_on_hyphens=False)
        shown = (line if len(line) <= _COLUMNS else " \\\n      ".join(cut.wrap(line)) for line in lines)
        formatter.write("\n".join(["", typer.style(title, bold=True), *shown, ""]))


def name_value(parameter: Any) -> None:
    """Name the value of an option in the help: N, FILE, DIR, or the last word of the option."""
    if parameter.param_type_name != "option":
        parameter.metavar = parameter.metavar or parameter.name.upper()
    elif parameter.metavar is None and not parameter.is_flag:
        kind = parameter.type_descriptor.annotation
        word = parameter.opts[0].rpartition("-")[2].upper()
        parameter.metavar = "N" if kind in (int, float) else "FILE" if kind is Path and word != "DIR" else word
