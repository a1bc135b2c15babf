"""Records of a study on a virtual GPU, and of one whose scripts really run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clockwatt import config
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.gpu.interface import NotSupportedError
from clockwatt.schema import layout
from clockwatt.studies.power import steps, tables
from clockwatt.studies.power.measure import RealRuns, measure_study
from clockwatt.studies.power.plan import planned_runs
from clockwatt.telemetry.recording.layout import read_record
from clockwatt.telemetry.recording.summary import summarise
from clockwatt.telemetry.recording.virtual import RealTimeGpu
from support.power_study import campaign


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.json*")}


def test_every_run_has_a_record_that_says_it_is_virtual(study_dir, tmp_path):
    runs = planned_runs(campaign(), "a30")
    for run in runs:
        record = read_record(run.folder(study_dir))
        assert (record.complete, record.point, record.gpus[0].virtual) == (True, str(run.point), True)
    folder = tmp_path / "record"
    shutil.copytree(runs[0].folder(study_dir), folder)
    summary = summarise(folder)
    assert summary["virtual"]
    phases = {phase["name"]: phase["count"] for phase in summary["runs"][0]["phases"]}
    assert phases == {"experiment": 1, "load": 1, "training": 1, "epoch": 4}
    (gpu,) = summary["runs"][0]["gpus"].values()
    assert gpu["rings"]["power_sample_w"]["lost"] == 0
    assert abs(gpu["energy_difference"]) < 0.02


def test_tables_have_a_row_for_each_run_and_epoch(study_dir):
    runs, epochs, readings = tables.read(study_dir)
    assert len(runs) == 3 * 6 * 2
    assert len(epochs) == 4 * len(runs)
    assert runs["virtual"].all()
    assert set(runs["data"]) == {"made"}
    held = runs[runs["network"] == "dense_16384"].groupby("point")["power_high_w"].mean()
    assert held["pl100"] == pytest.approx(100, rel=0.04)
    assert held["pl120"] == pytest.approx(120, rel=0.04)
    clocks = runs[runs["network"] == "dense_16384"].groupby("point")["sm_clock_mhz"].median()
    assert clocks["sm600"] == 600
    sums = epochs.groupby(["network", "point", "repetition"])["energy_j"].sum()
    whole = runs.set_index(["network", "point", "repetition"])["energy_j"]
    assert (sums / whole.reindex(sums.index) - 1).abs().max() < 0.01
    # readings apply to the time before them, so that sum and trapezoid differ by the first and last of a short run
    assert (runs["energy_summed_j"] / runs["energy_j"] - 1).abs().max() < 0.05
    assert set(readings["lane"]) == {"ring", "polled", "host"}


def test_a_study_goes_on_where_it_was(study_dir, tmp_path):
    folder = tmp_path / "a30"
    shutil.copytree(study_dir, folder)
    runs = planned_runs(campaign(), "a30")
    lost, kept = runs[5].folder(folder), runs[6].folder(folder)
    lost.rename(lost.with_name(lost.name + ".unfinished"))  # as a process leaves it that was killed
    before = content(kept)
    measure_study(campaign(), "a30", folder)
    assert content(kept) == before
    assert read_record(lost).complete
    assert not list(folder.rglob("*.unfinished"))
    assert len(tables.read(folder)[0]) == len(runs)


def test_a_killed_study_keeps_what_it_finished(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(config.dump(campaign(networks=["dense_512"], repetitions=20)))
    folder = tmp_path / "a30"
    command = [sys.executable, "-m", "clockwatt", "study-power-run", "--config", path, "--gpu", "a30"]
    process = subprocess.Popen([*map(str, command), "--study-dir", str(folder)])
    end_s = time.monotonic() + 600
    while len(list(folder.glob("records/*/*/*-????????"))) < 3:
        assert time.monotonic() < end_s
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("records/*/*/*-????????/record.json")}
    asked = {path: read_record(path.parent).complete for path in finished}
    assert all(asked.values())
    measure_study(campaign(networks=["dense_512"], repetitions=1), "a30", folder)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished


def test_a_damaged_record_is_named(study_dir, tmp_path):
    folder = tmp_path / "a30"
    shutil.copytree(study_dir, folder)
    first = planned_runs(campaign(), "a30")[0].folder(folder)
    (first / "run-1" / "marks" / "virtual.jsonl").write_text("")
    with pytest.raises(DataFileError, match=f"{first.name}: contains no training phase. Delete it"):
        measure_study(campaign(), "a30", folder)
    (folder / "records" / "baseline.json").write_text("{")
    shutil.rmtree(first)
    with pytest.raises(DataFileError, match=r"baseline\.json: is damaged"):
        measure_study(campaign(), "a30", folder)


def test_a_point_that_the_gpu_has_not_is_told_before_anything_runs(tmp_path):
    asked = campaign(gpus={"a30": {"power_limits_w": [100, 90]}})
    with pytest.raises(NotSupportedError, match=r"^studies\.power\.gpus\.a30: .*90 W is outside 100 to 165 W"):
        measure_study(asked, "a30", tmp_path)
    assert not list(tmp_path.rglob("record.json"))


def test_a_rest_that_is_too_short_is_told(tmp_path):
    study = {"networks": ["ecg_resnet"], "repetitions": 1, "rest_to_c": 20, "rest_max_s": 2}
    measure_study(campaign(**study), "a30", tmp_path)
    runs, _, _ = tables.read(tmp_path)
    assert all("after a rest of 2 s still warmer than 20 °C" in notes for notes in runs["notes"])


def test_another_optimizer_takes_another_time(tmp_path):
    study = {"networks": ["dense_16384"], "gpus": {"a30": {"clocks_mhz": [1440]}}, "repetitions": 1}
    times = []
    for optimizer in ("adam", "rmsprop"):
        measure_study(campaign(**study, optimizers={"dense_16384": optimizer}), "a30", tmp_path / optimizer)
        times.append(tables.read(tmp_path / optimizer)[0]["time_s"].item())
    assert times[1] < 0.95 * times[0]  # one state in place of two


def test_shipped_training_steps_are_those_of_the_networks(tmp_path):
    steps.trace_steps(tmp_path)
    for name in layout.CATALOGUE_FILES:
        fresh, shipped = (tables.pa.parquet.read_table(folder / name) for folder in (tmp_path, steps.steps_dir()))
        assert fresh.equals(shipped), f"{name}: run python -m clockwatt.studies.power.steps"


@pytest.mark.usefixtures("ready")
def test_a_script_is_run_and_recorded_on_a_gpu_that_is_there(tmp_path):
    study = {
        "networks": ["dense_512"], "gpus": {"a30": {"power_limits_w": [100]}}, "repetitions": 1, "epochs": 2,
        "examples": {"dense_512": 1280}, "idle_s": 0.3,
    }  # fmt: skip
    asked = campaign(**study)
    (run,) = planned_runs(asked, "a30")
    gpu = RealTimeGpu("a30")
    RealRuns(asked, "a30", gpu, device="cpu").record(run, run.folder(tmp_path), 120)
    tables.write([run], "a30", tmp_path)
    runs, epochs, _ = tables.read(tmp_path)
    assert (runs["network"].item(), runs["point"].item(), runs["data"].item()) == ("dense_512", "pl100", "made")
    assert runs["power_limit_w"].item() == 100
    assert len(epochs) == 2
    assert gpu.power_limit_w() == gpu.default_power_limit_w()
    summary = json.loads((run.folder(tmp_path) / "summary.json").read_text())
    assert summary["name"] == run.name


@pytest.mark.usefixtures("ready")
def test_a_script_that_fails_ends_the_study_with_what_to_do(tmp_path):
    asked = campaign(networks=["dense_512"], data={"dense_512": "/nowhere"}, repetitions=1, idle_s=0.3)
    run = planned_runs(asked, "a30")[0]
    with pytest.raises(ClockwattError, match=r"its script .*run it by hand: .*--data=/nowhere"):
        RealRuns(asked, "a30", RealTimeGpu("a30"), device="cpu").record(run, run.folder(tmp_path), 120)
