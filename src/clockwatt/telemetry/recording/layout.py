"""Files and contents of a record.

```
record.json               what was recorded and how each run ended; written before the program starts
summary.json, figure.png  made from all the rest, anew by `clockwatt record --show`
run-1/telemetry/UUID/     segments of telemetry, one folder a GPU, and `host`
run-1/marks/              what the program marked, a file a process
run-1/phases.parquet      its phases
```
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clockwatt.errors import DataFileError
from clockwatt.io.files import write_text

RECORD, SUMMARY, FIGURE = "record.json", "summary.json", "figure.png"
HOST = "host"
FORMAT = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RecordedGpu(_Model):
    """A GPU that is recorded."""

    uuid: str
    name: str
    virtual: bool
    computed_on: bool | None  # whether the program may compute on it, or it is a neighbour; null: unknown


class Rings(_Model):
    """Statistics of draining a ring buffer."""

    samples: int
    duplicates: int
    lost: int
    period_s: float | None
    length_s: float | None
    polled_every_s: float


class Logged(_Model):
    """Statistics of the logger of a GPU or of the host."""

    dropped_ticks: int
    failed_readings: int
    rings: dict[str, Rings] = Field(default_factory=dict)


class Run(_Model):
    """One run of the program. Times are those of the recorder's clocks; a run that has no end was cut off."""

    number: int
    idle_start_ns: int | None = None
    start_us: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    status: int | None = None  # as a shell reports it: 128 and the signal, if one ended it
    ending: str | None = None
    left_running: list[str] = Field(default_factory=list)
    processor_s: float | None = None
    memory_max_bytes: int | None = None  # of the largest of its processes
    contexts_before: dict[str, int | None] = Field(default_factory=dict)  # processes that computed on each GPU
    logged: dict[str, Logged] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


class Record(_Model):
    """A program that was run, once or repeatedly."""

    format: int = FORMAT
    name: str
    command: list[str]
    folder: str
    host: str
    point: str
    repeat: int
    recorder: int  # process that writes this
    complete: bool = False
    gpus: list[RecordedGpu]
    versions: dict[str, str]
    runs: list[Run] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write it into its folder.

        Raises
        ------
        OutputError
            If that cannot be written.
        """
        write_text(self.model_dump_json(indent=1) + "\n", folder / RECORD)


def read_record(folder: Path) -> Record:
    """Return the record in a folder.

    Raises
    ------
    DataFileError
        If there is none, or it is damaged.
    """
    path = folder / RECORD
    try:
        return Record.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise DataFileError(
            f"{path}: no such file; {folder} holds no record. Give a folder that `clockwatt record` wrote."
        ) from None
    except OSError as error:
        raise DataFileError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise DataFileError(
            f"{path}: {key}: {first['msg']}. Another version of clockwatt may have written it."
        ) from None


def run_folder(folder: Path, number: int) -> Path:
    """Return the folder of a run."""
    return folder / f"run-{number}"


def telemetry_folder(folder: Path, number: int, what: str) -> Path:
    """Return the folder of the segments of a GPU (its UUID) or of the host."""
    return run_folder(folder, number) / "telemetry" / what


def marks_folder(folder: Path, number: int) -> Path:
    """Return the folder of the marks of a run."""
    return run_folder(folder, number) / "marks"


def program_environment(marks: Path, token: str, *, hooks: bool, environ: Mapping[str, str]) -> dict[str, str]:
    """Environment of a program that is recorded: the user's, with where to mark and how processes of it are known.

    Parameters
    ----------
    marks
        Folder of the marks.
    token
        Stands in the environment of every process of this run.
    hooks
        Whether frameworks are to mark their phases by themselves.
    environ
        The user's.
    """
    from clockwatt.telemetry import injected

    changed = {**environ, "CLOCKWATT_MARKS": str(marks.absolute()), TOKEN: token}
    if hooks:
        folder = str(Path(injected.__file__).parent)
        changed["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [environ.get("PYTHONPATH")])])
    return changed


TOKEN = "CLOCKWATT_RECORD"  # noqa: S105, it opens nothing
