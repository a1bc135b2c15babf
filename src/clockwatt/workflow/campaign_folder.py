"""A campaign's folder: its config, profiles and a Snakefile that takes the rules from the package."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from clockwatt.errors import ClockwattError
from clockwatt.io.output import told_as_output
from clockwatt.io.resources import workflow_folder

SNAKEFILE = '''"""The campaign of config/config.yaml, with the rules of the installed clockwatt."""

from clockwatt.io.resources import workflow_folder


include: workflow_folder() / "Snakefile"


localrules:
    campaign,


rule campaign:
    """Make all results of the campaign. Other targets: all, measure_all, fit_all."""
    default_target: True
    input:
        rules.all.input,
'''

_COPIED = ("config", "profiles")
_SLURM_PROFILE = "slurm"


def create(target: Path) -> list[Path]:
    """Write a campaign's folder, whole or not at all.

    Parameters
    ----------
    target
        Folder that is empty or not there yet.

    Returns
    -------
    list of Path
        What was written into it, relative to it.

    Raises
    ------
    ClockwattError
        If something is there already; it is left as it is.
    OutputError
        If the folder cannot be written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ClockwattError(f"{target}: is not a new or empty folder. Give a new one.")
    made = not target.exists()
    with told_as_output(target):
        target.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(prefix=".init-", dir=target) as aside:
                _fill(Path(aside))
                written = sorted(path.relative_to(aside) for path in Path(aside).rglob("*"))
                for path in sorted(Path(aside).iterdir()):
                    path.rename(target / path.name)
        except OSError:
            if made:
                shutil.rmtree(target, ignore_errors=True)
            raise
    return [path for path in written if not (target / path).is_dir() or (target / path).is_symlink()]


def _fill(folder: Path) -> None:
    (folder / "Snakefile").write_text(SNAKEFILE, encoding="utf-8")
    for name in _COPIED:
        shutil.copytree(workflow_folder() / name, folder / name)
    # so that `snakemake --profile slurm` finds it, which looks for a folder of that name
    (folder / _SLURM_PROFILE).symlink_to(Path("profiles") / _SLURM_PROFILE)
