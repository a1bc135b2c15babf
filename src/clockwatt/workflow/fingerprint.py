"""Digests of the code that each stage runs, so that its results are made anew when the code changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from clockwatt.io.resources import resource

_ROOT = Path(__file__).parents[1]

EVERY_STAGE = ("__init__.py", "errors.py", "threads.py", "schema", "io", "config")
_OPERATIONS = ("operations", "gpu")
_PREDICTIONS = ("predict", "dataset", *_OPERATIONS)
_STUDY = ("studies/__init__.py", "figures", "telemetry", "signals.py", "gpu", "control")
PACKAGES: dict[str, tuple[str, ...]] = {
    "catalogue": _OPERATIONS,
    "dataset": ("dataset",),
    "fit": (*_PREDICTIONS, "measure"),
    "validate": (*_PREDICTIONS, "measure"),
    "figures": (*_PREDICTIONS, "measure", "signals.py", "figures"),
    "page": (*_PREDICTIONS, "figures", "page"),
    "study_power": (
        *_STUDY,
        "studies/options.py",
        "studies/power",
        "measure",
        "operations",
        "dataset/__init__.py",
        "dataset/table.py",
    ),
    "study_workloads": (*_STUDY, "studies/workloads", "studies/relations"),
    "study_parallel": (
        "studies/__init__.py",
        "studies/parallel",
        "figures",
        "signals.py",
        *_OPERATIONS,
        "measure",
        "telemetry",
    ),
    "study_thermal": ("studies/__init__.py", "studies/thermal", "figures", "telemetry", "signals.py", *_PREDICTIONS),
    "study_survey": (
        "studies/__init__.py",
        "studies/survey",
        "figures",
        "dataset",
        *_OPERATIONS,
        "measure",
        "telemetry",
        "control",
    ),
}
"""Command of a stage to the folders and files of the package that it imports from, beside `EVERY_STAGE`."""
_RESOURCES = ("gpus.yaml",)
"""Shipped files that modules of these folders read."""


def fingerprints(root: Path = _ROOT) -> dict[str, str]:
    """Return 16 hexadecimal digits for each command in `PACKAGES`: the digest of the files that it may run.

    Parameters
    ----------
    root
        Folder of the package `clockwatt`.
    """
    digests = {
        f"{path.relative_to(root)}": hashlib.sha256(path.read_bytes()).digest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.parent.name != "__pycache__"
    }
    shipped = b"".join(hashlib.sha256(resource(name).read_bytes()).digest() for name in _RESOURCES)
    return {
        command: hashlib.sha256(
            shipped
            + b"".join(
                f"{path}\0".encode() + digest
                for path, digest in digests.items()
                if f"{path}/".startswith(tuple(f"{part}/" for part in (*EVERY_STAGE, *parts)))
            )
        ).hexdigest()[:16]
        for command, parts in PACKAGES.items()
    }
