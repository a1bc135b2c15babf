import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clockwatt.errors import DataFileError, OutputError
from clockwatt.io import files
from clockwatt.io.segments import read_segments
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import (
    CALIBRATION_SCHEMA,
    CALL_SCHEMA,
    MEASUREMENT_SCHEMA,
    SCHEMA_VERSION,
    CallRow,
    MeasurementRow,
    table_of,
)

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


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.symlink_to(path)
    with pytest.raises(DataFileError, match=r"rows\.parquet"):
        files.read_table(path, CALL_SCHEMA)


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
    with pytest.raises(DataFileError, match=r"calls\.parquet: damaged .* Delete it and run the workflow, or the stage"):
        files.read_table(path, CALL_SCHEMA)
    with (
        files.damaged_set_aside(),
        pytest.raises(DataFileError, match=r"damaged .* set aside as calls\.parquet\.damaged"),
    ):
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


@pytest.mark.parametrize(
    "of_strings", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_a_file_that_pandas_or_polars_wrote_is_read(tmp_path: Path, of_strings: pa.DataType) -> None:
    row = MeasurementRow(kind="operation", subject_id="a", pass_="inference", gpu="g", point="default", execution=TF32,
                         dtype="float32", throttle_reasons=["sw_power_cap"])  # fmt: skip
    table = table_of([row, row], MEASUREMENT_SCHEMA)
    types = {pa.string(): of_strings, pa.int64(): pa.float64(), pa.list_(pa.string()): pa.large_list(pa.large_string())}
    columns = {
        name: pa.nulls(2) if column.null_count == 2 else column.cast(types.get(column.type, column.type))
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    assert files.read_table(tmp_path / "rows.parquet", MEASUREMENT_SCHEMA).equals(table)
    table.to_pandas().to_parquet(tmp_path / "pandas.parquet")
    assert files.read_table(tmp_path / "pandas.parquet", MEASUREMENT_SCHEMA).equals(table)


def test_a_fraction_is_no_integer(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    table = table_of([ROW], CALL_SCHEMA)
    index = table.schema.get_field_index("position")
    pq.write_table(table.set_column(index, "position", pa.array([0.5])), path)
    with pytest.raises(DataFileError, match=r"calls\.parquet: .*0\.5"):
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
    with pytest.raises(OutputError, match=r"cannot be written \(.*\)\. Name a file in a folder\.$"):
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


def _measurements(path: Path, version: int, column: str) -> None:
    """A file of measurements as another version of clockwatt wrote it, with the energy's column under that name."""
    row = MeasurementRow(kind="operation", subject_id="a", pass_="inference", gpu="g", point="default", execution=TF32,
                         dtype="float32", energy_dynamic_unthrottled_j=2.0)  # fmt: skip
    table = table_of([row], MEASUREMENT_SCHEMA)
    names = [column if name == "energy_dynamic_unthrottled_j" else name for name in table.column_names]
    metadata = MEASUREMENT_SCHEMA.metadata | {b"schema_version": str(version).encode()}
    pq.write_table(table.rename_columns(names).replace_schema_metadata(metadata), path)


def test_a_column_is_read_under_its_former_name(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    _measurements(path, 1, "energy_dynamic_paced_j")
    name = "energy_dynamic_unthrottled_j"
    assert files.read_table(path, MEASUREMENT_SCHEMA)[name].to_pylist() == [2.0]
    assert files.read_table(path, MEASUREMENT_SCHEMA, [name])[name].to_pylist() == [2.0]
    (batch,) = files.read_batches(path, MEASUREMENT_SCHEMA, ["gpu", name])
    assert batch.to_pylist() == [{"gpu": "g", name: 2.0}]
    (segment,) = read_segments(tmp_path, MEASUREMENT_SCHEMA)
    assert segment[name].to_pylist() == [2.0], "the store is read too"


def test_a_file_of_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    _measurements(path, SCHEMA_VERSION + 1, "energy_dynamic_unthrottled_j")
    with pytest.raises(DataFileError, match=r"1\.parquet: .* A newer clockwatt wrote it: update this one\."):
        files.read_table(path, MEASUREMENT_SCHEMA)


def test_batches_hold_all_rows_in_order_and_no_more_than_they_may(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "BATCH_ROWS", 3)
    path = tmp_path / "calls.parquet"
    files.write_table(table_of([replace(ROW, position=number) for number in range(8)], CALL_SCHEMA), path)
    batches = list(files.read_batches(path, CALL_SCHEMA, ["position"]))
    assert [batch.num_rows for batch in batches] == [3, 3, 2]
    assert [value for batch in batches for value in batch["position"].to_pylist()] == list(range(8))
