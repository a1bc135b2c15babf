"""The JSON that a benchmark writes: what was measured, with date, hardware, versions and command.

`results_pages.py` makes the pages of `docs/results/` from these files.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("clockwatt", "torch", "scikit-learn", "snakemake")


def target(
    name: str, value: float, *, at_most: float | None = None, at_least: float | None = None, unit: str = ""
) -> dict[str, Any]:
    """Return one target of a benchmark and whether `value` meets it."""
    low, high = at_least if at_least is not None else -float("inf"), at_most if at_most is not None else float("inf")
    bounds = [
        f"{sign} {bound:g} {unit}".strip() for sign, bound in (("≥", at_least), ("≤", at_most)) if bound is not None
    ]
    return {
        "name": name,
        "target": ", ".join(bounds),
        "value": f"{value:.3g} {unit}".strip(),
        "met": bool(low <= value <= high),
    }


def write(
    page: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    targets: Sequence[dict[str, Any]] = (),
    notes: Sequence[str] = (),
    file: Path | None = None,
    hardware: str | None = None,
) -> Path:
    """Write one table of results and return its file.

    Parameters
    ----------
    page
        Page of `docs/results/` that shows the table, without suffix.
    columns, rows
        The table; numbers as they should be read.
    targets
        From `target`.
    file
        Else `benchmarks/results/SCRIPT.json`, of the script that runs.
    hardware
        Else the GPUs that PyTorch sees, or the cores of this machine.
    """
    file = file or RESULTS / f"{Path(sys.argv[0]).stem}.json"
    content = {
        "page": page,
        "title": title,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": hardware or _hardware(),
        "versions": {"python": platform.python_version(), **_versions()},
        "command": shlex.join(["python", _script(), *sys.argv[1:]]),
        "transcribed": False,
        "columns": list(columns),
        "rows": [[str(value) if not isinstance(value, int | float) else value for value in row] for row in rows],
        "targets": list(targets),
        "notes": list(notes),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{file}: {len(rows)} rows; `python benchmarks/results_pages.py` writes the page")
    return file


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def _script() -> str:
    """Return the running script by its path in the checkout."""
    script, checkout = Path(sys.argv[0]).resolve(), RESULTS.resolve().parents[1]
    return str(script.relative_to(checkout) if script.is_relative_to(checkout) else script.name)


def _hardware() -> str:
    torch = sys.modules.get("torch")  # a benchmark without it uses no GPU
    if torch is not None and torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    return f"{len(os.sched_getaffinity(0))} cores, no GPU"
