"""What runs again, and what does not, when a campaign changes or a run was killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread

from clockwatt.figures import style
from clockwatt.figures.names import figures
from support import ready_clockwatt
from support.workdir import MEASURED_ALL, METRICS, REPOSITORY, SMALL, jobs_of


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def nothing_measured_twice(workdir) -> None:
    twice = {key: times for key, times in workdir.measured().items() if times > 1}
    assert not twice


def test_all_that_the_workflow_promises_is_there(finished):
    for path in (
        "results/config.yaml",
        "results/catalogue/calls.parquet",
        "results/measurements/a30/sm900/1.parquet",
        "results/measurements/a30/sm900/telemetry-1.parquet",
        "results/measurements/a30/sm1440/networks-1.parquet",
        "results/measurements/a30/sm1440/calibration.parquet",
        "results/dataset/quality.json",
        "results/predictors/metrics.json",
        "results/validation/validation.json",
    ):
        assert (finished.path / path).stat().st_size > 0, path
    names = figures(["inference", "training"])
    drawn = {path.name: path for path in (finished.path / "results/figures").iterdir()}
    assert drawn.keys() == {f"{name}.{ending}" for name in names for ending in ("png", "pdf", "csv")}
    for name in names:
        pixels = imread(drawn[f"{name}.png"])
        assert pixels.shape[1] == pytest.approx(style.WIDTH_IN * 200, abs=1)
        assert (pixels[..., :3].min(axis=2) < 0.5).mean() > 0.002, "nothing but paper"
    assert (finished.path / "results/explore.html").stat().st_size < 4_000_000
    nothing_measured_twice(finished)


def test_a_second_run_does_nothing(finished):
    assert "Nothing to be done" in finished.run()


@pytest.mark.parametrize(
    ("deleted", "rules"),
    [
        (["dataset"], ["dataset"]),
        (["predictors"], ["fit"]),
        (["measurements"], ["calibrate", "measure", "measure_networks"]),
        (["measurements/a30/sm900/1.parquet"], ["measure"]),
        (["validation"], ["validate"]),
        (["figures", "explore.html"], ["figures", "page"]),  # which nothing else is made from
    ],
)
def test_deleted_results_are_made_again(finished, deleted, rules):
    for name in deleted:
        path = finished.path / "results" / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    planned = finished.run("-n")
    assert all(jobs_of(planned, rule) for rule in rules), planned


def test_slurm_resources_and_a_dry_run_change_nothing(finished):
    before = (finished.path / "results/config.yaml").read_text()
    finished.configure({"gpus": {"a30": SMALL["gpus"]["a30"] | {"slurm": {"runtime": 999}}}})
    assert "Nothing to be done" in finished.run("-n")
    assert (finished.path / "results/config.yaml").read_text() == before


def test_a_new_clock_and_then_a_new_network_are_measured_alone(finished):
    before = finished.measured()
    clocks = {"gpus": {"a30": SMALL["gpus"]["a30"] | {"clocks_mhz": [900, 1200, 1440]}}}
    finished.configure(clocks)
    planned = finished.run("-n", *MEASURED_ALL)
    assert [jobs_of(planned, rule) for rule in ("catalogue", "measure", "measure_networks")] == [0, 1, 1]
    finished.configure(clocks | {"networks": [*SMALL["networks"], {"name": "alexnet", "input": [1, 3, 64, 64]}]})
    output = finished.run(*MEASURED_ALL)
    assert [jobs_of(output, rule) for rule in ("catalogue", "calibrate", "measure")] == [1, 1, 3]
    assert finished.measured() > before
    nothing_measured_twice(finished)


def test_another_tracer_and_other_shards_make_the_catalogue_anew_and_measure_nothing_twice(finished, tmp_path):
    before, checkout = finished.measured(), copied_checkout(tmp_path)
    with (checkout / "src/clockwatt/operations/trace/tracer.py").open("a") as tracer:
        tracer.write("\nCHANGED = True\n")
    finished.configure({"shards": 3})
    output = finished.run("--snakefile", str(checkout / "Snakefile"), *MEASURED_ALL)
    jobs = [jobs_of(output, rule) for rule in ("catalogue", "calibrate", "measure", "dataset")]
    assert jobs == [1, 0, 6, 1]
    assert finished.measured() == before
    rows = [finished.path / f"results/measurements/a30/sm900/{shard}.parquet" for shard in (1, 2, 3)]
    subjects = [
        set(pq.read_table(path, filters=[("kind", "=", "operation")])["subject_id"].to_pylist()) for path in rows
    ]
    assert all(subjects)
    assert not subjects[0] & subjects[1] | subjects[0] & subjects[2] | subjects[1] & subjects[2]


def test_a_refit_that_fails_leaves_the_old_predictors_with_their_metrics(finished):
    predictors, dataset = finished.path / "results/predictors", finished.path / "results/dataset/operations.parquet"
    before, whole = contents(predictors), dataset.read_bytes()
    dataset.write_bytes(b"damaged")
    assert "operations.parquet: not a readable Parquet file" in finished.fails(METRICS)
    assert contents(predictors) == before
    dataset.write_bytes(whole)
    assert jobs_of(finished.run(METRICS), "fit") == 1
    assert contents(predictors) == before


def test_a_stage_runs_by_its_name_alone(finished):
    (finished.path / "config").mkdir()
    shutil.move(finished.path / "config.yaml", finished.path / "config/config.yaml")
    metrics = finished.path / METRICS
    before = metrics.read_bytes()
    metrics.unlink()
    command = [sys.executable, "-m", "clockwatt", "fit"]
    environment = os.environ | ready_clockwatt.environment()
    done = subprocess.run(command, cwd=finished.path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert metrics.read_bytes() == before


def copied_checkout(tmp_path):
    checkout = tmp_path / "checkout"
    for folder in ("workflow", "src", "resources", "envs", "profiles"):
        shutil.copytree(REPOSITORY / folder, checkout / folder, copy_function=shutil.copy)  # written now, not then
    shutil.copy(REPOSITORY / "Snakefile", checkout)
    return checkout


def test_a_copied_checkout_makes_nothing_anew(finished, tmp_path):
    finished.configure({"reference": ["h200"]})
    assert jobs_of(finished.run(*MEASURED_ALL), "dataset") == 1
    snakefile = copied_checkout(tmp_path) / "Snakefile"
    assert "Nothing to be done" in finished.run("--snakefile", str(snakefile), "-n", *MEASURED_ALL)


def test_a_killed_run_keeps_what_was_finished(workdir):
    # short segments, so that some are closed long before the shard is done
    names = ("densenet121", "efficientnet_b0", "mobilenet_v3_large")
    networks = [{"name": name, "input": [1, 3, 64, 64]} for name in names]
    workdir.configure({"telemetry": {"segment_s": 0.6}, "networks": networks})
    workdir.run("results/measurements/a30/sm900/calibration.parquet")
    process = subprocess.Popen(
        workdir.command("results/measurements/a30/sm900/1.parquet"), cwd=workdir.path, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 1200
    while not workdir.measured() and time.monotonic() < deadline:  # the first closed one may hold reference operations
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = workdir.measured()
    assert kept
    assert not (workdir.path / "results/measurements/a30/sm900/1.parquet").exists()
    segments = list(workdir.path.glob("results/store/a30/sm900/telemetry/*.parquet"))
    assert sum(pq.read_metadata(path).num_rows for path in segments) > 0

    workdir.run("--unlock")  # a killed Snakemake leaves its lock behind
    workdir.run("results/measurements/a30/sm900/1.parquet")
    assert kept < workdir.measured()
    nothing_measured_twice(workdir)
    telemetry = pq.read_table(workdir.path / "results/measurements/a30/sm900/telemetry-1.parquet")
    assert len(telemetry["session_id"].unique()) == 2
