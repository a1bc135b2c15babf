"""`predict --measure-missing` and `--measure-whole` on a virtual GPU: what is measured, what stays, what is said."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from clockwatt.cli.main import app
from clockwatt.errors import ClockwattError
from clockwatt.predict.measure_missing import Stop
from clockwatt.predict.request import Request
from clockwatt.schema.records import ANCHOR, OPERATION
from clockwatt.schema.records import NETWORK as NETWORK_KIND

SHIPPED = Path(__file__).parents[3] / "resources/predictors"
NETWORK = ["support.small_networks:normalised", "--input", "4096,16", "--gpu", "a30", "--point", "sm900"]


@pytest.fixture
def campaign(made, tmp_path):
    """The synthetic campaign's file, with a results folder that may be written to."""
    content = made.config.model_dump(mode="json", exclude_unset=True) | {"results_dir": str(tmp_path / "results")}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def ask(made, campaign, capsys):
    """Put a question; its answer as read from JSON, or the text with `as_json=False`."""

    def run(*options, as_json=True, network=NETWORK):
        folders = ["--predictors-dir", made.predictors, "--catalogue-dir", made.catalogue]
        if any(option.startswith("--measure") for option in options):
            folders += ["--config", campaign]
        arguments = ["predict", *network, *options, *map(str, folders), *(["--json"] if as_json else [])]
        with pytest.raises(SystemExit) as ended:
            app(arguments, prog_name="clockwatt")
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        return json.loads(printed) if as_json else printed

    return run


@pytest.mark.parametrize(
    ("text", "stop"),
    [("20", Stop(operations=20)), ("30s", Stop(seconds=30)), ("5%", Stop(width=0.05)), ("0.5s", Stop(seconds=0.5))],
)
def test_when_to_stop_is_read(text, stop) -> None:
    assert Stop.parse(text) == stop


@pytest.mark.parametrize("text", ["", "many", "-3", "1.5", "5 %%", "nan", "inf"])
def test_another_stop_is_refused(text) -> None:
    with pytest.raises(ClockwattError, match=r"write how many operations \(20\)"):
        Stop.parse(text)


def test_what_is_least_certain_is_measured_and_stays(ask) -> None:
    cold = ask()
    assert "measured_now" not in cold
    two = ask("--measure-missing", "2")
    now = two["measured_now"]
    assert (now["operations"], now["looked_up"]) == (2, 0)
    assert now["half_width"] < now["half_width_before"]
    assert two["measured_calls"] > cold["measured_calls"]
    assert two["expected"]["device_s"] != cold["expected"]["device_s"]
    again = ask("--measure-missing", "0")
    assert (again["measured_now"]["operations"], again["measured_now"]["looked_up"]) == (0, 2)
    assert again["expected"]["device_s"] == two["expected"]["device_s"]


def test_all_of_it_is_measured_down_to_a_width(ask) -> None:
    answer = ask("--measure-missing", "0%")
    found = answer["measured_now"]
    assert found["left"] == 0
    assert found["half_width"] < 0.1  # what composing itself misses is part of it, and gaps between kernels of 1 µs
    assert found["half_width"] < found["half_width_before"] / 1.5
    # what was measured of whole networks tells of time and energy: device and host have their intervals all the same
    assert set(answer["intervals"]) == {"time_s", "device_s", "host_s", "energy_j", "power_w"}
    low, high = answer["intervals"]["device_s"]
    assert (high - low) / 2 / answer["expected"]["device_s"] == pytest.approx(found["half_width"], rel=0.05)
    wide = ask("--measure-missing", "99%")["measured_now"]
    assert wide["operations"] == 0


def test_a_pass_whose_operations_all_are_measured_asks_for_none(ask, made) -> None:
    network = made.config.networks[0]
    shape = ",".join(map(str, network.input))
    answer = ask("--measure-missing", "5", network=[network.name, "--input", shape, *NETWORK[3:]])
    assert (answer["measured_now"]["operations"], answer["measured_now"]["left"]) == (0, 0)


def test_energy_is_measured_where_it_is_less_certain_than_the_time(ask, campaign) -> None:
    cold, answer = ask(), ask("--measure-missing", "60s")
    now = answer["measured_now"]
    assert 0 < now["energies"] <= now["operations"]
    assert 0 < now["energies_s"] < now["seconds"] < 60
    assert now["energy_half_width"] < now["energy_half_width_before"] / 2
    assert now["energy_half_width"] < now["half_width_before"]
    assert answer["expected"]["energy_j"] != cold["expected"]["energy_j"]
    again = ask("--measure-missing", "0", as_json=False)
    assert "Energy of" not in again, "what is in the store is not measured again"
    assert ask("--measure-missing", "0")["expected"]["energy_j"] == answer["expected"]["energy_j"]
    tables = [pq.read_table(path) for path in campaign.parent.rglob("*.parquet") if "telemetry" not in str(path)]
    rows = pa.concat_tables(tables, promote_options="default").to_pandas()
    references = rows[rows["kind"] == ANCHOR]
    assert not references.empty
    assert references["time_device_s"].notna().all()
    assert references["energy_j"].isna().all(), "a session of seconds only times them"
    assert not references.duplicated(["session_id", "subject_id"]).any()


def test_a_long_session_reads_idle_power_again(ask, campaign) -> None:
    content = yaml.safe_load(campaign.read_text())
    content["measurement"] = content.get("measurement", {}) | {"check_every_s": 10.1, "idle_s": 12}
    campaign.write_text(yaml.safe_dump(content))
    ask("--measure-whole", "--measure-missing", "60s")
    rows = pd.concat(map(pd.read_parquet, campaign.parent.rglob("rows/*.parquet")))
    assert len(set(rows["session_id"])) == 1
    assert len(set(rows.loc[rows["energy_j"].notna(), "power_idle_w"])) > 1


def test_the_pass_itself_is_measured(ask, campaign) -> None:
    found = ask("--measure-whole", "--measure-missing", "0%")
    rows = pd.concat(map(pd.read_parquet, campaign.parent.rglob("rows/*.parquet")))
    assert set(rows["kind"]) == {ANCHOR, OPERATION, NETWORK_KIND}
    assert len(set(rows["session_id"])) == 1, "the GPU is opened once"
    of_energy = rows[rows["energy_j"].notna()]
    assert NETWORK_KIND in set(of_energy["kind"])
    assert len(set(of_energy["power_idle_w"])) == 1, "and idle power read once"
    whole = found["measured"]
    assert (found["source"], found["time_s"], found["energy_j"]) == ("measured", whole["time_s"], whole["energy_j"])
    assert whole["time_s"] == pytest.approx(found["composed"]["time_s"], rel=0.5)
    assert whole["energy_j"] > 0
    said = ask("--measure-missing", "1", "--measure-whole", as_json=False)
    assert "Measured now: 0 operations" in said or "Measured now: 1 operations" in said
    assert " W, measured" in said.splitlines()[0]


def test_a_choice_is_measured_and_made_again(made, campaign, capsys):
    def choose(*options):
        folders = ["--predictors-dir", made.predictors, "--catalogue-dir", made.catalogue]
        asked = ["recommend", *NETWORK[:5], "--objective", "time", *options, *map(str, folders), "--json"]
        with pytest.raises(SystemExit) as ended:
            app(asked, prog_name="clockwatt")
        assert ended.value.code == 0
        return json.loads(capsys.readouterr().out)

    cold, measured = choose(), choose("--measure-missing", "3", "--config", str(campaign))
    assert "measured_now" not in cold
    assert measured["measured_now"]["a30"]["operations"] == 3
    points = {one["point"]: one for one in cold["candidates"]}
    for one in measured["candidates"]:
        ratio = one["expected"]["device_s"] / points[one["point"]]["expected"]["device_s"]
        assert ratio != 1.0, "what was missed at one clock is missed at the others"
        assert 0.5 < ratio < 2.0
    best = measured["best"]
    assert best["measured_calls"] > points[best["point"]]["measured_calls"]


def test_predictors_of_another_gpu_are_told_by_no_measurement(made, campaign) -> None:
    content = yaml.safe_load(campaign.read_text())
    content["gpus"]["a30"]["device"] = "NVIDIA A30"
    campaign.write_text(yaml.safe_dump(content))
    folders = ["--predictors-dir", made.predictors, "--catalogue-dir", made.catalogue, "--config", campaign]
    with pytest.raises(ClockwattError, match="is NVIDIA A30 in the campaign, but these predictors are of virtual A30"):
        app(["predict", *NETWORK, "--measure-missing", "3", *map(str, folders)], prog_name="clockwatt")


@pytest.mark.usefixtures("ready")
def test_without_the_gpu_one_sentence_says_so(made, campaign) -> None:
    content = yaml.safe_load(campaign.read_text())
    content["gpus"] = {"h200": {"device": "NVIDIA H200"}}
    campaign.write_text(yaml.safe_dump(content))
    network = ["alexnet", "--input", "3,3,96,96", "--gpu", "h200"]
    folders = ["--predictors-dir", SHIPPED, "--catalogue-dir", made.catalogue, "--config", campaign]
    # in a process of its own: a stand-in of NVML may be loaded in this one
    command = [sys.executable, "-m", "clockwatt", "predict", *network, "--measure-missing", "3", *map(str, folders)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "error: measuring needs NVIDIA H200 in this machine" in ended.stderr


def test_a_point_that_the_campaign_lacks_is_told(made, campaign) -> None:
    folders = ["--predictors-dir", made.predictors, "--catalogue-dir", made.catalogue, "--config", campaign]
    options = [*NETWORK[:-1], "sm1050", "--measure-missing", "3", *map(str, folders)]
    with pytest.raises(ClockwattError, match="has no such operating point"):
        app(["predict", *options], prog_name="clockwatt")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("sm900",), "give --measure-missing"),
        (("sm900", "--measure-missing", "3x"), "write how many operations"),
        (("sm1050", "--measure-missing", "3"), "has no such operating point"),
        (("sm900", "--measure-missing", "3"), "Slurm is not installed here"),
    ],
)
def test_what_no_job_could_answer_is_refused_before_one_waits(made, campaign, monkeypatch, options, said) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    folders = ["--predictors-dir", made.predictors, "--catalogue-dir", made.catalogue, "--config", campaign]
    with pytest.raises(ClockwattError, match=said):
        app(["predict", *NETWORK[:-1], *options, "--slurm", *map(str, folders)], prog_name="clockwatt")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(ClockwattError, match="this is a Slurm job already" if "installed" in said else said):
        app(["predict", *NETWORK[:-1], *options, "--slurm", *map(str, folders)], prog_name="clockwatt")


def test_a_job_is_asked_the_request_as_json(made, campaign, monkeypatch, tmp_path, capfd) -> None:
    asked = tmp_path / "asked"
    stand_in = tmp_path / "srun"
    stand_in.write_text(f'#!/bin/sh\ncat > {asked}\necho "$@" > {asked}.words\necho answered\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    folders = ["--predictors-dir", made.predictors, "--catalogue-dir", made.catalogue, "--config", campaign]
    options = ["--slurm", "--measure-missing", "3", "--json", *map(str, folders)]
    with pytest.raises(SystemExit):
        app(["predict", *NETWORK, *options], prog_name="clockwatt")
    request = Request.from_json(asked.read_text())
    assert (request.network, request.inputs, request.gpus, request.points) == (
        NETWORK[0],
        ("4096,16",),
        ("a30",),
        ("sm900",),
    )
    assert (request.measure_missing, request.predictors_dir) == ("3", made.predictors)
    assert asked.with_suffix(".words").read_text().split()[-4:] == ["predict", "--request", "-", "--json"]
    assert capfd.readouterr().out == "answered\n"
