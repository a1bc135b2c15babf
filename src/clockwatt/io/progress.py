"""Progress of long work: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LINE_PERIOD_S = 30.0

Advance = Callable[[str], None]
"""Called once for each finished piece of work, with its name."""


def say(message: str) -> None:
    """Print one line to standard error."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(task: str, total: int) -> Iterator[Advance]:
    """Show how far `total` pieces of work are; yields the function to call after each.

    On a terminal this is a bar. Elsewhere it is a line at the start, at most one every 30 s with the estimated time
    left, and one at the end, so that a log stays readable.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[name]}"),
        )
        with Progress(*columns, console=console) as bar:
            identity = bar.add_task(task, total=total, name="")
            yield lambda name: bar.update(identity, advance=1, name=name)
        return
    lines = _Lines(task, total)
    yield lines.advance
    lines.end()


class _Lines:
    def __init__(self, task: str, total: int) -> None:
        self._task, self._total, self._done = task, total, 0
        self._started = self._said = time.monotonic()
        say(f"{task}: {total} to do")

    def advance(self, name: str) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._said >= _LINE_PERIOD_S:
            self._said = now
            left = (now - self._started) / self._done * (self._total - self._done)
            say(f"{self._task}: {self._done} of {self._total}, about {left:.0f} s left, last {name}")

    def end(self) -> None:
        say(f"{self._task}: {self._done} of {self._total} done in {time.monotonic() - self._started:.1f} s")
