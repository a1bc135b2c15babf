"""Parquet files that know when a bit of them flipped: each carries the digest of its whole bytes.

Parquet's own checksums cover pages and not the footer, where a flipped bit can turn a number into another one or a
column into no column. The digest stands in the footer's key-value metadata, as 64 hexadecimal digits; it is taken with
zeros in its own place. So it is written with the file, in one rename, and any reader of Parquet reads the file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

COMPRESSION = "zstd"

_KEY = b"clockwatt.sha256"
_ZEROS = b"0" * 64
_BEFORE = _KEY + b"\x18\x40"  # in Thrift's compact protocol: the key, then a string of 64 bytes
_TAIL_BYTES = 2**20  # the metadata is the footer's last part but one
_CHUNK_BYTES = 2**20
_TIMES, _COUNTERS = ("_us", "_ns"), "_counter_j"


class SealedWriter(pq.ParquetWriter):  # type: ignore[misc]
    """A Parquet writer that leaves room for the digest, which `seal` fills in once the file is closed."""

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
            self.add_key_value_metadata({_KEY.decode(): _ZEROS.decode()})
        super().close()


def _encoding(field: pa.Field) -> str | None:
    """How Parquet is to store a column that ascends; None where a dictionary does, as no value of these comes twice."""
    if field.name.endswith(_TIMES) and pa.types.is_int64(field.type):
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if field.name.endswith(_COUNTERS) else None


def _leaf(field: pa.Field) -> str:
    """What Parquet calls the values of a column."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)


def seal(path: Path) -> None:
    """Fill in the digest of a file that a `SealedWriter` wrote; any other file is left as it is."""
    with path.open("r+b") as file:
        place = _place(file)
        if place is not None:
            digest = _digest(file, place)
            file.seek(place)
            file.write(digest)


def is_whole(path: Path) -> bool | None:
    """Whether a file's bytes are what was written; None if it carries no digest, since an older version wrote it.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with path.open("rb") as file:
        place = _place(file)
        if place is None:
            return None
        file.seek(place)
        return file.read(len(_ZEROS)) == _digest(file, place)


def _place(file: BinaryIO) -> int | None:
    """Where in the file the digest stands."""
    size = file.seek(0, 2)
    start = max(0, size - _TAIL_BYTES)
    file.seek(start)
    tail = file.read()
    found = tail.rfind(_BEFORE)
    place = start + found + len(_BEFORE)
    return None if found < 0 or place + len(_ZEROS) > size else place


def _digest(file: BinaryIO, place: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    left = place
    while chunk := file.read(min(_CHUNK_BYTES, left)):
        digest.update(chunk)
        left -= len(chunk)
    digest.update(_ZEROS)
    file.seek(place + len(_ZEROS))
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest().encode()
