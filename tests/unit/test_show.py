"""`clockwatt show`: what is printed and given as JSON, against the answers and the validation that it is made of."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pandas as pd
import pytest

import clockwatt
from clockwatt.cli.main import app
from clockwatt.cli.show import bars
from clockwatt.errors import ClockwattError

NETWORK = ["net24", "--pass", "inference", "--gpu", "a30", "--precision", "tf32"]


@pytest.fixture
def show(made, capsys, tmp_path):
    """Run `clockwatt show` on the synthetic campaign, laid out as results; give what it printed."""
    results = tmp_path / "results"
    (results / "dataset").mkdir(parents=True)
    for name in ("predictors", "validation"):
        (results / name).symlink_to(made.root / name)
    (results / "dataset" / "catalogue").symlink_to(made.catalogue)

    def run(*options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            app(["show", *options, "--results", str(results)], prog_name="clockwatt")
        assert ended.value.code == 0
        return capsys.readouterr().out

    return run


def test_every_point_has_what_was_measured_and_what_is_answered(show, made):
    (shown,) = json.loads(show(*NETWORK, "--json"))
    (gpu,) = shown["gpus"]
    assert [point["point"] for point in gpu["points"]] == ["sm900", "sm1200", "sm1440"]
    rows = pd.read_parquet(made.validation / "networks.parquet")
    of_network = (rows["network"] == "net24") & (rows["pass"] == "inference")
    own = rows[of_network & (rows["gpu"] == "a30") & (rows["execution"] == "tf32")]
    predictors = clockwatt.load(made.predictors, catalogue_dir=made.catalogue, validation_dir=made.validation)
    for point in gpu["points"]:
        of_point = own[own["point"] == point["point"]].set_index("source")
        assert point["measured"]["energy_j"] == of_point["measured_energy_j"].iloc[0]
        assert point["held_out"]["time_s"] == of_point.loc["predicted", "time_s"]
        answer = predictors.predict("net24", gpu="a30", point=point["point"], precision="tf32")
        of_memory = [text for text in answer.warnings if text.startswith("Memory is left out")]  # `show` states none
        assert len(of_memory) == 1
        answer = replace(answer, warnings=tuple(text for text in answer.warnings if text not in of_memory))
        but_for = {"predictors": gpu["predictors"], "notes": point["notes"]}
        assert point == json.loads(json.dumps(answer.to_dict())) | but_for
        assert (point["source"], point["energy_j"]) == ("measured", answer.measured.energy_j)


def test_a_table_with_intervals_and_bars_against_the_clock(show):
    printed = show(*NETWORK, "--point", "sm1000")
    assert "VIRTUAL" in printed
    lines = printed.splitlines()
    assert sum(re.search(r" measured +\d", line) is not None for line in lines) == 3
    assert sum(re.search(r" composed +\d", line) is not None for line in lines) == 3
    (predicted,) = [line for line in lines if re.search(r" predicted +\d", line)]
    assert predicted.startswith("sm1000 *")
    assert len(re.findall(r"\d \w+ \([\d.]+–[\d.]+\)", predicted)) == 3  # time, power and energy with their intervals
    verbose = show(*NETWORK, "--verbose")
    (energy,) = [line for line in verbose.splitlines() if line.split()[:1] == ["energy"]]
    assert re.search(r"[▁▂▃▄▅▆▇█]{3}  least .*J at sm(900|1200|1440)", energy)
    assert "sm900 to sm1440" in verbose
    assert energy not in lines
    assert sum(re.search(r" held out +\d", line) is not None for line in verbose.splitlines()) == 3
    for words in ("Error of the held-out predictions on the host of the measurement: time", "Predictors of a30: "):
        assert words in verbose
        assert words not in printed


def test_both_passes_and_all_gpus_of_the_campaign_without_a_choice(show):
    shown = json.loads(show("net24", "--json"))
    assert [one["pass"] for one in shown] == ["inference", "training"]
    assert all("a30" in {gpu["gpu"] for gpu in one["gpus"]} for one in shown)
    assert not any(gpu["predictors"].startswith("shipped") for one in shown for gpu in one["gpus"])


def test_without_a_network_each_is_told_where_it_took_least_energy(show, made):
    told = json.loads(show("--json"))
    rows = pd.read_parquet(made.validation / "networks.parquet").drop_duplicates(
        ["gpu", "network_id", "pass", "execution", "point"]
    )
    assert len(told) == rows.groupby(["gpu", "network_id", "pass", "execution"]).ngroups
    one = told[0]
    own = rows[(rows["gpu"] == one["gpu"]) & (rows["network_id"] == one["network_id"])]
    own = own[(own["pass"] == one["pass"]) & (own["execution"] == one["execution"])].set_index("point")
    assert one["energy_j"] == own["measured_energy_j"].min() == own.loc[one["point"], "measured_energy_j"]
    assert one["less_energy"] == 1 - one["energy_j"] / own.loc[one["reference_point"], "measured_energy_j"]
    printed = show().splitlines()
    assert len(printed) == 1 + len(told)
    assert printed[1].startswith(f"  {one['network_id'].removesuffix('-float32')}, {one['pass']}, ")
    assert f", {one['gpu']} (VIRTUAL): " in printed[1]
    assert show("--most", "1").splitlines() == [
        *printed[:2],
        f"  … and {len(told) - 1} more: clockwatt show --most {len(told)}",
    ]


def test_without_a_network_a_gpu_and_a_pass_are_kept_to(show):
    found = json.loads(show("--gpu", "v100", "--pass", "training", "--json"))
    assert {(one["gpu"], one["pass"]) for one in found} == {("v100", "training")}
    assert json.loads(show("--gpu", "v100", "--json")) != found
    assert json.loads(show("--gpu", "V100", "--pass", "training", "--json")) == found


def test_python_shows_the_same_without_a_network(show, made):
    predictors = clockwatt.load(made.predictors, catalogue_dir=made.catalogue, validation_dir=made.validation)
    for asked, options in (({}, []), ({"gpu": "v100", "training": True}, ["--gpu", "v100", "--pass", "training"])):
        assert predictors.show(**asked).to_dict("records") == json.loads(show(*options, "--json"))
    assert predictors.show(gpu="Tesla V100-SXM2-16GB").equals(predictors.show(gpu="V100"))
    with pytest.raises(ClockwattError, match="no network was measured whole there; some were on h100 in inference"):
        clockwatt.load().show(gpu="a30")
    with pytest.raises(ClockwattError, match=r"^precision needs a network"):
        predictors.show(precision="bf16")


def test_bars_reach_from_the_least_to_the_most():
    assert bars([1.0, 2.0, 3.0, 8.0]) == "▁▂▃█"
    assert bars([5.0, 5.0]) == "▁▁"


def test_a_point_that_predict_refuses_is_left_out_with_the_same_reason(show, made):
    predictors = clockwatt.load(made.predictors, catalogue_dir=made.catalogue, validation_dir=made.validation)
    with pytest.raises(ClockwattError) as refused:
        predictors.predict("net24", gpu="a30", point="sm1440-pl120", precision="tf32")
    (shown,) = json.loads(show(*NETWORK, "--point", "sm1440-pl120", "--json"))
    assert [point["point"] for point in shown["gpus"][0]["points"]] == ["sm900", "sm1200", "sm1440"]
    (reason,) = shown["left_out"]
    assert str(refused.value).startswith(reason)
    assert reason.startswith("a30: sm1440-pl120 was not measured. To estimate it, measure at least")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["net24", "--gpu", "k80"], "--gpu k80: no predictors for this GPU; there are predictors for a30"),
        (["net24", "--pass", "sideways"], "--pass sideways: choose inference or training"),
        (["resnet152"], "resnet152: not among the measured networks"),
        (["--gpu", "k80"], "--gpu k80: no predictors for this GPU; there are predictors for a30"),
        (["--input", "8,3"], "--input needs a network"),
        (["--precision", "bf16"], "--precision needs a network"),
        (["net24", "--gpu", "a30", "--point", "sm5000"], "^a30 cannot run at sm5000: it has 210 to 1440 MHz"),
    ],
)
def test_what_cannot_be_shown_is_one_message(made, options, message):
    with pytest.raises(ClockwattError, match=message):
        app(["show", *options, "--results", str(made.root)], prog_name="clockwatt", standalone_mode=False)


def test_predictors_that_learnt_nothing_are_told_as_such(made, tmp_path):
    for folder in ("catalogue", "predictors", "dataset"):
        shutil.copytree(made.root / folder, tmp_path / folder)
    for path in (tmp_path / "predictors").glob("*/description.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"passes": {}}))
    with pytest.raises(ClockwattError, match=r"predictors: no pass was fitted.*`clockwatt fit` again: it reports what"):
        app(["show", "net24", "--results", str(tmp_path)], prog_name="clockwatt", standalone_mode=False)


def test_shipped_measurements_are_shown_without_a_campaign(capsys):
    with pytest.raises(SystemExit):
        app(["show", "resnet50", "--pass", "inference", "--precision", "tf32", "--json"], prog_name="clockwatt")
    (shown,) = json.loads(capsys.readouterr().out)
    of = {gpu["gpu"]: gpu["points"][0] for gpu in shown["gpus"]}
    assert 0.005 < of["h200"]["measured"]["time_s"] < 0.0056  # 5.29 ms
    assert of["h100"]["source"] in ("measured", "composed"), "all of its operations are measured there"
    assert 2 < of["h100"][of["h100"]["source"]]["energy_j"] < 5


def test_training_is_shown_as_it_was_asked_for(show):
    with pytest.raises(ClockwattError, match="--accumulate is for training: give --pass training too"):
        show("net24", "--accumulate", "4")
    with pytest.raises(ClockwattError, match="--clip-norm needs a network"):
        show("--clip-norm", "1", "--pass", "training")


@pytest.mark.parametrize("command", ["show", "predict", "recommend"])
def test_a_step_of_decoding_is_no_training_step(command):
    with pytest.raises(ClockwattError, match="--cache-length is one step of decoding, and no training step"):
        app([command, "hf:llama.json", "--cache-length", "8", "--pass", "training"], prog_name="clockwatt")
