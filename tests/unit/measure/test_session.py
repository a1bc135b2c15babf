"""Shards on a virtual GPU: what is measured, what is not measured again, what a kill leaves."""

import multiprocessing
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.gpu.sensing.sensors import AVERAGE, RING, SensorTraits
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.io.segments import segment_paths
from clockwatt.measure import session
from clockwatt.measure.calibrate.calibration import Calibration
from clockwatt.measure.reference_operations import anchors
from clockwatt.measure.session import measure_shard
from clockwatt.measure.steps.times import TIME_ALONE
from clockwatt.measure.store import Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema.layout import telemetry_file
from clockwatt.schema.records import CALL_SCHEMA, MEASUREMENT_SCHEMA, OPERATION_SCHEMA, TELEMETRY_SCHEMA
from support.handmade import operation, write_catalogue

ALL = Shard(1, 1, networks=False)


def measured(campaign: CampaignConfig, catalogue: Path, *, shard: Shard = ALL, point: str = "default", **options):
    folder = catalogue.parent
    output = folder / "measurements" / point / f"{shard}".replace("/", "-of-")
    measure_shard(
        campaign, label="a30", point=OperatingPoint.parse(point), shard=shard, catalogue_dir=catalogue,
        store_dir=folder / "store", output=output, **options,
    )  # fmt: skip
    rows = files.read_table(output, MEASUREMENT_SCHEMA).to_pandas()
    return (
        rows[rows["kind"] != "anchor"],
        rows[rows["kind"] == "anchor"],
        files.read_table(telemetry_file(output), TELEMETRY_SCHEMA).to_pandas(),
    )


def test_every_operation_has_a_row_and_anchors_stand_around_them(campaign, catalogue) -> None:
    rows, anchor_rows, telemetry = measured(campaign, catalogue)
    assert Counter(rows["status"]) == {"ok": 10, "out_of_memory": 2}
    assert rows.loc[rows["status"] != "ok", "error"].str.contains("needs 800.0 GB").all()
    assert Counter(anchor_rows["subject_id"]) == {row.operation_id: 2 for row in anchors()}
    assert anchor_rows["position"].min() == 0
    assert anchor_rows["position"].max() > rows["position"].max()
    assert rows["virtual"].all()
    assert (rows["gpu_name"] == "virtual A30").all()
    assert set(telemetry["lane"]) == {"ring", "fast", "slow"}


def test_what_a_row_says_is_plausible(campaign, catalogue) -> None:
    rows, _, _ = measured(campaign, catalogue)
    spec = find_spec("a30")
    ok = rows[(rows["status"] == "ok") & (rows["time_device_s"] > 0)]
    assert (ok["time_eager_s"] >= 0.98 * ok[["time_host_s", "time_device_s"]].max(axis=1)).all()
    assert ok["power_w"].between(0.9 * spec.power_w.idle, 1.05 * spec.power_w.default).all()
    assert (ok["power_w"] > ok["power_idle_w"]).all()
    assert ok["energy_j"].to_numpy() == pytest.approx((ok["power_w"] * ok["time_eager_s"]).to_numpy())
    assert ok["energy_dynamic_j"].between(0, ok["energy_j"], inclusive="neither").all()
    capped = ok[ok["sm_clock_median_mhz"] < spec.boost_clock_mhz]
    assert len(capped)
    assert capped["throttle_reasons"].map(list).map(lambda reasons: "sw_power_cap" in reasons).all()
    views = rows[rows["time_device_s"] == 0]
    assert len(views) == 2
    assert (views["energy_dynamic_j"] == 0).all()
    assert (views["time_host_s"] > 0).all()


@pytest.mark.parametrize(
    ("sensors", "window_max_s", "said"),
    [
        ({AVERAGE: SensorTraits(0.1, 1.0)}, 0.8, "Set measurement.window_max_s to 1.2 or more"),
        ({AVERAGE: SensorTraits(0.1, 1.0)}, 1.2, None),
        ({AVERAGE: SensorTraits(0.1, 1.0), RING: SensorTraits(0.02, 0.02)}, 0.8, None),
        ({}, 0.8, None),
    ],
)
def test_sensors_too_slow_for_the_longest_window_are_named_at_the_start(
    campaign, catalogue, capsys, sensors, window_max_s, said
) -> None:
    settings = campaign.measurement.model_copy(update={"window_max_s": window_max_s})
    short = campaign.model_copy(update={"measurement": settings})
    measured(short, catalogue, calibration=Calibration(sensors))
    printed = capsys.readouterr().err
    assert printed.count("needs a window") == (said is not None)
    if said:
        assert "a30: its quickest power sensor, power_average, needs a window of 1.20 s" in printed
        assert said in printed


def test_a_locked_clock_is_what_runs(campaign, catalogue) -> None:
    rows, _, telemetry = measured(campaign, catalogue, point="sm900")
    assert (rows["requested_sm_clock_mhz"] == 900).all()
    assert set(rows["sm_clock_median_mhz"].dropna()) == {900}
    assert not rows["flags"].map(list).map(lambda flags: "clock_off_target" in flags).any()
    assert set(telemetry["sm_clock_mhz"].dropna()) == {900}


def test_a_clock_that_the_gpu_lacks_names_its_neighbours(campaign, catalogue) -> None:
    with pytest.raises(ClockwattError, match=r"901 MHz.*900"):
        measured(campaign, catalogue, point="sm901")


def test_whole_networks_take_the_same_way(campaign, catalogue) -> None:
    write_catalogue(
        catalogue, [operation(10**n, pass_=pass_) for pass_ in ("inference", "training") for n in (3, 5, 7)]
    )
    rows, _, _ = measured(campaign, catalogue, shard=Shard(1, 1, networks=True))
    assert Counter(rows["kind"]) == {"network": 2}
    assert (rows["status"] == "ok").all()
    assert (rows["energy_dynamic_j"] > 0).all()


def test_a_second_run_measures_nothing(campaign, catalogue, capsys) -> None:
    first, *_ = measured(campaign, catalogue)
    again, *_ = measured(campaign, catalogue)
    assert "12 of 12 already measured" in capsys.readouterr().err
    assert first.equals(again)


def test_more_shards_measure_nothing_twice(campaign, catalogue) -> None:
    whole, _, telemetry = measured(campaign, catalogue)
    parts = [measured(campaign, catalogue, shard=Shard(number, 3, networks=False)) for number in (1, 2, 3)]
    assert sorted(row for rows, *_ in parts for row in rows["subject_id"] + rows["pass"]) == sorted(
        whole["subject_id"] + whole["pass"]
    )
    assert {session for rows, *_ in parts for session in rows["session_id"]} == set(whole["session_id"])
    load = telemetry[telemetry["lane"] == "fast"]
    anchors_twice = sum(len(part[part["lane"] == "fast"]) for *_, part in parts) - len(load)
    assert 0 <= anchors_twice < 2 * len(load)


def test_a_network_more_measures_only_what_is_new(campaign, catalogue) -> None:
    first, *_ = measured(campaign, catalogue)
    write_catalogue(catalogue, [operation(256), operation(10**6), operation(12345)])
    rows, *_ = measured(campaign, catalogue)
    assert len(rows) == 3
    assert len(set(rows["session_id"]) - set(first["session_id"])) == 1
    assert (~rows["session_id"].isin(first["session_id"])).sum() == 1


def test_failures_are_measured_again_when_asked(campaign, catalogue) -> None:
    first, *_ = measured(campaign, catalogue)
    again, *_ = measured(campaign, catalogue, retry_failed=True)
    assert first.equals(again)  # what does not fit into memory has not failed


def test_rows_of_another_measurement_version_do_not_count(campaign, catalogue, monkeypatch) -> None:
    measured(campaign, catalogue)
    monkeypatch.setattr("clockwatt.measure.store.MEASUREMENT_VERSION", 10**6)
    assert Store(catalogue.parent / "store", campaign, "a30", OperatingPoint()).finished() == {}


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": {"a30": {"device": "virtual:v100", "clocks_mhz": ["default"]}}},
        {"measurement": {"window_min_s": 0.7}},
        {"training": {"optimizer": "adam"}},
        {"seed": 7},
    ],
)
def test_other_settings_are_measured_anew_and_back_again_nothing_is(campaign, catalogue, change) -> None:
    first, *_ = measured(campaign, catalogue)
    changed = config.parse(campaign.model_dump(mode="json") | change)
    other, *_ = measured(changed, catalogue)
    assert len(other) == len(first)
    assert not set(other["session_id"]) & set(first["session_id"])
    again, *_ = measured(campaign, catalogue)
    assert again.equals(first)


def test_settings_that_measure_the_same_measure_nothing_anew(campaign, catalogue) -> None:
    first, *_ = measured(campaign, catalogue)
    same = {"telemetry": {"segment_s": 2.0}, "measurement": {"repetitions": 1, "idle_s": 2.0}, "shards": 4}
    again, *_ = measured(config.parse(campaign.model_dump(mode="json") | same), catalogue)
    assert again.equals(first)


def test_a_missing_catalogue_says_what_to_run(campaign, tmp_path) -> None:
    with pytest.raises(DataFileError, match=r"operations\.parquet: no such file"):
        measured(campaign, tmp_path / "catalogue")


def test_repetitions_and_both_tf32_settings_are_rows_of_their_own(catalogue) -> None:
    campaign = config.parse(
        {
            "campaign": "test",
            "gpus": {"a30": {"device": "virtual:a30", "tf32": [True, False]}},
            "networks": [{"name": "toy", "input": [8, 64]}],
            "passes": ["inference"],
            "measurement": {"repetitions": 2},
        }
    )
    rows, *_ = measured(campaign, catalogue)
    assert len(rows) == 6 * 2 * 2
    assert list(rows.sort_values("position")["repetition"]) == [0] * 12 + [1] * 12


def test_the_order_is_shuffled_and_the_seed_decides_it(campaign, catalogue) -> None:
    def order(seed: int) -> list[str]:
        seeded = campaign.model_copy(update={"seed": seed})
        rows, *_ = measured(seeded, catalogue, point="sm900")
        for path in segment_paths(catalogue.parent / "store" / "a30" / "sm900" / "rows"):
            path.unlink()
        return list((rows["subject_id"] + rows["pass"])[rows["position"].sort_values().index])

    assert order(1) == order(1) != order(2)


def measure_many(catalogue: Path, campaign: CampaignConfig) -> None:
    session._SEGMENT_S = 0.3  # for good: this process is the test's own
    measured(campaign, catalogue)


def test_a_kill_loses_only_what_was_under_way(campaign, catalogue) -> None:
    many = 800  # that takes many times as long as a segment
    write_catalogue(catalogue, [operation(1000 + n, pass_="inference") for n in range(many)])
    process = multiprocessing.get_context("spawn").Process(target=measure_many, args=(catalogue, campaign))
    process.start()

    def finished() -> int:
        keys = Store(catalogue.parent / "store", campaign, "a30", OperatingPoint()).finished()
        return sum(key.kind == "operation" for key in keys)

    while process.is_alive() and not finished():  # the first segment may hold anchors alone
        time.sleep(0.02)
    process.kill()
    process.join()
    operations_kept = finished()
    assert 0 < operations_kept < many
    rows, _, telemetry = measured(campaign, catalogue)
    assert len(rows) == many
    sizes = Counter(rows["session_id"])
    assert sorted(sizes.values()) == sorted([operations_kept, many - operations_kept])
    # telemetry of both sessions is there
    assert set(telemetry["session_id"]) == set(sizes)


def time_alone(campaign: CampaignConfig) -> CampaignConfig:
    return campaign.model_copy(update={"quantities": ["time"]})


def test_time_alone_measures_times_as_they_are_and_nothing_else(campaign, catalogue) -> None:
    quick, quick_anchors, _ = measured(time_alone(campaign), catalogue)
    assert {tuple(quantities) for quantities in [*quick["quantities"], *quick_anchors["quantities"]]} == {("time",)}
    assert Counter(quick["status"]) == {"ok": 10, "out_of_memory": 2}
    for column in quick.columns:
        if column.startswith(("power_", "energy_", "sm_clock_", "window_")):
            assert quick[column].isna().all(), column
            assert quick_anchors[column].isna().all(), column
    full, *_ = measured(campaign, catalogue)
    assert {tuple(quantities) for quantities in full["quantities"]} == {("time", "energy")}
    both = quick.merge(full, on=["subject_id", "pass"], suffixes=("", "_full"))
    ok = both[both["status"] == "ok"]
    assert len(ok) == 10
    for column in ("time_host_s", "time_device_s"):
        assert ok[column].to_numpy() == pytest.approx(ok[f"{column}_full"].to_numpy(), rel=0.01)
    training = ok[(ok["pass"] == "training") & (ok["time_device_s"] > 0)]
    paces = training["time_device_s"] > TIME_ALONE.in_pass.longest_call_s
    assert training["time_host_in_pass_s"].isna().tolist() == paces.tolist()
    assert paces.sum() == 1
    short = training[~paces]
    assert short["time_host_in_pass_s"].to_numpy() == pytest.approx(
        short["time_host_in_pass_s_full"].to_numpy(), rel=0.04
    )
    work = ok[ok["time_device_s"] > 0]
    assert work["time_eager_s"].isna().all()
    assert (work["duration_s"] < 0.2 * work["duration_s_full"]).all()


def test_energy_is_measured_where_time_alone_was_and_not_the_other_way_round(campaign, catalogue, capsys) -> None:
    measured(time_alone(campaign), catalogue)
    full, *_ = measured(campaign, catalogue)
    assert "0 of 12 already measured" in capsys.readouterr().err
    again, *_ = measured(time_alone(campaign), catalogue)
    assert "12 of 12 already measured" in capsys.readouterr().err
    assert again.equals(full)


def test_an_operation_of_the_catalogue_may_ask_for_other_quantities_than_the_campaign(campaign, catalogue) -> None:
    table = files.read_table(catalogue / "operations.parquet", OPERATION_SCHEMA)
    asked = [["time"], ["time", "energy"], None] * 4
    column = table.schema.get_field_index("measured_quantities")
    table = table.set_column(
        column, OPERATION_SCHEMA.field(column), pa.array(asked, OPERATION_SCHEMA.field(column).type)
    )
    files.write_table(table, catalogue / "operations.parquet")
    rows, anchor_rows, _ = measured(time_alone(campaign), catalogue)
    ids = zip(table["operation_id"].to_pylist(), table["pass"].to_pylist(), asked, strict=True)
    wanted = {(name, pass_): tuple(quantities or ["time"]) for name, pass_, quantities in ids}
    assert {(row["subject_id"], row["pass"]): tuple(row["quantities"]) for _, row in rows.iterrows()} == wanted
    assert anchor_rows["power_w"].notna().all(), "where one asks for energy, the anchors tell of power"


def test_whole_networks_are_timed_alone_and_cut_where_the_queue_is_too_short(campaign, catalogue) -> None:
    write_catalogue(catalogue, [operation(10**3, pass_=pass_) for pass_ in ("inference", "training")])
    calls = files.read_table(catalogue / "calls.parquet", CALL_SCHEMA).to_pylist()
    long = [call | {"position": n} for call in calls if call["pass"] == "training" for n in range(1500)]
    kept = [call for call in calls if call["pass"] != "training"]
    files.write_table(pa.Table.from_pylist(kept + long, CALL_SCHEMA), catalogue / "calls.parquet")
    rows, *_ = measured(time_alone(campaign), catalogue, shard=Shard(1, 1, networks=True))
    by_pass = rows.set_index("pass")
    assert by_pass["time_device_method"].to_dict() == {"inference": "queued", "training": "segments"}
    assert (by_pass["time_eager_s"] >= 0.98 * by_pass[["time_host_s", "time_device_s"]].max(axis=1)).all()
    assert rows["power_w"].isna().all()
    assert not rows["flags"].map(len).any()


def test_a_shard_that_is_to_stop_keeps_what_it_has_and_goes_on(campaign, catalogue, capsys) -> None:
    rows, anchor_rows, _ = measured(campaign, catalogue, stop_after_s=0.0)
    assert len(rows) == len(anchor_rows) == 0, "anchors belong to sessions that measured something"
    assert "with 12 left to measure" in capsys.readouterr().err
    rows, *_ = measured(campaign, catalogue, stop_after_s=1e6)
    assert len(rows) == 12
    assert "left to measure" not in capsys.readouterr().err
