"""The command line as an object that each command adds itself to."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="clockwatt", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="What every PyTorch operation costs, in seconds and joules, on every GPU of a cluster at every clock.",
)  # fmt: skip


class Answered(SystemExit):
    """All is said and every file closed: the process may end at once, without freeing a thousand modules first."""
