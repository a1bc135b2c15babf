"""Which rows and readings a shard is assembled from, however many parts the store is read in."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from clockwatt.config import OperatingPoint
from clockwatt.io import files
from clockwatt.measure.store import Key, Store, _row_groups_of
from clockwatt.schema import records
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import (
    ANCHOR,
    ENERGY,
    FAILED,
    MEASUREMENT_VERSION,
    OK,
    OPERATION,
    TIME,
    MeasurementRow,
    TelemetryRow,
)

BOTH, ALONE = [TIME, ENERGY], [TIME]


@pytest.fixture(params=[files.BATCH_ROWS, 3])
def store(request, campaign, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH_ROWS", request.param)
    return Store(tmp_path, campaign, "a30", OperatingPoint())


def row(store, subject, session, position, *, kind=OPERATION, status=OK, quantities=BOTH):
    return MeasurementRow(
        kind=kind, subject_id=subject, pass_="inference", gpu="a30", point="default", execution=TF32, dtype="float32",
        session_id=session, position=position, started_us=1000 * position, ended_us=1000 * position + 500,
        status=status, quantities=quantities, measurement_version=MEASUREMENT_VERSION, settings_id=store.settings_id,
    )  # fmt: skip


def key(subject):
    return Key(OPERATION, subject, "inference", TF32, 0)


def write(store, name, rows):
    files.write_table(records.table_of(rows, records.MEASUREMENT_SCHEMA), store.rows_folder / f"{name}.parquet")


def test_the_best_and_newest_row_of_each_key_with_the_anchors_of_its_session(store):
    write(
        store, "1",
        [
            row(store, "anchor", "first", 0, kind=ANCHOR),
            row(store, "twice", "first", 1),
            row(store, "failed-first", "first", 2, status=FAILED),
            row(store, "energy-first", "first", 3),
            row(store, "ok-first", "first", 4),
        ],
    )  # fmt: skip
    write(
        store, "2",
        [
            row(store, "anchor", "second", 5, kind=ANCHOR),
            row(store, "twice", "second", 6),
            row(store, "failed-first", "second", 7),
            row(store, "energy-first", "second", 8, quantities=ALONE),
            row(store, "ok-first", "second", 9, status=FAILED),
            row(store, "not-wanted", "second", 10),
        ],
    )  # fmt: skip
    write(store, "3", [row(store, "anchor", "third", 11, kind=ANCHOR), row(store, "not-wanted", "third", 12)])
    wanted = [key(subject) for subject in ("twice", "failed-first", "energy-first", "ok-first")]
    found = [(one.subject_id, one.session_id) for one in store.rows(wanted)]
    assert found == [
        ("anchor", "first"), ("energy-first", "first"), ("ok-first", "first"),
        ("anchor", "second"), ("twice", "second"), ("failed-first", "second"),
    ]  # fmt: skip
    assert store.rows([]) == []


def test_telemetry_is_that_of_the_rows_windows_and_other_sessions_are_not_read(store, tmp_path):
    rows = [row(store, "a", "mine", 1), row(store, "b", "mine", 2)]
    write(store, "1", rows)
    for session in ("mine", "other"):
        readings = [
            TelemetryRow(session_id=session, lane="fast", time_us=time_us, monotonic_ns=time_us * 1000)
            for time_us in range(900, 3000, 100)
        ]
        path = store.telemetry_folder / f"{session}.parquet"
        files.write_table(records.table_of(readings, records.TELEMETRY_SCHEMA), path)
        groups = _row_groups_of({"mine"}, pq.read_metadata(path))
        assert groups == ([0] if session == "mine" else [])
    output = tmp_path / "telemetry.parquet"
    store.write_telemetry(store.table(map(key, "ab")), output)
    written = files.read_table(output, records.TELEMETRY_SCHEMA)
    assert set(written["session_id"].to_pylist()) == {"mine"}
    assert written["time_us"].to_pylist() == [*range(1000, 1501, 100), *range(2000, 2501, 100)]
