"""The function that each rank runs; importing it does not import PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

from clockwatt.studies.parallel.cases import Case, Result, Timing, result_file


def measure(rank: int, cases: list[Case], timing: Timing, folder: str) -> Result:
    """Measure cases one after another and write each as `result_file` says; return `window` in which the rank idled."""
    from clockwatt.studies.parallel.rank import Worker  # needs torch, which the caller does without

    worker = Worker()
    idle = worker.idle(timing.idle_s)
    for case in cases:
        (Path(folder) / f"{case.name}.begun").touch()
        result = worker.measure(case, timing) | {"idle_window": idle}
        part = Path(folder) / f"{case.name}-{rank}.part"
        part.write_text(json.dumps(result), encoding="utf-8")
        part.rename(result_file(Path(folder), case, rank))
    return {"window": idle}
