"""What a run began with is what its jobs read, whatever is edited while it goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from clockwatt import config
from clockwatt.errors import DataFileError
from clockwatt.workflow import snapshot
from support import ready_clockwatt
from support.workdir import REPOSITORY, SMALL, Workdir

CATALOGUE = "results/catalogue/operations.parquet"
SHARD = "results/measurements/a30/sm900/1.parquet"
CALIBRATION = "results/measurements/a30/sm900/calibration.parquet"
LATENCY_S = 600


def run_of(folder: Path) -> snapshot.Run:
    campaign = config.parse(SMALL | {"results_dir": str(folder)})
    return snapshot.Run(campaign, snapshot.Code.present(REPOSITORY, {"dataset": "0" * 16}, {}))


def job(workdir: Workdir, run: Path, target: str, *more: str) -> subprocess.CompletedProcess[str]:
    """One job as an executor starts it on a node: the edited config at hand, the snapshot named by the environment."""
    arguments = [
        "--force", "--no-hooks", "--nolock", "--ignore-incomplete", "--mode", "remote", "--retries", "0",
        "--target-jobs", target, "--cores", "1", "--latency-wait", str(LATENCY_S), *more,
    ]  # fmt: skip
    command = workdir.command(*arguments)
    at = command.index("--configfile")
    workdir.environment = {snapshot.VARIABLE: str(run)}
    return workdir.start([*command[:at], *command[at + 2 :]])


def test_a_queued_job_runs_its_one_rule_though_the_config_was_edited(finished):
    (run,) = (finished.path / "results/runs").iterdir()
    finished.configure(
        {"gpus": {"other": SMALL["gpus"]["a30"]}, "networks": [{"name": "vgg11", "input": [1, 3, 64, 64]}]}
    )
    before = (finished.path / CATALOGUE).stat().st_mtime_ns
    (finished.path / SHARD).unlink()
    done = job(finished, run.relative_to(finished.path), "measure:gpu=a30,point=sm900,shard=1")
    assert done.returncode == 0, done.stdout
    assert re.findall(r"rule (\w+):", done.stdout) == ["measure"]
    assert (finished.path / SHARD).exists()
    assert (finished.path / CATALOGUE).stat().st_mtime_ns == before


def test_a_job_does_not_wait_for_an_input_that_is_set_aside(finished):
    (run,) = (finished.path / "results/runs").iterdir()
    calibration = finished.path / CALIBRATION
    calibration.rename(f"{calibration}.damaged")
    target = "measure:gpu=a30,point=sm900,shard=1"
    began = time.monotonic()
    done = job(finished, run.relative_to(finished.path), target, "--wait-for-files", CALIBRATION)
    assert done.returncode == 1
    assert f"{CALIBRATION}: was damaged and is renamed" in done.stdout
    assert time.monotonic() - began < LATENCY_S


def test_an_edit_during_a_run_is_announced_and_counts_from_the_next_on(workdir):
    process = subprocess.Popen(
        workdir.command(CATALOGUE, SHARD), cwd=workdir.path, env=os.environ | ready_clockwatt.environment(),
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    deadline = time.monotonic() + 1200
    while not (workdir.path / "results/config.yaml").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    (workdir.path / "config.yaml").write_text("gpus: {a30: [half an edit")
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert f"{workdir.path}/config.yaml: was edited while this run went on" in said
    (run,) = (workdir.path / "results/runs").iterdir()
    assert yaml.safe_load((run / "config.yaml").read_text())["campaign"] == "small"


def test_a_snapshot_reads_back_and_is_written_once(tmp_path):
    run = run_of(tmp_path)
    run.write()
    written = run.config_file.stat().st_mtime_ns
    run.write()
    assert run.config_file.stat().st_mtime_ns == written
    assert snapshot.read(run.folder) == run


def test_a_snapshot_that_was_edited_is_refused(tmp_path):
    run = run_of(tmp_path)
    run.write()
    run.config_file.chmod(0o644)
    run.config_file.write_text(run.config_file.read_text().replace("small", "other"))
    with pytest.raises(DataFileError, match="was changed after this run began"):
        snapshot.read(run.folder)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    copied = tmp_path / "checkout"
    for folder in ("workflow", "src"):
        shutil.copytree(REPOSITORY / folder, copied / folder)
    shutil.copy(REPOSITORY / "Snakefile", copied)
    return copied


def test_sources_that_change_during_a_run_are_recorded(tmp_path, checkout):
    run = run_of(tmp_path)
    assert snapshot.check_sources(run, checkout) is None
    (checkout / "src/clockwatt/new.py").write_text("")
    assert "sources changed" in (snapshot.check_sources(run, checkout) or "")
    (recorded,) = run.folder.glob("sources-*.json")
    assert json.loads(recorded.read_text())["sources"] == snapshot.sources_digest(checkout)
    assert "the sources changed" in snapshot.changes(run, {}, checkout)[0]


def test_another_measurement_version_during_a_run_is_refused(tmp_path, checkout, monkeypatch):
    run = run_of(tmp_path)
    monkeypatch.setattr("clockwatt.schema.records.MEASUREMENT_VERSION", run.code.measurement_version + 1)
    with pytest.raises(DataFileError, match="Stop the run and start it again"):
        snapshot.check_sources(run, checkout)
