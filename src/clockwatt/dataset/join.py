"""What is added to measurements of one GPU at one operating point: catalogue columns, card factors, flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from clockwatt.dataset import levels
from clockwatt.io import files
from clockwatt.schema import flags, records, tables

_SEPARATOR = "\n"  # in no identifier
_ALL_TF32 = (False, True)


@dataclass(frozen=True)
class Catalogue:
    """Rows of a catalogue table that can be looked up by id and pass.

    Attributes
    ----------
    index
        `id` and `pass` of each row as one string.
    columns
        What a measurement gets from it, under the dataset's names.
    wanted
        (id, pass, TF32 setting) of all that is measured, on a GPU that has this setting.
    """

    index: pa.Array
    columns: pa.Table
    wanted: frozenset[tuple[str, str, bool]]

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
                (row[key], row["pass"], tf32)
                for row in table.select([key, "pass", "measured_tf32"]).to_pylist()
                for tf32 in (_ALL_TF32 if row["measured_tf32"] is None else row["measured_tf32"])
            ),
        )

    def positions(self, rows: pa.Table) -> pa.ChunkedArray:
        """Position in the catalogue of each measurement, null where it has none."""
        return pc.index_in(_identity(rows["subject_id"], rows["pass"]), value_set=self.index)


def _identity(subject: pa.ChunkedArray, name: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(subject, name, _SEPARATOR)


@dataclass(frozen=True)
class Cards:
    """What the anchors say about the cards and sessions of one GPU at one operating point."""

    factors: pd.DataFrame
    hosts: pd.Series
    host_spreads: pd.Series
    drifts: pd.DataFrame

    @classmethod
    def read(cls, paths: list[Path]) -> Cards:
        """Read the anchors out of files of measurements.

        Raises
        ------
        DataFileError
            If a file is missing, damaged or of another kind.
        """
        tables = [
            files.read_table(path, records.MEASUREMENT_SCHEMA, levels.ANCHOR_COLUMNS).filter(
                pc.field("kind") == records.ANCHOR
            )
            for path in paths
        ]
        rows = pa.concat_tables(tables).to_pandas()
        return cls(
            levels.card_factors(rows),
            levels.host_factors(rows),
            levels.host_spreads(rows),
            levels.session_drifts(rows),
        )

    def columns(self, rows: pa.Table) -> pd.DataFrame:
        """Factors of the card and host, and drifts of the session, of each row."""
        cards = pd.Series(rows["gpu_uuid"].to_pylist(), dtype=object)
        sessions = pd.Series(rows["session_id"].to_pylist(), dtype=object)
        values: dict[str, pd.Series] = {
            "anchor_host_factor": sessions.map(self.hosts),
            "session_host_spread": sessions.map(self.host_spreads),
        }
        for quantity in levels.QUANTITIES:
            values[f"anchor_{quantity}_factor"] = cards.map(self.factors[quantity])
            values[f"drift_{quantity}_per_hour"] = sessions.map(self.drifts[f"{quantity}_per_hour"])
            values[f"session_{quantity}_change"] = sessions.map(self.drifts[quantity])
        return pd.DataFrame(values, dtype=float)


def joined(table: pa.Table, target: pa.Schema, catalogue: Catalogue | None, cards: Cards) -> pa.Table:
    """Rows of one kind with the columns of the dataset.

    Parameters
    ----------
    table
        Measurements of one kind, with `records.MEASUREMENT_SCHEMA`.
    target
        Schema of the dataset's rows of that kind.
    catalogue
        Where the measured things are described; None for anchors, which need not be in it.
    cards
        Of the same GPU and operating point.
    """
    columns = {name: table[name] for name in table.column_names}
    in_catalogue = np.ones(table.num_rows, dtype=bool)
    if catalogue is not None:
        positions = catalogue.positions(table)
        in_catalogue = np.asarray(pc.is_valid(positions))
        found = catalogue.columns.take(positions)
        columns |= {name: found[name] for name in found.column_names}
    of_cards = cards.columns(table)
    columns |= {
        name: pa.array(of_cards[name], pa.float64(), from_pandas=True)
        for name in of_cards.columns
        if name in target.names
    }
    observed = table.select(flags.MEASUREMENT_COLUMNS).to_pandas()
    observed = pd.concat([observed, of_cards], axis=1).assign(in_catalogue=in_catalogue)
    columns["flags"] = pa.array(flags.merged_flags(observed), target.field("flags").type)
    return pa.table({name: columns[name] for name in target.names}).cast(target)
