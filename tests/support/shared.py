"""What takes long to make, made once for all worker processes of a test run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills; the first process that asks makes it, others wait. Nobody may change it.

    Parameters
    ----------
    name
        Of the folder, in the folder of the test run.
    make
        Fills the empty folder that it is given.
    """
    base = factory.getbasetemp()
    # each worker of pytest-xdist has a folder of its own in that of the run
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, complete = run / name, run / f"{name}.complete"
    with (run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
