"""Rows that outlive a kill: closed Parquet segments in a folder, merged now and then.

A Parquet file without its footer is lost, so rows go to small files that are each written whole. Several processes may
write to one folder: names are unique, and a segment that another process merges away while it is being read is found
again in the merged one.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from clockwatt.errors import DamagedFileError, DataFileError
from clockwatt.io import files
from clockwatt.io.progress import say
from clockwatt.schema import records


class SegmentWriter:
    """Collects rows of one kind and closes them as segments.

    Parameters
    ----------
    folder
        Where the segments go; made if it is not there.
    schema
        Arrow schema of the rows, from `clockwatt.schema.records`.
    segment_s
        Seconds (monotonic) after which `add` closes a segment by itself; 0 closes one at each call.
    """

    def __init__(self, folder: Path, schema: pa.Schema, segment_s: float) -> None:
        self.folder = folder
        self.schema = schema
        self.segment_s = segment_s
        self._rows: list[Any] = []
        self._opened = time.monotonic()
        self._prefix = (
            f"{time.time_ns() // 1000}-{socket.gethostname().split('.')[0]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        )
        self._closed = 0
        self._written: list[Path] = []

    @property
    def is_due(self) -> bool:
        """Whether `add` would close a segment now."""
        return time.monotonic() - self._opened >= self.segment_s

    def add(self, rows: Sequence[Any]) -> None:
        """Take row dataclasses; close a segment if it is time.

        Raises
        ------
        OutputError
            If the segment cannot be written; the rows are kept and go with the next one.
        """
        self._rows.extend(rows)
        if self.is_due:
            self.flush()

    def flush(self) -> None:
        """Close a segment with all rows taken so far.

        Raises
        ------
        OutputError
            If it cannot be written; the rows are kept.
        """
        if self._rows:
            path = self._next_path()
            files.write_table(records.table_of(self._rows, self.schema), path)
            self._written.append(path)
            self._rows.clear()
        self._opened = time.monotonic()

    @files.damaged_set_aside()
    def merge(self) -> None:
        """Replace this writer's segments by one; a kill in between leaves duplicates, never a gap.

        Raises
        ------
        OutputError
            If the merged segment cannot be written; the single ones stay.
        """
        self.flush()
        if len(self._written) > 1:
            merged = self._next_path()
            with files.table_writer(merged, self.schema) as writer:
                for path in self._written:
                    try:
                        writer.write_table(files.read_table(path, self.schema))
                    except DamagedFileError as error:  # the rest is worth keeping
                        say(f"{error} It is a segment of the store.")
            for path in self._written:
                path.unlink(missing_ok=True)
            self._written = [merged]

    def _next_path(self) -> Path:
        self._closed += 1
        return self.folder / f"{self._prefix}-{self._closed:06d}.parquet"


def segment_paths(folder: Path) -> list[Path]:
    """Return segments in a folder, oldest writer first."""
    return sorted(folder.glob("*.parquet")) if folder.is_dir() else []


def read_segments(
    folder: Path,
    schema: pa.Schema,
    columns: list[str] | None = None,
    row_groups: Callable[[pq.FileMetaData], list[int]] | None = None,
    batch_rows: int | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a folder's segments in parts, segment after segment; see `files.read_batches`.

    Rows may come twice where a merge was interrupted or under way.

    A damaged segment is named and passed over: what it held counts as not measured. Within `files.damaged_set_aside` it
    is renamed as well, whatever its bytes are.

    Raises
    ------
    DataFileError
        If a file is foreign; deleting it only costs its rows.
    """
    done: set[Path] = set()
    while pending := [path for path in segment_paths(folder) if path not in done]:
        for path in pending:
            done.add(path)
            try:
                yield from files.read_batches(path, schema, columns, row_groups, batch_rows)
            except DamagedFileError as error:
                say(f"{error} It is a segment of the store.")
                files.set_aside(path, anything=True)
            except DataFileError as error:
                if not path.exists():  # merged away since the folder was listed
                    continue
                raise DataFileError(
                    f"{error} It is a segment of the store: its operations will be measured again."
                ) from error
