"""The help of a command: a line for each option, below the heading of its panel, and examples to copy."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import typer

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
