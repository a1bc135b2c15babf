"""Records of the workloads of a GPU: where they lie, and which are finished."""

from __future__ import annotations

from pathlib import Path

from clockwatt.errors import DataFileError
from clockwatt.telemetry.recording.layout import read_record

RECORDS = "records"
"""Folder of the records, below the study's folder of the GPU."""


def is_finished(where: Path, command: list[str]) -> bool:
    """Return whether a record is there, of this command, that was run to its end."""
    try:
        known = read_record(where)
    except DataFileError:
        return False
    return known.complete and known.command == command and [run.status for run in known.runs] == [0]
