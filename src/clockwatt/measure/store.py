"""Finished measurements: what is in here is never measured again.

`store/{gpu}/{point}/rows` holds closed segments of measurements, `telemetry` those of the logger, for all shards of
that GPU at that operating point. Snakemake knows nothing of it, so it survives failed and killed jobs; a shard's
declared file is assembled from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clockwatt import MEASUREMENT_VERSION
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.io import files
from clockwatt.io.segments import SegmentWriter, read_segments
from clockwatt.schema import layout, records
from clockwatt.schema.records import ANCHOR, ENERGY, MEASUREMENT_SCHEMA, OK, TELEMETRY_SCHEMA, MeasurementRow

_NO_PART_OF_A_MEASUREMENT = {"repetitions", "idle_s", "check_every_s", "rest_to_c", "rest_max_s"}

KEY_COLUMNS = ["kind", "subject_id", "pass", "tf32", "repetition"]


@dataclass(frozen=True, order=True)
class Key:
    """What makes two measurements at one GPU label and operating point the same."""

    kind: str
    subject_id: str
    pass_: str
    tf32: bool
    repetition: int


@dataclass(frozen=True)
class Finished:
    """How a finished measurement ended, and whether energy was measured too."""

    status: str
    energy: bool

    def is_enough(self, *, energy: bool) -> bool:
        """Whether nothing that is wanted is missing."""
        return self.energy or not energy


def settings_id(config: CampaignConfig, gpu: str) -> str:
    """Identity of what a measurement depends on beside its key: 16 hexadecimal digits.

    Another device under the same label, other windows or another training step measure something else; how often, when
    and for how long idle power is read, or how telemetry is cut into files, does not.
    """
    gpu_config = config.gpu(gpu)
    content = {
        "device": gpu_config.device,
        "measurement": config.measurement.model_dump(mode="json", exclude=_NO_PART_OF_A_MEASUREMENT),
        "training": config.training.model_dump(mode="json"),
        "virtual_seed": config.seed if gpu_config.virtual_model is not None else None,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


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
        self._shards_folder = folder / layout.point_dir(gpu, point) / "shards"

    def shard_file(self, shard: object, suffix: str) -> Path:
        """A file of one shard: its lock, or the note of what is under way."""
        return self._shards_folder / f"{str(shard).replace('/', '-of-')}.{suffix}"

    def writer(self, segment_s: float) -> SegmentWriter:
        """A writer of measurement rows."""
        return SegmentWriter(self.rows_folder, MEASUREMENT_SCHEMA, segment_s)

    def finished(self) -> dict[Key, Finished]:
        """Keys of all finished measurements of the present version and settings, with how they ended."""
        finished: dict[Key, Finished] = {}
        for table in self._read([*KEY_COLUMNS, "status", "quantities", "measurement_version", "settings_id"]):
            for row in table.to_pylist():
                key = Key(row["kind"], row["subject_id"], row["pass"], row["tf32"], row["repetition"])
                finished[key] = Finished(row["status"], _has_energy(row["quantities"]))
        return finished

    def ended_s(self) -> list[float]:
        """When each finished measurement ended, in seconds since the epoch; anchors too."""
        columns = ["ended_us", "measurement_version", "settings_id"]
        return [end_us / 1e6 for table in self._read(columns) for end_us in table["ended_us"].to_pylist()]

    def rows(self, wanted: Iterable[Key]) -> list[MeasurementRow]:
        """The best row of each wanted key and the anchors of their sessions, in order.

        One that went well is better than one that did not, one with energy better than time alone, and the newest best.
        """
        keys = set(wanted)
        best: dict[Key, MeasurementRow] = {}
        anchors: dict[tuple[str, int], MeasurementRow] = {}
        for table in self._read(None):
            for values in table.to_pylist():
                row: MeasurementRow = records.row_of(MeasurementRow, values)
                key = Key(row.kind, row.subject_id, row.pass_, row.tf32, row.repetition)
                if row.kind == ANCHOR:
                    anchors[row.session_id, row.position] = row
                elif key in keys and (key not in best or _rank(row) >= _rank(best[key])):
                    best[key] = row  # segments come oldest first
        sessions = {row.session_id for row in best.values()}
        chosen = [*best.values(), *(row for row in anchors.values() if row.session_id in sessions)]
        return sorted(chosen, key=lambda row: (row.started_us, row.session_id, row.position))

    def write_telemetry(self, rows: Iterable[MeasurementRow], output: Path) -> None:
        """Write the telemetry taken during `rows` to one file, segment by segment, so that memory stays flat.

        Raises
        ------
        DataFileError
            If a segment is damaged.
        OutputError
            If `output` cannot be written.
        """
        windows = _windows(rows)
        with files.table_writer(output, TELEMETRY_SCHEMA) as writer:
            for table in read_segments(self.telemetry_folder, TELEMETRY_SCHEMA):
                kept = _inside(table, windows)
                if kept.num_rows:
                    writer.write_table(kept)

    def _read(self, columns: list[str] | None) -> Iterator[pa.Table]:
        for table in read_segments(self.rows_folder, MEASUREMENT_SCHEMA, columns):
            same_version = pc.equal(table["measurement_version"], MEASUREMENT_VERSION)
            yield table.filter(pc.and_(same_version, pc.equal(table["settings_id"], self.settings_id)))


def _has_energy(quantities: list[str] | None) -> bool:
    """Whether energy is among what was measured; rows of before time could be measured alone do not say."""
    return quantities is None or ENERGY in quantities


def _rank(row: MeasurementRow) -> tuple[bool, bool]:
    return row.status == OK, _has_energy(row.quantities)


def _windows(rows: Iterable[MeasurementRow]) -> dict[str, np.ndarray]:
    """Start and end (µs) of what was measured, by session: arrays of shape (n, 2), ascending."""
    windows: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        windows.setdefault(row.session_id, []).append((row.started_us, row.ended_us))
    return {session: np.array(sorted(spans), dtype=np.int64) for session, spans in windows.items()}


def _inside(table: pa.Table, windows: dict[str, np.ndarray]) -> pa.Table:
    sessions = table["session_id"].to_numpy(zero_copy_only=False)
    times = table["time_us"].to_numpy()
    keep = np.zeros(table.num_rows, dtype=bool)
    for session, spans in windows.items():
        mine = sessions == session
        # the last span that starts before the reading is the only one it can lie in: spans of a session do not overlap
        span = np.searchsorted(spans[:, 0], times, side="right") - 1
        keep |= mine & (span >= 0) & (times <= spans[np.maximum(span, 0), 1])
    return table.filter(pa.array(keep))
