"""Find the files shipped with the project, in the installed package or a checkout."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_SHIPPED = _PACKAGE / "shipped"
"""Folder of `resources/` and the workflow in the wheel, see pyproject.toml."""


def resource(name: str) -> Path:
    """Return the path of a shipped file.

    Parameters
    ----------
    name
        Path relative to `resources/`, e.g. `gpus.yaml`.
    """
    installed = _SHIPPED / name
    return installed if installed.exists() else _PACKAGE.parents[1] / "resources" / name


def comes_with_clockwatt(path: Path) -> bool:
    """Return whether a file is one of those that come with the package."""
    real = Path(os.path.realpath(path))  # of a link to itself, too
    return any(real.is_relative_to(root) for root in (_SHIPPED, _PACKAGE.parents[1] / "resources"))


def reference_folder(name: str) -> Path:
    """Folder of reference data: shipped under its name, or the user's own where the name is a path with a slash."""
    return Path(name) if "/" in name else resource(f"reference/{name}")


def workflow_folder() -> Path:
    """Return the folder with `Snakefile`, `workflow/`, `envs/`, `profiles/` and `config/`."""
    return _SHIPPED if (_SHIPPED / "Snakefile").exists() else _PACKAGE.parents[1]
