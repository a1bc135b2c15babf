"""Processes that a test starts and leaves."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import psutil


@contextlib.contextmanager
def killed_at_end(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Kill a process that still runs when the test leaves it, which `with Popen(...)` would wait for without end."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def command_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process, empty once it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
