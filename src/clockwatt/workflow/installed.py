"""The workflow of an installed package: its rules and its sources lie in the package itself, not in a checkout."""

from __future__ import annotations

import secrets
from pathlib import Path

import clockwatt
from clockwatt.io.output import told_as_output

_LINKS = Path(".snakemake") / "clockwatt"


def package_of(folder: Path) -> Path:
    """Return the package whose workflow lies in `folder`: that of a checkout, or the installed one."""
    sources = folder / "src" / "clockwatt"
    return sources if sources.is_dir() else Path(clockwatt.__file__).parent


def importable(folder: Path) -> Path:
    """Return the folder in which a Python finds the package of a workflow, and nothing else.

    Jobs may run the Python of a conda environment, which must not find what is installed beside the package. So an
    installed one is found through a link in the folder of the campaign.

    Parameters
    ----------
    folder
        Where the workflow lies.

    Raises
    ------
    OutputError
        If the link cannot be made.
    """
    package = package_of(folder)
    if package.parent.parent == folder:
        return package.parent
    link = _LINKS / package.name
    if not link.is_symlink() or link.readlink() != package:
        with told_as_output(link):
            _LINKS.mkdir(parents=True, exist_ok=True)
            aside = _LINKS / f".{package.name}.{secrets.token_hex(8)}"
            aside.symlink_to(package)
            aside.replace(link)  # jobs that start together find the old one or the new one
    return _LINKS.absolute()
