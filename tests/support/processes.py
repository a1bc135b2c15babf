"""Processes that a test starts and leaves."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def killed_at_end(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Kill a process that still runs when the test leaves it, which `with Popen(...)` would wait for without end."""
    with process:
        try:
            yield process
        finally:
            process.kill()
