"""Execution settings of files that clockwatt up to 0.1 wrote: a column says whether TensorFloat-32 was allowed."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from clockwatt.schema.execution import of_tf32, of_variant

FORMER = {"execution": "tf32", "measured_execution": "measured_tf32"}
"""Columns of today, by those that files of version 2 have in their place."""

_IDENTITIES = ("network_id", "subject_id")
_OF_16_BITS = {f"-{dtype}": str(of_variant(dtype)[0]) for dtype in ("bfloat16", "float16")}
"""Precision of networks whose id ends so; operations have other ids, and name their dtype."""


def stored_instead(found: Collection[str], wanted: Collection[str]) -> list[str]:
    """Return the columns of a file from which `with_settings` makes wanted ones that it lacks."""
    former = [FORMER[name] for name in wanted if name in FORMER and name not in found and FORMER[name] in found]
    return [*former, *(name for name in _IDENTITIES if name in found and name not in wanted)] if former else []


def with_settings(table: pa.Table) -> pa.Table:
    """Return a table with the columns of today in place of the former ones."""
    identity = next((table[name] for name in _IDENTITIES if name in table.column_names), None)
    for name, former in FORMER.items():
        if former in table.column_names:
            column = _lists(table[former]) if name == "measured_execution" else _texts(table[former])
            for end, precision in _OF_16_BITS.items() if identity is not None else ():
                wanted = pa.scalar([precision] if name == "measured_execution" else precision, column.type)
                ends = pc.fill_null(pc.ends_with(identity, end), False)
                if name == "measured_execution":
                    ends = pc.and_(ends, pc.fill_null(pc.greater(pc.list_value_length(column), 0), False))
                column = pc.if_else(ends, wanted, column)
            table = table.drop_columns([former]).append_column(name, column)
    return table


def _texts(allowed: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(allowed, str(of_tf32(True)), str(of_tf32(False)))


def _lists(allowed: pa.ChunkedArray) -> pa.ChunkedArray:
    rows = (None if row is None else [str(of_tf32(one)) for one in row] for row in allowed.to_pylist())
    return pa.chunked_array([pa.array(rows, pa.list_(pa.string()))])
