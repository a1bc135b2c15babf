"""Inputs that a job waits for in vain, since they were damaged and have been set aside.

Snakemake's jobs wait for missing inputs, a minute by default, and then end as if all were well; the main process waits
another minute for their outputs, and tries again. What is set aside comes back with the next run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clockwatt.errors import DamagedFileError
from clockwatt.io.files import DAMAGED

_FILES, _LIST = "--wait-for-files", "--wait-for-files-file"


def check_awaited(arguments: Sequence[str]) -> None:
    """Refuse what a job cannot get.

    Parameters
    ----------
    arguments
        The arguments of the command that runs the job: they name the files that it waits for, or a file that lists
        them.

    Raises
    ------
    DamagedFileError
        If one of them was set aside.
    """
    for path in map(Path, _awaited(arguments)):
        if not path.exists() and Path(f"{path}{DAMAGED}").exists():
            raise DamagedFileError(
                f"{path}: was damaged and is renamed {path.name}{DAMAGED}. The next run writes it again: "
                "run the workflow again when this one has ended."
            )


def _awaited(arguments: Sequence[str]) -> list[str]:
    found: list[str] = []
    option = ""
    for argument in arguments:
        if argument.startswith("--"):
            option = argument
        elif option == _FILES:
            found.append(argument)
        elif option == _LIST and Path(argument).is_file():
            found += Path(argument).read_text(encoding="utf-8").splitlines()
    return found
