"""Sensors on one grid, correlations against those computed by hand, and figures that say what is missing."""

import json

import numpy as np
import pandas as pd
import pytest

from clockwatt import config
from clockwatt.errors import ClockwattError, ConfigError, DataFileError
from clockwatt.figures.style import styled
from clockwatt.schema.records import TELEMETRY_SCHEMA
from clockwatt.studies.relations import draw, sensors
from clockwatt.studies.relations.table import COLUMNS, summary_table
from clockwatt.studies.workloads import stage
from clockwatt.studies.workloads.names import command_of, figure_names

SECONDS = np.arange(30.0)


def telemetry(**columns):
    """Telemetry with these columns, a reading each second."""
    frame = pd.DataFrame(dict.fromkeys(TELEMETRY_SCHEMA.names), index=range(len(SECONDS)))
    return frame.assign(time_s=SECONDS + 0.2, **columns).infer_objects()


def gpu(**columns):
    power = 100 + 10 * np.sin(SECONDS)
    told = {"temperature_c": 40 + SECONDS // 5, "memory_clock_mhz": 1215, "memory_used_bytes": 2.0**30}
    return telemetry(power_average_w=power, **(told | columns))


def host(**columns):
    told = {"host_cpu_utilization_percent": [[20.0, second] for second in SECONDS], "host_memory_used_bytes": 5e9}
    return telemetry(**(told | columns))


def test_what_is_not_there_is_named_and_what_never_changes_too():
    found = sensors.sensors_of(gpu(), host(), 30.0)
    assert {"memory_temperature_c", "pcie_tx_kib_s", "fan_speed_percent", "cpu_temperature_c"} <= set(found.missing)
    assert found.constant == [
        "memory_used_bytes", "memory_clock_mhz", "cpu0_utilization_percent", "host_memory_used_bytes"
    ]  # fmt: skip
    assert found.varying == ["power_w", "temperature_c", "cpu1_utilization_percent"]
    assert set(found.missing) | set(found.constant) | set(found.varying) == set(found.table.columns)


def test_readings_are_averaged_over_a_second_from_start_to_end():
    twice = gpu()
    later = twice.assign(time_s=twice["time_s"] + 0.5, power_average_w=200.0)
    found = sensors.sensors_of(pd.concat([twice, later]).sort_values("time_s"), host(), 10.5).table
    assert list(found.index) == [second + 0.5 for second in range(10)]
    np.testing.assert_allclose(found["power_w"], (100 + 10 * np.sin(SECONDS[:10]) + 200) / 2)


def test_a_second_without_readings_is_unknown():
    frame = gpu()
    frame.loc[4:6, "temperature_c"] = np.nan
    found = sensors.sensors_of(frame, host(), 30.0).table["temperature_c"]
    assert found.isna().tolist() == [4 <= second <= 6 for second in range(30)]


def test_power_of_a_cpu_is_what_its_counter_grew_and_unknown_where_it_wrapped():
    counter = [[50.0 * second if second < 20 else 50.0 * (second - 20)] for second in SECONDS]
    found = sensors.sensors_of(gpu(), host(host_cpu_energy_j=counter), 30.0).table["cpu_power_w"]
    assert found.dropna().tolist() == pytest.approx([50.0] * 28)
    assert np.isnan(found.iloc[20])


def test_correlations_are_those_of_numpy_and_leave_out_what_is_constant_or_missing():
    found = sensors.sensors_of(gpu(), host(), 30.0)
    told = sensors.correlations(found).set_index(["sensor", "other"])["correlation"]
    assert set(told.index.get_level_values(0)) == set(found.varying)
    by_hand = np.corrcoef(40 + SECONDS // 5, SECONDS)[0, 1]
    assert told["temperature_c", "cpu1_utilization_percent"] == pytest.approx(by_hand)
    assert told["cpu1_utilization_percent", "temperature_c"] == pytest.approx(by_hand)


def test_a_short_run_has_no_correlations():
    short = sensors.sensors_of(gpu(), host(), 5.0)
    assert sensors.correlations(short).empty
    with styled():
        figure = draw.draw_correlations(sensors.correlations(short), short, "fft", "a30")
    assert "no two sensors vary together" in figure.texts[0].get_text()


@pytest.mark.parametrize(
    ("sensor", "words"),
    [
        ("cpu_temperature_c", "CPU temperature"),
        ("cpu12_utilization_percent", "CPU 12 busy"),
        ("temperature_c", "GPU temperature"),
    ],
)
def test_sensors_have_names_for_people(sensor, words):
    assert sensors.in_words(sensor) == words


def test_time_is_drawn_with_a_line_for_each_cpu_and_says_what_is_missing():
    hot = [[50.0 + second, 60.0] for second in SECONDS]
    found = sensors.sensors_of(gpu(), host(host_cpu_temperature_c=hot), 30.0)
    with styled():
        figure = draw.draw_time(found, "fft", "a30 (virtual)")
    labels = {axes.get_ylabel(): len(axes.lines) for axes in figure.axes}
    assert labels == {"GPU (°C)": 1, "power (W)": 1, "memory (GiB)": 1, "CPU (°C)": 2, "CPU (%)": 2}
    assert "does not give: GPU busy" in figure.get_supxlabel()
    assert figure.axes[0].get_title(loc="left") == "fft, a30 (virtual)"


def test_a_matrix_has_a_number_in_each_cell_and_names_what_it_leaves_out():
    found = sensors.sensors_of(gpu(), host(), 30.0)
    with styled():
        figure = draw.draw_correlations(sensors.correlations(found), found, "fft", "a30")
    assert len(figure.axes[0].texts) == 9
    assert "Constant, so that nothing goes with it: memory used, memory clock" in figure.get_supxlabel()


def summary(status=0, **changes):
    told = dict.fromkeys(COLUMNS, 1.0) | {"memory_used_max_bytes": 12 * 2**30} | changes
    machine = {"cpu_utilization_percent": [10.0, 30.0], "cpu_temperature_max_c": None}
    notes = ["fft on cuda: data of the study's shapes was made; samples 16"]
    return {
        "gpus": [{"uuid": "GPU-1", "name": "NVIDIA A30", "virtual": False}],
        "runs": [{"gpus": {"GPU-1": told}, "host": machine, "notes": notes, "status": status, "time_s": 60.0}],
    }


def test_the_table_has_shares_and_means_and_null_for_what_is_unknown():
    (row,) = summary_table({"fft": summary(temperature_max_c=None)}).to_dict("records")
    assert row["memory_share"] == pytest.approx(0.5)
    assert row["cpu_utilization_percent"] == 20
    assert np.isnan(row["cpu_temperature_max_c"])
    assert np.isnan(row["temperature_max_c"])
    assert row["data"].startswith("data of the study's shapes was made")


def test_the_table_is_drawn_with_a_dash_for_what_is_unknown():
    table = summary_table({"fft": summary(temperature_max_c=None), "sepia": summary(temperature_max_c=None)})
    with styled():
        figure = draw.draw_table(table, "a30: NVIDIA A30")
    assert [text.get_text() for text in figure.axes[0].texts] == [" –", " –"]
    assert [text.get_text() for text in figure.axes[2].texts] == [" 50", " 50"]
    assert "A dash: not known on this machine (highest temperature)" in figure.get_supxlabel()


def test_of_an_unknown_gpu_the_share_of_memory_is_unknown():
    told = summary()
    told["gpus"][0]["name"] = "Matrox G400"
    assert summary_table({"fft": told})["memory_share"].isna().all()


def campaign(**study):
    content = {
        "campaign": "c", "gpus": {"v": {"device": "virtual:a30"}}, "studies": {"workloads": study},
        "networks": [{"name": "resnet18", "input": [1, 3, 32, 32]}],
    }  # fmt: skip
    return config.parse(content)


@pytest.mark.usefixtures("ready")
def test_the_study_records_names_what_failed_goes_on_where_it_was_and_draws(tmp_path, capfd):
    asked = {"workloads": ["sepia", "distance"], "seconds": 1.2, "rest_to_c": None, "idle_s": 0.5}
    with pytest.raises(ClockwattError, match=r"sepia \(status 1\) failed on v"):
        stage.run(campaign(**asked, data={"sepia": str(tmp_path)}), "v", tmp_path)
    assert not (tmp_path / stage.TABLE).exists()
    first = (tmp_path / "records/distance/record.json").stat().st_mtime_ns
    capfd.readouterr()
    stage.run(campaign(**asked), "v", tmp_path)
    assert "distance: recorded before." in capfd.readouterr().err
    assert (tmp_path / "records/distance/record.json").stat().st_mtime_ns == first
    table = pd.read_parquet(tmp_path / stage.TABLE)
    assert table["workload"].tolist() == ["sepia", "distance"]
    assert table["virtual"].all()
    assert (table["time_s"] > 1.2).all()
    assert table["power_mean_w"].between(20, 170).all()
    assert table["energy_difference"].abs().max() < 0.1

    stage.figures(campaign(**asked), "v", tmp_path)
    drawn = {path.stem for path in (tmp_path / stage.FIGURES).glob("*.png")}
    assert drawn == set(figure_names(["sepia", "distance"]))
    grid = pd.read_csv(tmp_path / "figures/time_sepia.csv")
    assert {"time_s", "power_w", "temperature_c"} <= set(grid.columns)


def test_only_a_record_of_the_same_command_that_ran_to_its_end_is_kept(tmp_path):
    run = {"number": 1, "start_ns": 1, "end_ns": 2, "status": 0}
    good = {
        "name": "fft", "command": ["python"], "folder": "/", "host": "h", "point": "default", "repeat": 1,
        "recorder": 1, "complete": True, "gpus": [], "versions": {}, "runs": [run],
    }  # fmt: skip
    changes = [{}, {"complete": False}, {"command": ["other"]}, {"runs": [run | {"status": 1}]}, {"runs": []}]
    kept = []
    for change in changes:
        (tmp_path / "record.json").write_text(json.dumps(good | change))
        kept.append(stage.is_finished(tmp_path, ["python"]))
    assert kept == [True, False, False, False, False]
    assert not stage.is_finished(tmp_path / "none", ["python"])


def test_a_campaign_without_the_study_and_a_folder_without_records_get_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"studies\.workloads: is not in the campaign"):
        stage.run(config.parse(campaign().model_dump(mode="json", exclude={"studies"})), "v", tmp_path)
    with pytest.raises(DataFileError, match="no such file"):
        stage.figures(campaign(), "v", tmp_path)


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ({"workloads": ["fft", "ftt"]}, "ftt"),
        ({"workloads": ["fft", "fft"]}, "is given twice"),
        ({"gpus": ["h100"]}, "no GPU is labelled 'h100'; the campaign has v"),
        ({"second": 3}, "did you mean 'seconds'?"),
        ({"scale": 0}, "greater than 0"),
    ],
)
def test_bad_keys_get_one_clear_line(study, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        campaign(**study)


def test_programs_beside_a_virtual_gpu_are_small_and_run_on_the_processor():
    study = campaign(data={"fft": "/data"}).studies.workloads
    virtual, real = (command_of("fft", study, seed=3, virtual=virtual) for virtual in (True, False))
    assert virtual[3:] == ["--device", "cpu", "--seed", "3", "--scale", "0.01", "--seconds", "60", "--data", "/data"]
    assert real[3:9] == ["--device", "cuda", "--seed", "3", "--scale", "1"]
