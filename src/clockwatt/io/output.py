"""Errors of files that are written; apart from `files`, for processes that are not to load Arrow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from clockwatt.errors import OutputError


@contextlib.contextmanager
def told_as_output(path: Path) -> Iterator[None]:
    """Raise an error of the operating system on `path` as an `OutputError`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({os.strerror(error.errno) if error.errno else error}).",
            "Free some space or make the folder writable, then run the same command again.",
        ) from error
