"""Predictors that the project ships, fitted to the measurements in `resources/reference/`: answers before any campaign.

`benchmarks/pack_predictors.py` makes them. Beside them lie what they were compared with (`validation/`) and, with the
measurements, the catalogue of the networks that were measured.
"""

from __future__ import annotations

from pathlib import Path

from clockwatt.io.resources import resource
from clockwatt.schema import layout

_NETWORKS_OF = "h200"
"""Reference data whose catalogue has networks."""


def shipped_predictors() -> Path:
    """Folder of the predictors."""
    return resource(str(layout.PREDICTORS))


def shipped_validation() -> Path:
    """Folder of what choices and compositions by them were compared with."""
    return resource(str(layout.VALIDATION))


def shipped_catalogue() -> Path:
    """Folder of the catalogue of networks that were measured on the shipped GPUs."""
    return resource(f"reference/{_NETWORKS_OF}") / layout.CATALOGUE


def is_shipped(folder: Path) -> bool:
    """Whether predictors in `folder` are shipped ones, and not a campaign's."""
    return folder.resolve().is_relative_to(shipped_predictors().resolve())
