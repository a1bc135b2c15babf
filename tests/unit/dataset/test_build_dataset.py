import pandas as pd
import pyarrow.parquet as pq
import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.dataset.flagging import HOST_SPREAD_ABOVE, derived_flags
from clockwatt.errors import DamagedFileError, DataFileError
from clockwatt.io import files
from clockwatt.schema import layout, records, tables
from clockwatt.schema.flags import Flag
from support import synthetic


@pytest.fixture
def made(tmp_path):
    return synthetic.write_campaign(tmp_path, synthetic.campaign(networks=2))


def build(made):
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    return (
        files.read_table(made.dataset / "operations.parquet", tables.OPERATIONS_SCHEMA).to_pandas(),
        synthetic.read_json(made.dataset / "quality.json"),
    )


def test_every_row_is_in_the_dataset_and_knows_its_operation(made):
    operations, quality = build(made)
    measured = sum(pq.read_metadata(made.measurements / path).num_rows for path in made.config.measurement_files())
    joined = sum(
        pq.read_metadata(made.dataset / name).num_rows
        for name in ("operations.parquet", "networks.parquet", "anchors.parquet")
    )
    assert quality["rows"] == joined == measured
    assert quality["virtual_rows"] == measured
    assert operations["function"].notna().all()
    assert "spec" not in operations, "it stands in the catalogue"
    assert set(operations["operation_kind"]) == {"compute", "view"}
    assert (operations["anchor_time_factor"] == 1).all()
    assert all(point["missing_operations"]["count"] == 0 for point in quality["points"])
    calibration = files.read_table(made.dataset / "calibration.parquet", records.CALIBRATION_SCHEMA)
    assert set(calibration["gpu"].to_pylist()) == {"a30", "v100"}


def test_one_row_group_for_each_file_so_that_memory_stays_flat(made):
    build(made)
    assert pq.read_metadata(made.dataset / "operations.parquet").num_row_groups == 4


def test_a_dataset_of_many_batches_is_that_of_one(made, monkeypatch):
    path = layout.operations_file("a30", "sm900", 1)

    def edit(rows):
        slowed = [row for row in rows if row.kind == records.OPERATION and row.power_w is not None][1:]
        for number, row in enumerate(slowed):
            row.throttle_reasons, row.sm_clock_median_mhz = ["sw_power_cap"], 0.9 * row.sm_clock_median_mhz
            if number % 4:
                row.energy_dynamic_unthrottled_j = 1.25 * row.energy_dynamic_j
                row.energy_dynamic_unthrottled_standard_error_j = 0.0

    synthetic.change(made, path, edit)
    at_once, quality = build(made)
    assert (at_once["energy_dynamic_corrected_from"] == "estimated_from_clock").any()
    monkeypatch.setattr(files, "BATCH_ROWS", 31)
    in_batches, again = build(made)
    assert pq.read_metadata(made.dataset / "operations.parquet").num_row_groups > 4
    pd.testing.assert_frame_equal(in_batches, at_once)
    assert again == quality


def test_what_failed_what_is_missing_and_what_has_left_the_catalogue_is_counted(made):
    path = layout.operations_file("a30", "sm900", 1)

    def edit(rows):
        operations = [row for row in rows if row.kind == records.OPERATION]
        operations[0].status, operations[0].error = records.OUT_OF_MEMORY, "needs 30 GB"
        operations[1].subject_id = "gone"
        return operations[:-1]

    synthetic.change(made, path, edit)
    operations, quality = build(made)
    (point,) = [point for point in quality["points"] if (point["gpu"], point["point"]) == ("a30", "sm900")]
    assert point["by_status"]["out_of_memory"] == 1
    assert point["failures"][0]["error"] == "needs 30 GB"
    assert point["missing_operations"]["count"] == 2
    assert point["by_flag"] == {"not_in_catalogue": 1}
    gone = operations[operations["subject_id"] == "gone"]
    assert len(gone) == 1
    assert gone["function"].isna().all()


def test_own_flags_are_kept_beside_derived_ones(made):
    path = layout.operations_file("a30", "sm900", 1)

    def edit(rows):
        row = next(row for row in rows if row.kind == records.OPERATION)
        row.flags, row.throttle_reasons = ["not_stationary"], ["sw_power_cap", "hw_thermal_slowdown"]
        return rows

    synthetic.change(made, path, edit)
    operations, _ = build(made)
    flagged = [list(flags) for flags in operations["flags"] if len(flags)]
    assert flagged == [["hardware_throttled", "not_stationary", "power_capped"]]


def test_a_card_that_differs_is_flagged(made):
    path = layout.operations_file("a30", "sm900", 1)

    def edit(rows):
        second = [synthetic.again(row, gpu_uuid="GPU-other", session_id="other", repetition=1) for row in rows]
        for row in second:
            row.time_device_s *= 1.2
        return rows + second

    synthetic.change(made, path, edit)
    operations, quality = build(made)
    (point,) = [point for point in quality["points"] if (point["gpu"], point["point"]) == ("a30", "sm900")]
    factors = {uuid: card["anchor_time_factor"] for uuid, card in point["cards"].items()}
    assert factors == pytest.approx({"GPU-a30": 1 / 1.1, "GPU-other": 1.2 / 1.1}, rel=1e-3)
    other = operations[operations["gpu_uuid"] == "GPU-other"]
    assert all("card_differs" in flags for flags in other["flags"])
    assert other["anchor_time_factor"].to_numpy() == pytest.approx(1.2 / 1.1, rel=1e-3)


def test_every_row_knows_the_host_of_its_session(made):
    path = layout.operations_file("a30", "sm900", 1)

    def edit(rows):
        second = [synthetic.again(row, session_id="busy", repetition=1) for row in rows]
        for row in second:
            if row.kind == records.ANCHOR:
                row.time_host_s *= 1.5
        return rows + second

    synthetic.change(made, path, edit)
    operations, _ = build(made)
    networks = files.read_table(made.dataset / "networks.parquet", tables.NETWORKS_SCHEMA).to_pandas()
    at_point = operations[(operations["gpu"] == "a30") & (operations["point"] == "sm900")]
    factors = at_point.groupby("session_id")["anchor_host_factor"].unique().map(list).to_dict()
    assert factors == {"a30-sm900": pytest.approx([0.8], rel=0.02), "busy": pytest.approx([1.2], rel=0.02)}
    elsewhere = operations.drop(at_point.index)
    assert len(elsewhere)
    assert (elsewhere["anchor_host_factor"] == 1).all()
    assert (at_point["anchor_time_factor"] == 1).all(), "the card is the same"
    of_networks = networks.groupby(["gpu", "point"])["anchor_host_factor"].first()
    assert of_networks["a30", "sm900"] == factors["a30-sm900"][0]
    assert of_networks["a30", "sm1200"] == 1


@pytest.mark.parametrize(("varies", "flagged"), [(1.1, False), (1.4, True)])
def test_a_session_whose_host_varies_is_flagged_in_operations_and_networks(made, varies, flagged):
    path = layout.operations_file("a30", "sm900", 1)

    def edit(rows):
        for row in rows:
            if row.kind == records.ANCHOR and row.started_us > 0:
                row.time_host_s *= varies
        return rows

    synthetic.change(made, path, edit)
    operations, quality = build(made)
    networks = files.read_table(made.dataset / "networks.parquet", tables.NETWORKS_SCHEMA).to_pandas()
    for rows in (operations, networks):
        unsteady = rows["flags"].map(lambda flags: Flag.HOST_UNSTEADY in flags)
        assert (unsteady == (flagged & (rows["gpu"] == "a30") & (rows["point"] == "sm900"))).all()
    counted = {(point["gpu"], point["point"]) for point in quality["points"] if Flag.HOST_UNSTEADY in point["by_flag"]}
    assert counted == ({("a30", "sm900")} if flagged else set())


def test_a_host_is_unsteady_above_the_threshold_and_where_the_spread_is_known():
    spreads = [None, 0.0, HOST_SPREAD_ABOVE, HOST_SPREAD_ABOVE + 1e-9]
    rows = pd.DataFrame({
        "flags": None, "throttle_reasons": None, "power_w": 100.0, "power_idle_w": 50.0, "anchor_time_factor": 1.0,
        "anchor_power_factor": 1.0, "session_time_change": 0.0, "session_power_change": 0.0,
        "session_host_spread": spreads, "in_catalogue": True,
    })  # fmt: skip
    found = {flag: applies.tolist() for flag, applies in derived_flags(rows).items() if applies.any()}
    assert found == {Flag.HOST_UNSTEADY: [False, False, False, True]}


def test_without_anchors_hosts_are_not_known(made):
    path = layout.operations_file("a30", "sm900", 1)
    synthetic.change(made, path, lambda rows: [row for row in rows if row.kind == records.OPERATION])
    operations, _ = build(made)
    at_point = (operations["gpu"] == "a30") & (operations["point"] == "sm900")
    assert operations.loc[at_point, "anchor_host_factor"].isna().all()
    assert not operations["flags"].map(lambda flags: Flag.HOST_UNSTEADY in flags).any()
    assert operations.loc[~at_point, "anchor_host_factor"].notna().all()


@pytest.mark.parametrize("content", [b"", b"PAR1 not really", None])
def test_damaged_or_missing_measurements_are_named(made, content):
    path = made.measurements / layout.operations_file("a30", "sm1200", 1)
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataFileError, match=str(path)):
        build(made)
    assert not (made.dataset / "operations.parquet").exists()
    assert not list(made.dataset.glob(".*"))


def test_all_damaged_files_are_set_aside_at_once(made):
    damaged = [
        made.measurements / path
        for path in (*made.config.measurement_files()[1:3], made.config.calibration_files()[-1])
    ]
    for path in damaged:
        content = path.read_bytes()
        path.write_bytes(content[:100] + bytes([content[100] ^ 4]) + content[101:])
    before = set(made.measurements.rglob("*.parquet"))
    with pytest.raises(DamagedFileError) as raised:
        build(made)
    assert before - set(made.measurements.rglob("*.parquet")) == set(damaged)
    for path in damaged:
        assert str(path) in str(raised.value)
        assert path.with_name(f"{path.name}.damaged").exists()


def test_foreign_parquet_is_named(made):
    path = made.measurements / layout.operations_file("a30", "sm1200", 1)
    for foreign, words in (
        (made.catalogue / "calls.parquet", "holds no measurement rows"),
        (made.measurements / layout.networks_file("a30", "sm1200", 1), "holds rows of kind 'network'"),
    ):
        path.write_bytes(foreign.read_bytes())
        with pytest.raises(DataFileError, match=words):
            build(made)


def test_file_in_the_wrong_folder_is_refused(made):
    wrong = made.measurements / layout.operations_file("a30", "sm1200", 1)
    wrong.write_bytes((made.measurements / layout.operations_file("a30", "sm900", 1)).read_bytes())
    with pytest.raises(DataFileError, match="'sm900', not 'sm1200'"):
        build(made)
