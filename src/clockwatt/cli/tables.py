"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

WIDEST = 300
"""Columns of tables where a line has no width, as in the log of a job."""


def table_of(*headings: str, right: Collection[str] = (), between: int = 1) -> Table:
    """Return a table without frames, with numbers to the `right`, and so many blanks `between` columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, between, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=True, justify="right" if heading in right else "left")
    return table


def fits(table: Table) -> bool:
    """Return whether the terminal is as wide as a table."""
    from rich.console import Console

    console = Console()
    return console.measure(table, options=console.options.update(max_width=WIDEST)).maximum <= console.width


def print_whole(table: Table) -> None:
    """Print a table; a narrow terminal, and the log of a job, cut no numbers."""
    from rich.console import Console

    console = Console(highlight=False)
    if not fits(table):
        console.width = WIDEST
    console.print(table)
