import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clockwatt.errors import DataFileError, OutputError
from clockwatt.io import files
from clockwatt.schema.records import CALIBRATION_SCHEMA, CALL_SCHEMA, CallRow, table_of

ROW = CallRow(
    network_id="n",
    pass_="inference",
    position=0,
    phase="forward",
    operation_id="o",
    module_path="",
    tensors_in=[0],
    tensors_out=[1],
)


def test_a_table_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "calls.parquet"
    files.write_table(table_of([ROW], CALL_SCHEMA), path)
    assert files.read_table(path, CALL_SCHEMA).to_pylist() == [
        {name: getattr(ROW, "pass_" if name == "pass" else name) for name in CALL_SCHEMA.names}
    ]
    assert [entry.name for entry in path.parent.iterdir()] == ["calls.parquet"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text("old", path)

    def write_half() -> None:
        with files.written_aside(path) as aside:
            aside.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_results_are_readable_by_whom_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_text("x", tmp_path / "a.txt")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


def test_a_missing_file_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"none\.parquet: no such file\. Run the stage"):
        files.read_table(tmp_path / "none.parquet", CALL_SCHEMA)


@pytest.mark.parametrize("damage", [b"", b"PAR1 no", b"\x80\x04\x95 a pickle"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "calls.parquet"
    path.write_bytes(damage)
    with pytest.raises(DataFileError, match=r"calls\.parquet: not a readable Parquet file"):
        files.read_table(path, CALL_SCHEMA)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    files.write_table(table_of([ROW] * 1000, CALL_SCHEMA), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataFileError, match=r"damaged .* set aside as calls\.parquet\.damaged"):
        files.read_table(path, CALL_SCHEMA)


def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    files.write_table(table_of([ROW] * 1000, CALL_SCHEMA), path)
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    with pytest.raises(DataFileError, match="damaged"):
        files.read_table(path, CALL_SCHEMA)


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.parquet"
    files.write_table(table_of([], CALIBRATION_SCHEMA), path)
    with pytest.raises(DataFileError, match="holds no call rows: column 'network_id'"):
        files.read_table(path, CALL_SCHEMA)


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    table = table_of([ROW], CALL_SCHEMA)
    index = table.schema.get_field_index("position")
    pq.write_table(table.set_column(index, "position", pa.array(["first"])), path)
    with pytest.raises(DataFileError, match="column 'position' is of type string, not int64"):
        files.read_table(path, CALL_SCHEMA)


@pytest.fixture
def small_disk(tmp_path: Path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    assert mounted.returncode == 0, f"mounting a tmpfs needs root: {mounted.stderr}"
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs, which needs root")
def test_a_full_disk_is_one_message_and_leaves_nothing(small_disk: Path) -> None:
    path = small_disk / "calls.parquet"
    files.write_table(table_of([ROW], CALL_SCHEMA), path)
    whole = path.read_bytes()
    noise = pa.table({"x": pa.array([os.urandom(1000) for _ in range(1000)])})
    with pytest.raises(OutputError, match=r"calls\.parquet: cannot be written \(No space left on device\)"):
        files.write_table(noise, path)
    assert path.read_bytes() == whole
    assert list(small_disk.iterdir()) == [path]


def test_a_folder_that_is_a_file_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        files.write_text("x", tmp_path / "results" / "a.txt")


def test_a_nullable_column_that_an_older_version_did_not_write_is_null(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    files.write_table(table_of([ROW], CALL_SCHEMA), path)
    newer = CALL_SCHEMA.append(pa.field("later", pa.list_(pa.bool_()), nullable=True))
    assert files.read_table(path, newer)["later"].to_pylist() == [None]
    assert files.read_table(path, newer, ["later"]).to_pylist() == [{"later": None}]
    required = CALL_SCHEMA.append(pa.field("later", pa.int64(), nullable=False))
    with pytest.raises(DataFileError, match="column 'later' missing"):
        files.read_table(path, required)
