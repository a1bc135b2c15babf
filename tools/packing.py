"""Parquet as small as it gets, for what the project ships: each column in the encoding that suits it best."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clockwatt.io import files
from clockwatt.io.rounding import to_bits

VALUE_BITS = 20
"""Significant bits that are kept of a real number where nothing else is said: six digits."""

_LEVEL, _QUICK_LEVEL = 22, 3
_DICTIONARY = "dictionary"
_ENCODINGS = {
    "double": ["BYTE_STREAM_SPLIT"],
    "int64": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "string": ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"],
}
"""What is tried beside a dictionary, by type; lists and booleans are stored as Parquet stores them."""


def rounded_column(rows: pa.Table, name: str, bits: Mapping[str, int]) -> pa.Table:
    """The rows with one column rounded; rounding again changes nothing.

    To the significant bits of the first of `bits` whose part of a name the column's has in it, else to `VALUE_BITS`.
    """
    kept = next((number for part, number in bits.items() if part in name), VALUE_BITS)
    values = pa.array(to_bits(rows[name].to_numpy(), kept), mask=rows[name].is_null().to_numpy())
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)


def write_small(table: pa.Table, path: Path) -> None:
    """Write a table as small as Parquet makes it, without loss. The same table gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    chosen = {name: _best(table.select([name])) for name in table.column_names}
    _write(table, path, {name: encoding for name, encoding in chosen.items() if encoding != _DICTIONARY}, _LEVEL)


def _best(column: pa.Table) -> str:
    """Encoding that makes a table of one column smallest; a dictionary where it is as small as others."""
    (field,) = column.schema
    sizes = {}
    for encoding in (_DICTIONARY, *_ENCODINGS.get(str(field.type), [])):
        buffer = io.BytesIO()
        _write(column, buffer, {} if encoding == _DICTIONARY else {field.name: encoding}, _QUICK_LEVEL)
        sizes[encoding] = buffer.tell()
    return min(sizes, key=sizes.__getitem__)


def _write(table: pa.Table, where: Path | io.BytesIO, encodings: dict[str, str], level: int) -> None:
    leaves = [f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in table.schema]
    pq.write_table(
        table, where, compression=files.COMPRESSION, compression_level=level, column_encoding=encodings or None,
        use_dictionary=[leaf for leaf in leaves if leaf not in encodings],
    )  # fmt: skip
