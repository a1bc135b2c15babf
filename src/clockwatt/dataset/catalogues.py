"""Merge the campaign's catalogue and those of the reference data into one catalogue of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from clockwatt.dataset.reference import Source
from clockwatt.io import files
from clockwatt.schema import layout
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA

NetworkKey = tuple[str, str]
"""Network id and pass."""

_OPERATION_KEY = ["operation_id", "pass"]
_HOW_IT_IS_MEASURED = {"measured_execution", "measured_quantities"}
_NETWORK_KEY = ["network_id", "pass"]


def join_catalogues(sources: Sequence[Source], output_dir: Path) -> list[frozenset[NetworkKey]]:
    """Write `operations.parquet`, `calls.parquet` and `networks.parquet` of all sources; the first source wins.

    An operation's id identifies it fully. A network's does not: it may have been traced with another optimizer or by
    another version.

    Returns
    -------
    list of frozenset
        For each source, its networks that one before it has under the same id and pass, but not alike.

    Raises
    ------
    DataFileError
        If a catalogue is missing, damaged or of another kind.
    OutputError
        If a file cannot be written.
    """
    operations, calls, networks = [], [], []
    known: dict[NetworkKey, str] = {}
    unlike = []
    for source in sources:
        operations.append(files.read_table(source.catalogue / layout.OPERATIONS_FILE, OPERATION_SCHEMA))
        table = files.read_table(source.catalogue / layout.NETWORKS_FILE, NETWORK_SCHEMA)
        own = {(row["network_id"], row["pass"]): _described(row) for row in table.to_pylist()}
        unlike.append(frozenset(key for key, network in own.items() if known.get(key, network) != network))
        new = own.keys() - known.keys()
        networks.append(_of_networks(table, new))
        calls.append(_of_networks(files.read_table(source.catalogue / layout.CALLS_FILE, CALL_SCHEMA), new))
        known = own | known
    files.write_table(_first_of_each(pa.concat_tables(operations)), output_dir / layout.OPERATIONS_FILE)
    files.write_table(pa.concat_tables(calls), output_dir / layout.CALLS_FILE)
    files.write_table(pa.concat_tables(networks), output_dir / layout.NETWORKS_FILE)
    return unlike


def without_networks(rows: pa.Table, networks: frozenset[NetworkKey]) -> pa.Table:
    """Return measurements of networks without those of some of them."""
    keys = zip(rows["subject_id"].to_pylist(), rows["pass"].to_pylist(), strict=True)
    return rows.filter(pa.array([key not in networks for key in keys], pa.bool_()))


def _described(row: dict[str, object]) -> str:
    """Return all settings that determine a pass of the network."""
    return repr({name: value for name, value in row.items() if name not in _HOW_IT_IS_MEASURED})


def _of_networks(rows: pa.Table, networks: set[NetworkKey]) -> pa.Table:
    index = pd.MultiIndex.from_frame(rows.select(_NETWORK_KEY).to_pandas())
    return rows.filter(pa.array(index.isin(sorted(networks)), pa.bool_()))


def _first_of_each(operations: pa.Table) -> pa.Table:
    again = operations.select(_OPERATION_KEY).to_pandas().duplicated()
    return operations.filter(pa.array(~again, pa.bool_()))
