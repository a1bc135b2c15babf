"""Parquet files that carry the digest of their bytes, so that a flipped bit is found.

Parquet's own checksums cover pages and not the footer, where a flipped bit can turn a number into another one or a
column into no column. The digest is one entry of the file's key-value metadata: 64 hexadecimal digits, computed while
zeros stand in their place. It is written with the file, in one rename, and any reader of Parquet reads the file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

COMPRESSION = "zstd"

_KEY, _ZEROS = "clockwatt.sha256", b"0" * 64
_ENTRY = re.compile(rb"clockwatt\.sha256..(.{64})", re.DOTALL)
"""The key, two bytes in between (type and length of what follows), the digest."""
_TAIL_BYTES = 2**20
"""Bytes at the end of a file that are searched for the entry."""
_CHUNK_BYTES = 2**20
_TIMES, _COUNTERS = ("_us", "_ns"), "_counter_j"


class SealedWriter(pq.ParquetWriter):  # type: ignore[misc]
    """A Parquet writer that reserves space for the digest, which `seal` fills in after the file is closed."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        encodings = {field.name: encoding for field in schema if (encoding := _encoding(field))}
        super().__init__(
            path,
            schema,
            compression=COMPRESSION,
            use_dictionary=[_leaf(field) for field in schema if field.name not in encodings],
            column_encoding=encodings,
        )

    def close(self) -> None:
        """Close the file, whose digest is still zeros."""
        if self.is_open:
            self.add_key_value_metadata({_KEY: _ZEROS.decode()})
        super().close()


def _encoding(field: pa.Field) -> str | None:
    """Return encoding of a column that ascends; None where a dictionary is as good."""
    if field.name.endswith(_TIMES) and pa.types.is_int64(field.type):
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if field.name.endswith(_COUNTERS) else None


def _leaf(field: pa.Field) -> str:
    """Return Parquet's name of the values of a column."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)


def seal(path: Path) -> None:
    """Fill in the digest of a file that a `SealedWriter` wrote; any other file is left as it is."""
    with path.open("r+b") as file:
        found = _entry(file)
        if found is not None:
            place, _, computed = found
            file.seek(place)
            file.write(computed)


def is_whole(path: Path) -> bool | None:
    """Return whether a file's bytes are what was written; None if it carries no digest.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with path.open("rb") as file:
        found = _entry(file)
    return None if found is None else found[1] == found[2]


def _entry(file: BinaryIO) -> tuple[int, bytes, bytes] | None:
    """Return the offset of the digest in an open file, the stored digest, and that of the file's bytes."""
    start = max(0, file.seek(0, 2) - _TAIL_BYTES)
    file.seek(start)
    tail = file.read()
    entries = [*_ENTRY.finditer(tail)]
    if not entries:
        return None
    first, end = entries[-1].span(1)
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(min(_CHUNK_BYTES, start - file.tell())):
        digest.update(chunk)
    digest.update(tail[:first] + _ZEROS + tail[end:])
    return start + first, tail[first:end], digest.hexdigest().encode()
