"""Where the data that the project ships lies: in the installed package, or in `resources/` of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def resource(name: str) -> Path:
    """Path of a shipped file.

    Parameters
    ----------
    name
        Path relative to `resources/`, e.g. `gpus.yaml`.
    """
    installed = _PACKAGE / "shipped" / name  # where the wheel puts resources/, see pyproject.toml
    return installed if installed.exists() else _PACKAGE.parents[1] / "resources" / name
