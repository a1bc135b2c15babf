from pathlib import Path

import pytest

from clockwatt.errors import DataFileError
from clockwatt.io import segments
from clockwatt.io.segments import SegmentWriter, read_segments, segment_paths
from clockwatt.schema.records import CALL_SCHEMA, TELEMETRY_SCHEMA, CallRow, TelemetryRow


def row(position: int) -> CallRow:
    return CallRow(
        network_id="n", pass_="inference", position=position, phase="forward", operation_id="o", module_path="",
        tensors_in=[], tensors_out=[],
    )  # fmt: skip


def positions(folder: Path) -> list[int]:
    return sorted(
        value for table in read_segments(folder, CALL_SCHEMA, ["position"]) for value in table["position"].to_pylist()
    )


def test_every_flush_is_a_whole_file(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, CALL_SCHEMA, segment_s=0)
    for position in range(3):
        writer.add([row(position)])
        assert positions(tmp_path) == list(range(position + 1))
    assert len(segment_paths(tmp_path)) == 3


def test_merging_leaves_one_file_with_all_rows(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, CALL_SCHEMA, segment_s=0)
    for position in range(5):
        writer.add([row(position)])
    writer.merge()
    assert positions(tmp_path) == list(range(5))
    assert len(segment_paths(tmp_path)) == 1
    writer.add([row(5)])
    writer.merge()
    assert positions(tmp_path) == list(range(6))
    assert len(segment_paths(tmp_path)) == 1


def test_rows_wait_until_the_segment_is_due(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, CALL_SCHEMA, segment_s=3600)
    writer.add([row(0)])
    assert segment_paths(tmp_path) == []
    writer.flush()
    assert positions(tmp_path) == [0]


def test_a_segment_merged_away_while_reading_is_found_in_the_merged_one(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, CALL_SCHEMA, segment_s=0)
    writer.add([row(0)])
    writer.add([row(1)])
    reader = read_segments(tmp_path, CALL_SCHEMA, ["position"])
    seen = next(reader)["position"].to_pylist()
    writer.merge()
    for table in reader:
        seen += table["position"].to_pylist()
    assert set(seen) == {0, 1}


def test_two_writers_share_a_folder(tmp_path: Path) -> None:
    one, other = (SegmentWriter(tmp_path, CALL_SCHEMA, segment_s=0) for _ in range(2))
    one.add([row(0)])
    other.add([row(1)])
    one.merge()
    assert positions(tmp_path) == [0, 1]


def test_a_foreign_segment_is_named_and_refused(tmp_path: Path) -> None:
    SegmentWriter(tmp_path, TELEMETRY_SCHEMA, segment_s=0).add(
        [TelemetryRow(session_id="s", lane="fast", time_us=0, monotonic_ns=0)]
    )
    (path,) = segment_paths(tmp_path)
    with pytest.raises(DataFileError, match=f"{path.name}.*will be measured again"):
        list(read_segments(tmp_path, CALL_SCHEMA))


def test_no_folder_has_no_segments(tmp_path: Path) -> None:
    assert segments.segment_paths(tmp_path / "none") == []
