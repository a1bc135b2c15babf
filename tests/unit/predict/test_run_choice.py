"""`clockwatt recommend --run`: the program runs at the choice, recorded, and stands beside what was predicted."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from clockwatt.cli.main import app
from clockwatt.errors import ClockwattError
from support import ready_clockwatt

pytestmark = pytest.mark.usefixtures("ready")
NETWORK = ["support.small_networks:normalised", "--input", "4096,16", "--gpu", "a30"]


@pytest.fixture
def options(made, tmp_path):
    """Options of a recommendation and of a run into an empty folder."""
    content = made.config.model_dump(mode="json", exclude_unset=True) | {"results_dir": str(tmp_path / "results")}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    folders = {
        "--predictors-dir": made.predictors,
        "--catalogue-dir": made.catalogue,
        "--config": tmp_path / "config.yaml",
        "--output": tmp_path / "record",
    }
    return [*NETWORK, "--run", *(str(word) for pair in folders.items() for word in pair)]


def run(options, *command):
    """Return the exit status."""
    with pytest.raises(SystemExit) as ended:
        app(["recommend", *options, "--", *command], prog_name="clockwatt")
    return ended.value.code or 0


@pytest.mark.parametrize("status", [0, 3])
def test_a_program_runs_at_the_choice_and_stands_beside_the_prediction(options, tmp_path, capfd, status):
    program = f"import time; print('trained', flush=True); time.sleep(0.6); raise SystemExit({status})"
    assert run([*options, "--json", "--passes", "10"], sys.executable, "-c", program) == status
    printed = capfd.readouterr()
    answer = json.loads(printed.out)
    assert "trained\n" in printed.err
    told, best = answer["run"], answer["candidates"][0]
    record = json.loads((tmp_path / "record" / "summary.json").read_text())
    assert (told["gpu"], told["point"]) == (best["gpu"], best["point"]) == ("a30", record["point"])
    assert told["virtual"]
    assert told["status"] == status
    assert told["took"]["time_s"] == record["runs"][0]["time_s"] > 0.6
    assert told["took"]["energy_j"] == pytest.approx(told["took"]["power_w"] * told["took"]["time_s"], rel=0.3)
    assert told["predicted"]["energy_j"] == pytest.approx(
        10 * told["predicted"]["power_w"] * answer["best"]["predicted"]["time_s"], rel=0.05
    )


def test_without_passes_only_power_is_compared(options, capfd):
    assert run(options, sys.executable, "-c", "print('trained')") == 0
    said = capfd.readouterr().out
    assert said.index("least energy") < said.index("trained") < said.index("Ran on a30 at sm")
    (power,) = [line for line in said.splitlines() if "from the prediction" in line]
    assert "mean power" in power


@pytest.mark.parametrize("device", ["virtual:a30", "NVIDIA A30"])
def test_a_job_records_at_the_choice_with_the_resources_of_the_campaign(options, tmp_path, monkeypatch, device):
    content = yaml.safe_load((tmp_path / "config.yaml").read_text())
    content["gpus"]["a30"]["device"] = device
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    stand_in = tmp_path / "srun"
    stand_in.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nexit 7\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert run([*options, "--slurm"], "python", "train.py") == 7
    words = (tmp_path / "words").read_text().split()
    recorded = words[words.index("record") :]
    assert recorded[:4] == ["record", "--output", str(tmp_path / "record"), "--point"]
    assert recorded[4].startswith("sm")
    named = recorded[recorded.index("--gpu") + 1] if "--gpu" in recorded else None
    assert named == ("virtual:a30" if device == "virtual:a30" else None), "a job sees no other real GPU than its own"
    assert recorded[-3:] == ["--", "python", "train.py"]
    assert "--ntasks=1" in words


@pytest.mark.parametrize(
    ("changed", "command", "said"),
    [
        ([], [], "--run needs a program"),
        ([], ["nosuchprogram"], "nosuchprogram: no such program"),
        (["--gpus-per-node", "2", "--pass", "training", "--links", "h100-nvlink"], ["true"], "are for one GPU"),
        (["--slurm"], ["true"], "this is a Slurm job already"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_the_choice(options, monkeypatch, changed, command, said):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr("clockwatt.cli.recommend.loaded", None)
    with pytest.raises(ClockwattError, match=said):
        run([*options, *changed], *command)


def test_a_campaign_that_is_missing_is_named_before_the_choice(options, tmp_path, monkeypatch):
    monkeypatch.setattr("clockwatt.cli.recommend.loaded", None)
    (tmp_path / "config.yaml").unlink()
    with pytest.raises(ClockwattError, match=r"config\.yaml: no such file"):
        run(options, "true")


def test_a_program_that_fails_is_not_compared(options, capfd):
    assert run([*options, "--passes", "1"], "false") == 1
    said = capfd.readouterr().out
    assert "it ended with status 1, so times do not compare:" in said
    assert "from the prediction" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_record(options, tmp_path, number):
    """A record that is killed would leave the clock locked."""
    marker = tmp_path / "begun"
    words = [*options, "--", "sh", "-c", f"touch {marker}; exec sleep 60"]
    command = [sys.executable, "-m", "clockwatt", "recommend", *words]
    # in a fork where its process group is not what the signal goes to
    served = ready_clockwatt.environment() if number == signal.SIGTERM else {"PYTHONPATH": ""}
    environ = os.environ | served | {"PYTHONPATH": os.pathsep.join([served["PYTHONPATH"], *sys.path])}
    process = subprocess.Popen(command, env=environ, start_new_session=True, stdout=subprocess.DEVNULL)
    while not marker.exists():
        assert process.poll() is None
        time.sleep(0.05)
    if number == signal.SIGINT:  # as of a terminal: to all
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.wait(600) == 128 + number
    record = json.loads((tmp_path / "record" / "record.json").read_text())
    assert record["complete"]
    assert record["runs"][0]["status"] == 128 + number


def test_slurm_that_is_not_installed_is_named(options, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ClockwattError, match="Slurm is not installed"):
        run([*options, "--slurm"], "true")


def test_a_record_is_not_overwritten(options, tmp_path):
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "notes").touch()
    with pytest.raises(ClockwattError, match="exists already"):
        run(options, "true")


def test_a_program_without_run_is_refused():
    with pytest.raises(ClockwattError, match="nothing runs without --run"):
        run(NETWORK, "true")


def test_another_gpu_than_the_chosen_is_named(options, tmp_path, monkeypatch):
    content = yaml.safe_load((tmp_path / "config.yaml").read_text())
    content["gpus"]["a30"]["device"] = "NVIDIA A30"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ClockwattError, match=r"a30 was chosen, which is NVIDIA A30, .* on no GPU. Add --slurm"):
        run(options, "true")
    assert not (tmp_path / "record").exists()
