"""A flipped bit, a lost end or a lost column in a file never comes through as a value."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clockwatt.errors import DamagedFileError, DataFileError
from clockwatt.io import files, seal
from clockwatt.io.segments import SegmentWriter, read_segments
from clockwatt.schema.records import TELEMETRY_SCHEMA, TelemetryRow, table_of
from clockwatt.telemetry.sampling import FAST

FLIPS = 400


def rows(count):
    return [
        TelemetryRow(session_id="s", lane=FAST, time_us=time, monotonic_ns=time * 1000, power_instant_w=37.0 + time % 7)
        for time in range(count)
    ]


@pytest.fixture(params=[5, 2000])
def segment(request, tmp_path):
    writer = SegmentWriter(tmp_path / "rows", TELEMETRY_SCHEMA, 0)
    writer.add(rows(request.param))
    return next((tmp_path / "rows").glob("*.parquet"))


def flipped(content, seed):
    rng = random.Random(seed)
    damaged = bytearray(content)
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def test_a_whole_file_is_whole_and_any_reader_of_parquet_reads_it(segment):
    assert seal.is_whole(segment) is True
    assert pq.read_table(segment)["power_instant_w"][0].as_py() == 37.0


def test_what_ascends_is_stored_without_a_dictionary_and_reads_back(tmp_path):
    """Even where a clock is set back, and where some are not known."""
    given = [
        TelemetryRow(session_id="s", lane=FAST, time_us=time % 900 * 10**9, monotonic_ns=time**3,
                     read_ns=time if time % 3 else None, energy_counter_j=time / 7 if time % 5 else None)
        for time in range(2000)
    ]  # fmt: skip
    path = tmp_path / "telemetry.parquet"
    files.write_table(table_of(given, TELEMETRY_SCHEMA), path)
    assert files.read_table(path, TELEMETRY_SCHEMA).equals(table_of(given, TELEMETRY_SCHEMA))
    group = pq.read_metadata(path).row_group(0)
    found = {group.column(number).path_in_schema: group.column(number).encodings for number in range(group.num_columns)}
    assert all("DELTA_BINARY_PACKED" in found[name] for name in ("time_us", "monotonic_ns", "read_ns"))
    assert "BYTE_STREAM_SPLIT" in found["energy_counter_j"]
    assert "RLE_DICTIONARY" in found["session_id"]


def test_no_flipped_bit_comes_through(segment):
    whole, values = segment.read_bytes(), files.read_table(segment, TELEMETRY_SCHEMA)
    came_through = []
    for seed in range(FLIPS):
        segment.write_bytes(flipped(whole, seed))
        try:
            table = files.read_table(segment, TELEMETRY_SCHEMA)
        except DataFileError:
            continue
        if not table.equals(values):
            came_through.append(seed)
    assert not came_through


def test_a_footer_that_lost_a_column_is_no_null(segment):
    at = segment.read_bytes().rindex(b"power_instant_w")
    damaged = bytearray(segment.read_bytes())
    damaged[at] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(DamagedFileError, match="its digest is of other bytes"):
        files.read_table(segment, TELEMETRY_SCHEMA)


@pytest.mark.parametrize("end", [0, 0.5, 0.999])
def test_a_damaged_segment_is_named_set_aside_and_passed_over(segment, capsys, end):
    whole = segment.read_bytes()
    SegmentWriter(segment.parent, TELEMETRY_SCHEMA, 0).add(rows(3))
    segment.write_bytes(whole[: int(end * len(whole))])
    for _ in range(2):  # a reader leaves it where it is
        assert [table.num_rows for table in read_segments(segment.parent, TELEMETRY_SCHEMA)] == [3]
        assert str(segment) in capsys.readouterr().err
        assert segment.exists()
    with files.damaged_set_aside():
        assert [table.num_rows for table in read_segments(segment.parent, TELEMETRY_SCHEMA)] == [3]
    assert str(segment) in capsys.readouterr().err
    assert not segment.exists()
    assert segment.with_name(f"{segment.name}.damaged").exists()


def test_a_file_of_an_older_version_carries_no_digest_and_is_read(tmp_path):
    table = pa.table({"a": [1, 2]}, schema=pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    pq.write_table(table, tmp_path / "old.parquet")
    assert seal.is_whole(tmp_path / "old.parquet") is None
    assert files.read_table(tmp_path / "old.parquet", table.schema).equals(table)


def test_metadata_of_the_schema_stays(tmp_path):
    schema = pa.schema([pa.field("a", pa.int64())], metadata={"clockwatt": "kept"})
    files.write_table(pa.table({"a": [1]}, schema=schema), tmp_path / "a.parquet")
    assert (pq.read_schema(tmp_path / "a.parquet").metadata or {})[b"clockwatt"] == b"kept"
