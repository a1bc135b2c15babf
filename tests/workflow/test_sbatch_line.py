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
from support.workdir import METRICS, REPOSITORY, SMALL, Workdir

CATALOGUE = ("operations", "calls", "networks")
STAND_INS = {
    "sbatch": 'printf "%s\\n" "$*" >> "$CAUGHT"; echo refused >&2; exit 1',
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
    workdir: Workdir, caught: Path, slurm: dict[str, Any], target: str, retries: int = 0, options: Sequence[str] = ()
) -> list[list[str]]:
    """The sbatch lines, each without the command that it wraps."""
    workdir.configure({"gpus": {"a30": SMALL["gpus"]["a30"] | {"slurm": slurm}}})
    finished = workdir.snakemake(
        "--profile", str(REPOSITORY / "profiles/slurm"), "--slurm-init-seconds-before-status-checks", "1",
        "--retries", str(retries), *options, "--", target,
    )  # fmt: skip
    assert "refused" in finished.stdout, finished.stdout
    return [shlex.split(line.split(" --wrap=")[0]) for line in caught.read_text().splitlines()]


def resources(line: list[str]) -> list[str]:
    """The part of a line that says what is asked for: after the comment, before the working directory."""
    comment = line.index("--comment")
    return line[comment + 2 : line.index("-D")] + line[line.index("-D") + 2 :]


def test_gres(workdir, caught):
    (line,) = lines(
        workdir, caught,
        {"partition": "rivulet", "gres": "gpu:A30:1", "account": "vision", "nodelist": "gpu[01-02]", "qos": "high"}
        | {"constraint": "nvlink", "extra": "--exclusive", "runtime": 90, "cpus_per_task": 6, "mem_mb": 24000},
        "results/measurements/a30/sm900/1.parquet",
    )  # fmt: skip
    assert line[line.index("--comment") + 1] == "rule_measure_wildcards_a30_sm900_1"
    assert resources(line) == [
        "-A", "vision", "-p", "rivulet", "-t", "90", "-C", "nvlink", "--qos=high", "--mem", "24000",
        "--cpus-per-task=6", "--nodelist=gpu[01-02]", "--exclusive", "--gres=gpu:A30:1",
    ]  # fmt: skip


def test_number_and_model(workdir, caught):
    (line,) = lines(
        workdir, caught, {"gpu": 1, "gpu_model": "a30"}, "results/measurements/a30/sm900/networks-1.parquet"
    )
    assert resources(line) == [
        "-p", "common", "-t", "120", "--mem", "16000", "--cpus-per-task=4", "--gpus=a30:1",
    ]  # fmt: skip


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
    (line,) = lines(workdir, caught, {}, METRICS, options=options)
    assert f"--cpus-per-task={cores}" in resources(line)


def test_run_time_grows_with_the_attempt(workdir, caught):
    target = "results/measurements/a30/sm900/networks-1.parquet"
    first, second = lines(workdir, caught, {"gres": "gpu:1", "runtime": 30}, target, retries=1)
    assert (first[first.index("-t") + 1], second[second.index("-t") + 1]) == ("30", "60")


def test_a_real_gpu_serves_one_job_at_a_time_here_and_all_nodes_on_slurm(workdir, caught):
    workdir.configure({"gpus": {"real": {"device": "NVIDIA Imaginary", "clocks_mhz": [300, 600]}}})
    targets = ["--", *(f"results/measurements/real/sm{clock}/1.parquet" for clock in (300, 600))]
    here = workdir.snakemake("--cores", "4", "--keep-going", *targets).stdout
    assert here.count("Execute 1 jobs...") == 2, here
    on_slurm = workdir.snakemake(
        "--profile", str(REPOSITORY / "profiles/slurm"), "--slurm-init-seconds-before-status-checks", "1",
        "--retries", "0", *targets,
    ).stdout  # fmt: skip
    assert "Execute 2 jobs..." in on_slurm, on_slurm
