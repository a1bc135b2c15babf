"""Packing reference data, on a few rows of those that are shipped."""

from pathlib import Path

import numpy as np
import pack_reference as packing
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clockwatt.errors import ClockwattError
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.schema import records

ROWS = 400
MEASURED = "measurements/h100/default/1.parquet"
OPERATIONS = "catalogue/operations.parquet"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of a few rows, whose numbers have all digits."""
    shipped, folder = resource("reference/h100"), tmp_path_factory.mktemp("results")
    for path in (path for path in shipped.rglob("*") if path.is_file()):
        copy = folder / path.relative_to(shipped)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    rows = files.read_table(folder / MEASURED, records.MEASUREMENT_SCHEMA)[:ROWS]
    rng = np.random.default_rng(0)
    for at, field in enumerate(rows.schema):
        if field.name in ("time_device_s", "time_host_s", "time_host_standard_error_s", "duration_s"):
            values = rows[field.name].to_numpy() * rng.uniform(1, 1.001, ROWS)
            rows = rows.set_column(at, field, pa.array(values, from_pandas=True))
        elif field.name in ("started_us", "ended_us"):
            rows = rows.set_column(at, field, pa.array(rows[field.name].to_numpy() + rng.integers(0, 1000, ROWS)))
    pq.write_table(rows, folder / MEASURED)
    operations = files.read_table(folder / OPERATIONS, records.OPERATION_SCHEMA)
    pq.write_table(operations.filter(pc.is_in(operations["operation_id"], rows["subject_id"])), folder / OPERATIONS)
    return folder


@pytest.fixture(scope="module")
def packed(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("packed") / "h100"
    packing.pack(results, target)
    return target


def both(results: Path, packed: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    key = ["subject_id", "pass", "execution", "session_id", "position"]
    was, now = (pd.read_parquet(folder / MEASURED).sort_values(key, ignore_index=True) for folder in (results, packed))
    pd.testing.assert_frame_equal(was[key], now[key])
    return was, now


def test_numbers_keep_the_digits_that_are_known(results: Path, packed: Path) -> None:
    was, now = both(results, packed)
    kept = {"time_device_s": 14, "time_host_s": 12, "time_host_in_pass_s": 12}
    for name in was.select_dtypes("floating").columns.drop("duration_s"):
        bits = 5 if "standard_error" in name else kept.get(name, 20)
        values = now[name].to_numpy(float)
        np.testing.assert_allclose(values, was[name].to_numpy(float), rtol=2.0**-bits, err_msg=name)
        steps = np.ldexp(np.frexp(values[np.isfinite(values)])[0], bits)
        assert (steps == np.rint(steps)).all(), f"{name} keeps more than {bits} bits"
    np.testing.assert_allclose(now["duration_s"], was["duration_s"], atol=1 / 256)
    for name in ("started_us", "ended_us"):
        assert (now[name] % 100_000 == 0).all()
        assert (was[name] - now[name]).between(0, 99_999).all()
    assert (now["time_device_s"] != was["time_device_s"]).any()


def test_all_else_is_as_it_was(results: Path, packed: Path) -> None:
    was, now = both(results, packed)
    rounded = [*was.select_dtypes("floating"), "started_us", "ended_us"]
    pd.testing.assert_frame_equal(was.drop(columns=rounded), now.drop(columns=rounded))
    key = ["operation_id", "pass"]
    catalogues = (
        pd.read_parquet(folder / OPERATIONS).sort_values(key, ignore_index=True) for folder in (results, packed)
    )
    pd.testing.assert_frame_equal(*catalogues)
    assert pd.read_parquet(packed / OPERATIONS)["spec"].is_monotonic_increasing


def test_packing_again_changes_nothing(packed: Path, tmp_path: Path) -> None:
    packing.pack(packed, tmp_path / "h100")
    names = sorted(path.relative_to(packed) for path in packed.rglob("*") if path.is_file())
    assert names == sorted(
        path.relative_to(tmp_path / "h100") for path in (tmp_path / "h100").rglob("*") if path.is_file()
    )
    for name in names:
        assert (tmp_path / "h100" / name).read_bytes() == (packed / name).read_bytes(), name


def test_rows_that_were_packed_before_are_not_added_again(results: Path, packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "1.parquet").write_bytes((results / MEASURED).read_bytes())
    packing.pack(packed, tmp_path / "h100", [folder], results / "catalogue")
    assert pq.read_metadata(tmp_path / "h100" / MEASURED).num_rows == ROWS


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("session_id", "another"),
        ("subject_id", "fedcba9876543210"),
        ("pass", "another"),
        ("execution", "fp32"),
        ("position", 10_000),
        ("kind", "another"),
        ("started_us", 1_800_000_000_000_000),
    ],
)
def test_rows_that_differ_in_one_thing_alone_are_all_kept(results: Path, tmp_path: Path, column: str, value) -> None:
    one = files.read_table(results / MEASURED, records.MEASUREMENT_SCHEMA)[:1]
    at = one.schema.get_field_index(column)
    other = one.set_column(at, one.schema.field(column), pa.array([value], one.schema.field(column).type))
    pq.write_table(pa.concat_tables([one, one, other]), tmp_path / "1.parquet")
    assert packing.merged([tmp_path / "1.parquet"]).num_rows == 2


def test_rows_of_operations_that_no_catalogue_has_are_refused(results: Path, packed: Path, tmp_path: Path) -> None:
    rows = files.read_table(results / MEASURED, records.MEASUREMENT_SCHEMA)
    unknown = pa.array(["0123456789abcdef"] * len(rows))
    folder = tmp_path / "measured"
    folder.mkdir()
    pq.write_table(
        rows.set_column(rows.schema.get_field_index("subject_id"), "subject_id", unknown), folder / "1.parquet"
    )
    with pytest.raises(ClockwattError, match=r"lacks \d of the operations .* such as 0123456789abcdef \(inference\)"):
        packing.pack(packed, tmp_path / "h100", [folder], results / "catalogue")
    assert not (tmp_path / "h100").exists()


def test_more_than_may_be_shipped_is_refused_and_nothing_replaced(
    results: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (packed / MEASURED).read_bytes()
    monkeypatch.setattr(packing, "MAX_BYTES", 1000)
    with pytest.raises(ClockwattError, match="more than 1,000"):
        packing.pack(results, packed)
    assert (packed / MEASURED).read_bytes() == before
