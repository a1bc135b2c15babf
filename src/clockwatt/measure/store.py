"""Finished measurements: what is in here is never measured again.

`store/{gpu}/{point}/rows` holds closed segments of measurements, `telemetry` those of the logger, for all shards of
that GPU at that operating point. Snakemake knows nothing of it, so it survives failed and killed jobs; a shard's
declared file is assembled from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.config.model import Model
from clockwatt.io import files
from clockwatt.io.segments import SegmentWriter, read_segments
from clockwatt.schema import layout, records
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import (
    ANCHOR,
    ENERGY,
    MEASUREMENT_SCHEMA,
    MEASUREMENT_VERSION,
    OK,
    TELEMETRY_SCHEMA,
    MeasurementRow,
)

_NO_PART_OF_A_MEASUREMENT = {"repetitions", "idle_s", "check_every_s", "rest_to_c", "rest_max_s"}

_FIRST_KEYS = {
    "measurement": ["precision", "warm_up_min_s", "warm_up_max_s", "window_min_s", "window_max_s", "working_set"],
    "training": ["optimizer", "learning_rate", "momentum", "weight_decay"],
}
"""Keys that the store was made with. A later key does not enter `settings_id` while it has its default, so its default
must measure what was measured before the key existed."""

_ROW_GROUP = 200_000
"""Rows of telemetry that are written at once: many small row groups take longer to write and to read."""
_BATCHES = 5
"""Batches of telemetry that are read at once: its rows are small, and many."""
_SESSION_COLUMN = TELEMETRY_SCHEMA.get_field_index("session_id")
KEY_COLUMNS = ["kind", "subject_id", "pass", "execution", "repetition"]


@dataclass(frozen=True, order=True)
class Key:
    """What makes two measurements at one GPU label and operating point the same."""

    kind: str
    subject_id: str
    pass_: str
    execution: ExecutionSettings
    repetition: int


@dataclass(frozen=True)
class Finished:
    """How a finished measurement ended, and whether energy was measured too."""

    status: str
    energy: bool

    def is_enough(self, *, energy: bool) -> bool:
        """Return whether nothing that is wanted is missing."""
        return self.energy or not energy


def settings_id(config: CampaignConfig, gpu: str) -> str:
    """Return identity of what a measurement depends on beside its key: 16 hexadecimal digits.

    Another device under the same label, other windows or another training step measure something else; how often, when
    and for how long idle power is read, or how telemetry is cut into files, does not. A new key with a default leaves
    every id as it is.
    """
    gpu_config = config.gpu(gpu)
    content = {
        "device": gpu_config.device,
        "measurement": _identifying(config.measurement, _FIRST_KEYS["measurement"]),
        "training": _identifying(config.training, _FIRST_KEYS["training"]),
        "virtual_seed": config.seed if gpu_config.virtual_model is not None else None,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _identifying(settings: Model, first_keys: Collection[str]) -> dict[str, Any]:
    """Return the values of the first keys, and of each later key that is not at its default."""
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in type(settings).model_fields.items()
    }
    later = {name for name, default in defaults.items() if getattr(settings, name) != default}
    return settings.model_dump(mode="json", include={*first_keys, *later} - _NO_PART_OF_A_MEASUREMENT)


class Store:
    """The finished measurements of one GPU of a campaign at one operating point, with the campaign's settings.

    Parameters
    ----------
    folder
        The store's root, `results/store`.
    config
        The campaign.
    gpu, point
        Label and operating point.
    """

    def __init__(self, folder: Path, config: CampaignConfig, gpu: str, point: OperatingPoint) -> None:
        self.settings_id = settings_id(config, gpu)
        self.rows_folder = folder / layout.point_dir(gpu, point) / "rows"
        self.telemetry_folder = folder / layout.point_dir(gpu, point) / "telemetry"
        self._folder, self._gpu, self._point = folder, gpu, point

    def shard_file(self, shard: object, suffix: str) -> Path:
        """Return a file of one shard: its lock, or the note of what is under way."""
        return layout.shard_file(self._folder, self._gpu, self._point, shard, suffix)

    def writer(self, segment_s: float) -> SegmentWriter:
        """Return a writer of measurement rows."""
        return SegmentWriter(self.rows_folder, MEASUREMENT_SCHEMA, segment_s)

    def finished(self) -> dict[Key, Finished]:
        """Return the keys of all finished measurements of the present version and settings, with how they ended."""
        finished: dict[Key, Finished] = {}
        for table in self._read([*KEY_COLUMNS, "status", "quantities", "measurement_version", "settings_id"]):
            columns = (table[name].to_pylist() for name in (*KEY_COLUMNS, "status", "quantities"))
            for *key, status, quantities in zip(*columns, strict=True):
                finished[Key(*key)] = Finished(status, _has_energy(quantities))
        return finished

    def ended_s(self) -> list[float]:
        """Return when each finished measurement ended, in seconds since the epoch, with reference operations."""
        columns = ["ended_us", "measurement_version", "settings_id"]
        return [end_us / 1e6 for table in self._read(columns) for end_us in table["ended_us"].to_pylist()]

    def rows(self, wanted: Iterable[Key]) -> list[MeasurementRow]:
        """Return the result of `table` as rows."""
        return [records.row_of(MeasurementRow, values) for values in self.table(wanted).to_pylist()]

    def table(self, wanted: Iterable[Key]) -> pa.Table:
        """Return the best row of each wanted key and their sessions' reference operations, with `MEASUREMENT_SCHEMA`.

        A successful row comes before a failed one, a row with energy before time alone, and a newer row before an older
        one.
        """
        keys = pa.array([_key_text(key) for key in wanted], pa.string())
        kept = [MEASUREMENT_SCHEMA.empty_table()]
        for table in self._read(None):
            wanted_here = pc.is_in(_key_texts(table), value_set=keys)
            kept.append(table.filter(pc.or_(wanted_here, pc.equal(table["kind"], ANCHOR))))
        found = pa.concat_tables(kept)
        return found.take(pa.array(_best(found)))

    def write_telemetry(self, rows: pa.Table, output: Path) -> None:
        """Write the telemetry taken during `rows` to one file, part by part, so that memory stays flat.

        Parameters
        ----------
        rows
            With `session_id`, `started_us` and `ended_us`.

        Raises
        ------
        DataFileError
            If a segment is damaged.
        OutputError
            If `output` cannot be written.
        """
        windows = _windows(rows)
        wanted = partial(_row_groups_of, windows.keys())
        with files.table_writer(output, TELEMETRY_SCHEMA) as writer:
            kept: list[pa.Table] = []
            parts = read_segments(
                self.telemetry_folder, TELEMETRY_SCHEMA, row_groups=wanted, batch_rows=_BATCHES * files.BATCH_ROWS
            )
            for table in parts:
                kept.append(_inside(table, windows))
                if sum(part.num_rows for part in kept) >= _ROW_GROUP:
                    writer.write_table(pa.concat_tables(kept))
                    kept.clear()
            if any(part.num_rows for part in kept):
                writer.write_table(pa.concat_tables(kept))

    def _read(self, columns: list[str] | None) -> Iterator[pa.Table]:
        for table in read_segments(self.rows_folder, MEASUREMENT_SCHEMA, columns):
            same_version = pc.equal(table["measurement_version"], MEASUREMENT_VERSION)
            yield table.filter(pc.and_(same_version, pc.equal(table["settings_id"], self.settings_id)))


def _has_energy(quantities: list[str] | None) -> bool:
    """Return whether energy is among what was measured; rows of before time could be measured alone do not say."""
    return quantities is None or ENERGY in quantities


def _key_text(key: Key) -> str:
    return f"{key.kind}\n{key.subject_id}\n{key.pass_}\n{key.execution}\n{key.repetition}"


def _key_texts(table: pa.Table) -> pa.ChunkedArray:
    """Return `_key_text` of the key of every row."""
    return pc.binary_join_element_wise(*(table[name].cast(pa.string()) for name in KEY_COLUMNS), "\n")


def _best(table: pa.Table) -> NDArray[np.int64]:
    """Return the positions, by time, of the best row of each key and of their sessions' reference operations."""
    rows = table.select(["session_id", "position", "started_us"]).to_pandas()
    anchor = np.asarray(pc.equal(table["kind"], ANCHOR))
    rows["key"] = _key_texts(table).to_pandas()
    rows["ok"] = np.asarray(pc.equal(table["status"], OK))
    rows["energy"] = [_has_energy(quantities) for quantities in table["quantities"].to_pylist()]
    # segments come oldest first, and a stable sort keeps that
    best = rows[~anchor].sort_values(["ok", "energy"], kind="stable").drop_duplicates("key", keep="last")
    anchors = rows[anchor & rows["session_id"].isin(best["session_id"].unique())]
    anchors = anchors.drop_duplicates(["session_id", "position"], keep="last")
    ordered = rows.loc[best.index.append(anchors.index)].sort_values(["started_us", "session_id", "position"])
    return np.asarray(ordered.index, dtype=np.int64)


def _windows(rows: pa.Table) -> dict[str, np.ndarray]:
    """Start and end (µs) of what was measured, by session: arrays of shape (n, 2), ascending."""
    spans = rows.select(["session_id", "started_us", "ended_us"]).to_pandas().sort_values(["started_us", "ended_us"])
    return {
        str(session): own[["started_us", "ended_us"]].to_numpy(np.int64) for session, own in spans.groupby("session_id")
    }


def _row_groups_of(sessions: Collection[str], metadata: pq.FileMetaData) -> list[int]:
    """Return the row groups that may hold readings of these sessions, by the first and last session that each names."""
    chosen = []
    for number in range(metadata.num_row_groups):
        seen = metadata.row_group(number).column(_SESSION_COLUMN).statistics
        if seen is None or not seen.has_min_max or any(seen.min <= session <= seen.max for session in sessions):
            chosen.append(number)
    return chosen


def _inside(table: pa.Table, windows: dict[str, np.ndarray]) -> pa.Table:
    sessions = table["session_id"].combine_chunks().dictionary_encode()
    times = table["time_us"].to_numpy()
    keep = np.zeros(table.num_rows, dtype=bool)
    for code, session in enumerate(sessions.dictionary.to_pylist()):
        spans = windows.get(session)
        if spans is not None:
            # the last span that starts before the reading is the only one it can lie in: a session's do not overlap
            span = np.searchsorted(spans[:, 0], times, side="right") - 1
            mine = sessions.indices.to_numpy() == code
            keep |= mine & (span >= 0) & (times <= spans[np.maximum(span, 0), 1])
    if keep.all():
        return table
    # most sensors are read at one sampling rate or not at all: columns of nulls need no filter
    known = [name for name in table.column_names if table[name].null_count < table.num_rows]
    return files.with_columns(table.select(known).filter(pa.array(keep)), table.schema, table.column_names)
