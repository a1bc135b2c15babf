"""Folders of the user: for traces, for profiles of hosts, and for temporary files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from clockwatt.errors import OutputError

_NO_HOME = Path("/nonexistent")


def cache_folder() -> Path:
    """Return the folder of traced networks, which need not be traced again; it need not be there."""
    given = os.environ.get("CLOCKWATT_CACHE_DIR")
    return Path(given) if given else _of_user("XDG_CACHE_HOME", ".cache")


def data_folder() -> Path:
    """Return the folder for profiles of hosts that were measured without a campaign; it need not be there."""
    return _of_user("XDG_DATA_HOME", ".local/share")


def temporary_folder() -> str:
    """Return the folder for temporary files, which PyTorch needs; OutputError if there is none."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        raise OutputError("temporary files: no folder can be written.", "Set TMPDIR to one.") from None


def is_readable(path: Path) -> bool:
    """Return whether a file or folder is there and can be read, also below a folder that this user may not enter."""
    return os.access(path, os.R_OK)


def is_writable(folder: Path) -> bool:
    """Return whether a folder can be written, or made."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.access(path, os.F_OK))
    return os.access(there, os.W_OK | os.X_OK)


def _of_user(variable: str, below_home: str) -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # a user without an entry in passwd, as in some containers
        home = _NO_HOME
    return Path(os.environ.get(variable) or home / below_home) / "clockwatt"
