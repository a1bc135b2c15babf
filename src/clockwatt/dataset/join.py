"""Add catalogue columns, card and host effects, flags and costs to measurements of a GPU at a point."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from clockwatt.dataset import card_host_effects, unthrottled
from clockwatt.dataset.corrections import corrected, exclusions
from clockwatt.dataset.flagging import derived_flags, merged_flags, throttle_flags
from clockwatt.dataset.unthrottled import UnthrottledEnergy
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.schema import costs, records, tables
from clockwatt.schema.flags import NEVER_LEARNT_FROM, flagged

_SEPARATOR = "\n"  # in no identifier
_AGAIN = "Delete it, and run `clockwatt measure` for this GPU and operating point."
_FIRST_COLUMNS = sorted({*card_host_effects.ANCHOR_COLUMNS, *unthrottled.COLUMNS, "status", "throttle_reasons"})
_NEEDED = [
    *("subject_id", "pass", "point", "status", "flags", "gpu_uuid", "session_id", "throttle_reasons"),
    *("sm_clock_median_mhz", "power_idle_w"),
    *(
        name
        for measured in (
            costs.TIME_DEVICE,
            costs.TIME_HOST,
            costs.TIME_HOST_IN_PASS,
            costs.TIME_EAGER,
            costs.POWER,
            costs.ENERGY,
            costs.ENERGY_DYNAMIC,
            costs.ENERGY_DYNAMIC_UNTHROTTLED,
        )
        for name in (measured.column, measured.standard_error)
    ),
]
"""Columns of measurements that flags and costs are derived from."""

_WANTED_BY = ("pass", "measured_execution", "operation_class", "dtype")


@dataclass(frozen=True)
class Catalogue:
    """Rows of a catalogue table, indexed by id and pass.

    Attributes
    ----------
    index
        `id` and `pass` of each row as one string.
    columns
        What a measurement gets from it, under the dataset's names.
    wanted
        (id, pass, execution settings of what wants it, class and dtype of an operation) of all that is measured.
    """

    index: pa.Array
    columns: pa.Table
    wanted: frozenset[tuple[str, str, tuple[str, ...] | None, tuple[str, str] | None]]

    @classmethod
    def read(cls, path: Path, expected: pa.Schema, key: str) -> Catalogue:
        """Read a catalogue file whose rows are named by column `key` and the pass.

        Raises
        ------
        DataFileError
            If the file is missing, damaged or of another kind.
        """
        table = files.read_table(path, expected)
        names = tables.joined_columns(expected)
        return cls(
            index=_identity(table[key], table["pass"]).combine_chunks(),
            columns=table.select(names).rename_columns([tables.dataset_name(name) for name in names]),
            wanted=frozenset(
                (
                    row[key],
                    row["pass"],
                    None if row["measured_execution"] is None else tuple(row["measured_execution"]),
                    (row["operation_class"], row["dtype"]) if "operation_class" in row else None,
                )
                for row in table.select([name for name in table.column_names if name in (key, *_WANTED_BY)]).to_pylist()
            ),
        )

    def positions(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the position in the catalogue of each measurement, null where it has none."""
        return pc.index_in(_identity(rows["subject_id"], rows["pass"]), value_set=self.index)


def _identity(subject: pa.ChunkedArray, name: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(subject, name, _SEPARATOR)


@dataclass(frozen=True)
class Point:
    """Card effects, host effects and unthrottled energy of one GPU at one operating point."""

    factors: pd.DataFrame
    hosts: pd.Series
    host_spreads: pd.Series
    drifts: pd.DataFrame
    unthrottled: UnthrottledEnergy

    @classmethod
    def read(cls, paths: list[Path]) -> Point:
        """Read files of measurements once, keeping reference operations and what shows unthrottled energy.

        Raises
        ------
        DataFileError
            If a file is missing, damaged or of another kind: of networks in place of operations too.
        """
        anchors, telling = [], []
        for path in paths:
            stranger = records.OPERATION if path.name.startswith("networks-") else records.NETWORK
            for batch in files.read_batches(path, records.MEASUREMENT_SCHEMA, _FIRST_COLUMNS):
                if stranger in pc.unique(batch["kind"]).to_pylist():
                    raise DataFileError(f"{path}: holds rows of kind {stranger!r}. {_AGAIN}")
                anchors.append(
                    batch.filter(pc.field("kind") == records.ANCHOR).select(card_host_effects.ANCHOR_COLUMNS)
                )
                rows = batch.filter(pc.field("kind") == records.OPERATION).to_pandas()
                rows["flags"] = merged_flags(rows, throttle_flags(rows))
                believed = (rows["status"] == records.OK) & ~flagged(rows, *NEVER_LEARNT_FROM)
                telling.append(unthrottled.telling(rows, believed))
        if not anchors:
            raise DataFileError(f"{', '.join(map(str, paths))}: no rows. {_AGAIN}")
        rows = pa.concat_tables(anchors).to_pandas()
        return cls(
            card_host_effects.card_factors(rows),
            card_host_effects.host_factors(rows),
            card_host_effects.host_spreads(rows),
            card_host_effects.session_drifts(rows),
            UnthrottledEnergy.learn(telling),
        )

    def levels(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the factors of the card and host, and drifts of the session, of each row."""
        values = {
            "anchor_host_factor": rows["session_id"].map(self.hosts),
            "session_host_spread": rows["session_id"].map(self.host_spreads),
            **{name: rows["gpu_uuid"].map(self.factors[name]) for name in self.factors},
            **{name: rows["session_id"].map(self.drifts[name]) for name in self.drifts},
        }
        return pd.DataFrame(values, index=rows.index, dtype=float)


def joined(table: pa.Table, target: pa.Schema, catalogue: Catalogue | None, point: Point) -> pa.Table:
    """Return rows of one kind with the columns of the dataset.

    Parameters
    ----------
    table
        Measurements of one kind, with `records.MEASUREMENT_SCHEMA`.
    target
        Schema of the dataset's rows of that kind.
    catalogue
        Where the measured things are described; None for reference operations, which need not be in it.
    point
        Measurements of the same GPU and operating point.
    """
    columns = {name: table[name] for name in table.column_names}
    in_catalogue = np.ones(table.num_rows, dtype=bool)
    if catalogue is not None:
        positions = catalogue.positions(table)
        in_catalogue = np.asarray(pc.is_valid(positions))
        found = catalogue.columns.take(positions)
        columns |= {name: found[name] for name in found.column_names}
    rows = pa.table({name: columns[name] for name in (*_NEEDED, "device_work") if name in columns}).to_pandas()
    derived = point.levels(rows)
    rows = pd.concat([rows, derived], axis=1)
    rows["flags"] = merged_flags(rows, derived_flags(rows.assign(in_catalogue=in_catalogue)))
    derived["flags"] = rows["flags"]
    if catalogue is not None:
        of_operations = "device_work" in rows
        found_costs = corrected(rows, point.unthrottled if of_operations else None)
        derived = pd.concat([derived, found_costs], axis=1)
        if of_operations:
            derived[costs.EXCLUDED] = exclusions(pd.concat([rows, found_costs], axis=1))
    columns |= {
        name: pa.array(derived[name], target.field(name).type, from_pandas=True)
        for name in derived.columns
        if name in target.names
    }
    return pa.table({name: columns[name] for name in target.names}).cast(target)
