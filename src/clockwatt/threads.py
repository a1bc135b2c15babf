"""How many threads a stage may use, and how a process that may have some starts another one."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path


def usable_threads() -> int:
    """As many as `OMP_NUM_THREADS` says, which BLAS, OpenMP and Arrow obey too; at most one for each usable core.

    Snakemake sets the variable to the threads of the rule. Without it, or where it is no number, all usable cores.
    """
    cores = len(os.sched_getaffinity(0))
    outermost = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    asked = int(outermost) if outermost.isdecimal() else 0
    return min(asked, cores) or cores


def start_method() -> ForkContext | SpawnContext:
    """A fork where this process is one thread, which saves half a second of imports; else a fresh process.

    A fork keeps of all threads one, so locks that others hold are never let go of. The command line loads no library
    that starts any before it starts a worker, nor CUDA.
    """
    try:
        threads = len(list(Path("/proc/self/task").iterdir()))
    except FileNotFoundError:
        threads = None
    return multiprocessing.get_context("fork") if threads == 1 else multiprocessing.get_context("spawn")
