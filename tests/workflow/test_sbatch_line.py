"""The line with which Snakemake calls sbatch, caught by an sbatch that refuses everything."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clockwatt import config
from clockwatt.schema import layout
from support.workdir import METRICS, ON_SLURM, REPOSITORY, SMALL, Workdir

CATALOGUE = ("operations", "calls", "networks")
STAND_INS = {
    # one write a line, as several are submitted at once
    "sbatch": 'line=$(echo "$*" | tr "\\n" " "); echo "$line" >> "$CAUGHT"; echo refused >&2; exit 1',
    "sacctmgr": "echo vision",
    "sinfo": "echo 'common*'",
    "sacct": "exit 0",
    "squeue": "exit 0",
    "scontrol": "exit 1",
}


@pytest.fixture
def caught(workdir: Workdir, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that collects sbatch lines; catalogue and calibration are pretended to be there already."""
    programs = tmp_path_factory.mktemp("programs")
    for name, script in STAND_INS.items():
        program = programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    caught = workdir.path / "caught"
    workdir.environment = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "CAUGHT": str(caught)}
    for name in (*(f"catalogue/{name}.parquet" for name in CATALOGUE), "measurements/a30/sm900/calibration.parquet"):
        pretend(workdir, name)
    return caught


def pretend(workdir: Workdir, name: str) -> None:
    """Make an empty file in the results."""
    path = workdir.path / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def lines(
    workdir: Workdir, caught: Path, slurm: dict[str, dict[str, Any]], *targets: str, options: Sequence[str]
) -> list[list[str]]:
    """The sbatch lines of a campaign with a GPU for each part of `slurm`, each without the command that it wraps."""
    workdir.configure({"gpus": {name: SMALL["gpus"]["a30"] | {"slurm": asked} for name, asked in slurm.items()}})
    finished = workdir.snakemake(
        "--profile", str(REPOSITORY / "profiles/slurm"), "--slurm-init-seconds-before-status-checks", "1",
        *options, "--", *targets,
    )  # fmt: skip
    assert "refused" in finished.stdout, finished.stdout
    return [shlex.split(line.split(" --wrap=")[0]) for line in caught.read_text().splitlines()]


def resources(line: list[str]) -> list[str]:
    """The part of a line that says what is asked for: after the comment, before the working directory."""
    comment = line.index("--comment")
    return line[comment + 2 : line.index("-D")] + line[line.index("-D") + 2 :]


def test_what_a_job_asks_for_and_asks_for_when_it_is_tried_again(workdir, caught):
    by_gres = {
        "partition": "rivulet",
        "gres": "gpu:A30:1",
        "account": "vision",
        "nodelist": "gpu[01-02]",
        "qos": "high",
        "constraint": "nvlink",
        "extra": "--exclusive",
        "runtime": 90,
        "cpus_per_task": 6,
        "mem_mb": 24000,
    }
    for gpu in ("model", "retried"):
        pretend(workdir, f"measurements/{gpu}/sm900/calibration.parquet")
    found = lines(
        workdir, caught, {"a30": by_gres, "model": {"gpu": 1, "gpu_model": "a30"}, "retried": {"runtime": 30}},
        "results/measurements/a30/sm900/1.parquet", "results/measurements/model/sm900/networks-1.parquet",
        "results/measurements/retried/sm900/networks-1.parquet", options=("--retries", "1", "--keep-going"),
    )  # fmt: skip
    asked: dict[str, list[list[str]]] = {}
    for line in found:
        asked.setdefault(line[line.index("--comment") + 1], []).append(resources(line))
    assert {name: len(attempts) for name, attempts in asked.items()} == {
        "rule_measure_wildcards_a30_sm900_1": 2,
        "rule_measure_networks_wildcards_model_sm900_1": 2,
        "rule_measure_networks_wildcards_retried_sm900_1": 2,
    }
    assert asked["rule_measure_wildcards_a30_sm900_1"][0] == [
        "-A", "vision", "-p", "rivulet", "-t", "90", "-C", "nvlink", "--qos=high", "--mem", "24000",
        "--cpus-per-task=6", "--nodelist=gpu[01-02]", "--exclusive", "--gres=gpu:A30:1",
    ]  # fmt: skip
    assert asked["rule_measure_networks_wildcards_model_sm900_1"][0] == [
        "-p", "common", "-t", "120", "--mem", "16000", "--cpus-per-task=4", "--gpus=a30:1",
    ]  # fmt: skip
    first, second = asked["rule_measure_networks_wildcards_retried_sm900_1"]
    assert (first[first.index("-t") + 1], second[second.index("-t") + 1]) == ("30", "60")


@pytest.mark.parametrize(("options", "cores"), [((), 2), (("--set-threads", "fit=1"), 1)])
def test_fitting_asks_for_the_cores_that_it_will_use(workdir, caught, options, cores):
    campaign = config.parse(SMALL)
    measured = campaign.measurement_files()
    paths = [*campaign.calibration_files(), *map(layout.telemetry_file, measured), *measured]
    tables = ("operations", "networks", "anchors", "calibration")
    dataset = [f"{name}.parquet" for name in (*tables, *(f"catalogue/{name}" for name in CATALOGUE))]
    for name in [
        *(f"measurements/{path}" for path in paths),
        *(f"dataset/{path}" for path in (*dataset, "quality.json")),
    ]:
        pretend(workdir, name)
    (line,) = lines(workdir, caught, {"a30": {}}, METRICS, options=("--retries", "0", *options))
    assert f"--cpus-per-task={cores}" in resources(line)


def last_log(workdir):
    """What Snakemake wrote into the log of its latest run."""
    return max((workdir.path / ".snakemake" / "log").glob("*.log")).read_text()


def test_a_real_gpu_serves_one_job_at_a_time_here_and_all_nodes_on_slurm(workdir, caught):
    workdir.configure({"gpus": {"real": {"device": "NVIDIA Imaginary", "clocks_mhz": [300, 600]}}})
    targets = ["--", *(f"results/measurements/real/sm{clock}/1.parquet" for clock in (300, 600))]
    workdir.snakemake("--cores", "4", "--keep-going", *targets)
    here = last_log(workdir)
    assert here.count("Execute 1 jobs...") == 2, here
    workdir.snakemake(
        "--profile", str(REPOSITORY / "profiles/slurm"), "--slurm-init-seconds-before-status-checks", "1",
        "--retries", "0", *targets,
    )  # fmt: skip
    assert "Execute 2 jobs..." in last_log(workdir), last_log(workdir)


def test_a_snakefile_with_an_onstart_that_includes_the_workflow_starts_and_ends_runs_like_it(workdir, caught):
    outer = f'include: "{REPOSITORY / "Snakefile"}"\nonstart:\n    print("outer starts")\n'
    finished = run_of(workdir, outer)
    assert "refused" in finished.stdout, finished.stdout
    assert "outer starts" in finished.stdout
    assert list(workdir.path.glob("results/runs/*/config.yaml"))
    assert list(workdir.path.glob("results/runs/*/submitted-*.ended"))


def test_the_workflow_is_no_module(workdir, caught):
    path = REPOSITORY / "Snakefile"
    finished = run_of(workdir, f'module inner:\n    snakefile: "{path}"\nuse rule * from inner\n')
    assert finished.returncode == 1
    assert "This Snakefile cannot be a module" in finished.stdout
    assert not caught.exists()


def run_of(workdir, snakefile):
    """Run a Snakefile of one's own on Slurm."""
    (workdir.path / "Snakefile").write_text(snakefile)
    command = workdir.command(*ON_SLURM, "--retries", "0", "--", "results/measurements/a30/sm900/1.parquet")
    command[command.index("--snakefile") + 1] = str(workdir.path / "Snakefile")
    return workdir.start(command)
