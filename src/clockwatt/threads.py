"""How many threads a stage may use."""

from __future__ import annotations

import os


def usable_threads() -> int:
    """As many as `OMP_NUM_THREADS` says, which BLAS, OpenMP and Arrow obey too; at most one for each usable core.

    Snakemake sets the variable to the threads of the rule. Without it, or where it is no number, all usable cores.
    """
    cores = len(os.sched_getaffinity(0))
    outermost = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    asked = int(outermost) if outermost.isdecimal() else 0
    return min(asked, cores) or cores
