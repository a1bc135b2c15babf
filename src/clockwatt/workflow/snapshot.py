"""Snapshot of a workflow run's inputs: its jobs read this, not the campaign file being edited.

A run on a cluster takes days. Its main process writes the campaign and what the code was below `{results_dir}/runs/`,
in a folder named by the digest of both, and says where in the environment, which every job inherits. An edit counts
from the next run on; jobs left over from an earlier run go on reading what theirs began with.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import clockwatt
from clockwatt import config
from clockwatt.config import CampaignConfig
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.io.output import told_as_output
from clockwatt.schema import records

VARIABLE = "CLOCKWATT_RUN"
"""Environment variable that holds the folder of the run's snapshot."""
_CAMPAIGN, _CODE = "config.yaml", "code.json"
_DIGITS = 16


@dataclass(frozen=True)
class Code:
    """Code version that, with the campaign, decides which results are up to date.

    Attributes
    ----------
    measurement_version, version
        `MEASUREMENT_VERSION` and the package's version.
    sources
        Digest of all sources of the package and of the workflow.
    stages
        Fingerprints of the stages, but for those that measure, by the name of their command.
    references
        Digests of the shipped measurements that the campaign names.
    """

    measurement_version: int
    version: str
    sources: str
    stages: Mapping[str, str]
    references: Mapping[str, str]

    @classmethod
    def present(cls, checkout: Path, stages: Mapping[str, str], references: Mapping[str, str]) -> Code:
        """Return the code of a checkout in its present state."""
        return cls(
            records.MEASUREMENT_VERSION,
            clockwatt.__version__,
            sources_digest(checkout),
            dict(stages),
            dict(references),
        )


@dataclass(frozen=True)
class Run:
    """A campaign and the code that a run began with."""

    campaign: CampaignConfig
    code: Code

    @property
    def folder(self) -> Path:
        """Folder of the snapshot, named by its digest."""
        return Path(self.campaign.results_dir) / "runs" / _digest(*self._texts())

    @property
    def config_file(self) -> Path:
        """The campaign as the run's jobs read it."""
        return self.folder / _CAMPAIGN

    def write(self) -> None:
        """Write it, read-only, where it is not there yet.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        for name, text in zip((_CAMPAIGN, _CODE), self._texts(), strict=True):
            path = self.folder / name
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                files.write_text(text, path)
                path.chmod(0o444)

    def _texts(self) -> tuple[str, str]:
        return config.dump(self.campaign), json.dumps(asdict(self.code), indent=1, sort_keys=True)


def read(folder: Path) -> Run:
    """Read the initial state of the run that keeps its snapshot in `folder`.

    Raises
    ------
    DataFileError
        If it is missing, or is not what the run wrote.
    """
    try:
        texts = [(folder / name).read_text(encoding="utf-8") for name in (_CAMPAIGN, _CODE)]
    except (OSError, UnicodeDecodeError) as error:
        raise DataFileError(
            f"{folder}: the snapshot of this run cannot be read ({error}). Start the run again."
        ) from error
    if _digest(*texts) != folder.name:
        raise DataFileError(f"{folder}: was changed after this run began. Remove the folder and start the run again.")
    return Run(config.load(folder / _CAMPAIGN), Code(**json.loads(texts[1])))


def check_sources(run: Run, checkout: Path) -> str | None:
    """Compare the code of a job with that which its run began with.

    Returns
    -------
    str or None
        What to say if the sources changed: it is recorded beside the snapshot, and the next run makes anew what needs
        it.

    Raises
    ------
    DataFileError
        If they would measure in another way: measurements of two versions in one run are not comparable.
    """
    if run.code.measurement_version != records.MEASUREMENT_VERSION:
        raise DataFileError(
            f"{checkout}: the sources now measure by version {records.MEASUREMENT_VERSION}, this run began with "
            f"version {run.code.measurement_version}. Stop the run and start it again, or put the sources back."
        )
    now = sources_digest(checkout)
    if now == run.code.sources:
        return None
    files.write_text(json.dumps({"sources": now, "version": clockwatt.__version__}), _changed_file(run, now))
    return f"{checkout}: the sources changed since this run began; recorded in {_changed_file(run, now)}"


def _changed_file(run: Run, sources: str) -> Path:
    return run.folder / f"sources-{sources}.json"


def changes(run: Run, config_files: Mapping[Path, bytes], checkout: Path) -> list[str]:
    """Return messages for the end of a run on changes made during it, which apply from the next run on.

    Parameters
    ----------
    run
        What the run began with.
    config_files
        The campaign's files as they were read at its start.
    checkout
        Where the sources lie.
    """
    said = [
        f"{path}: was edited while this run went on. The edit counts from the next run on."
        for path, content in config_files.items()
        if not path.is_file() or path.read_bytes() != content
    ]
    if sources_digest(checkout) != run.code.sources:
        said.append(
            f"{checkout}: the sources changed while this run went on. Run it once more: that makes anew what needs it."
        )
    return said


def sources_digest(checkout: Path) -> str:
    """Return the digest of all that a run of the workflow executes: the package, the rules and the Snakefile."""
    package = package_of(checkout)
    rules = [checkout / "Snakefile", *(checkout / "workflow").rglob("*.smk")]
    named = {str(path.relative_to(checkout)): path for path in rules}
    named |= {f"src/clockwatt/{path.relative_to(package)}": path for path in package.rglob("*.py")}
    named |= {f"src/clockwatt/{path.relative_to(package)}": path for path in package.rglob("assets/*")}
    digest = hashlib.sha256()
    for name, path in sorted(named.items()):
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:_DIGITS]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:_DIGITS]


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
