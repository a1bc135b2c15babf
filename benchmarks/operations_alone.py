"""Catalogues of operations without networks, for `clockwatt measure --catalogue-dir`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from clockwatt.io import files
from clockwatt.schema import layout, records


def write_operations(operations: pa.Table, folder: Path) -> None:
    """Write operations, rows of `OPERATION_SCHEMA`, as a catalogue whose networks and calls are none."""
    for name, table in (
        (layout.OPERATIONS_FILE, operations),
        (layout.CALLS_FILE, records.CALL_SCHEMA.empty_table()),
        (layout.NETWORKS_FILE, records.NETWORK_SCHEMA.empty_table()),
    ):
        files.write_table(table, folder / name)
