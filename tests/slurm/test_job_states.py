"""How a job ended, as the workflow hears of it: cancelled, out of time or memory, its node lost. None is waited for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clocks_node import wait_for
from harness import SlurmCluster

from clockwatt.workflow.cluster import PROCESS, SUBMITTED
from support.workdir import AT_ONCE, REPOSITORY

pytestmark = pytest.mark.slurm

SNAKEFILE = """
rule all:
    input: "cancelled", "late", "hungry"
rule cancelled:
    output: "cancelled"
    shell: "sleep 600"
rule late:
    output: "late"
    retries: 0
    shell: "sleep 600"
rule hungry:
    output: "hungry"
    retries: 0
    shell: "PYTHON_ -c 'import time; taken = b\\"x\\" * 10**9; time.sleep(600)'"
rule lost:
    output: "lost"
    retries: 0
    shell: "sleep 600"
rule moved:
    output: "moved"
    shell: "mkdir began && sleep 600; touch moved"
"""
ENDS_WITHIN_S = 1200


@pytest.fixture(params=["sacct", "squeue"])
def cluster(request) -> SlurmCluster:
    return request.getfixturevalue("accounting_cluster" if request.param == "sacct" else "plain_cluster")


def record(folder: Path) -> list[list[str]]:
    """Job, comment, second and run of what was submitted in a folder."""
    return [line.split("\t") for line in (folder / "submitted.tsv").read_text().splitlines()]


def with_programs(cluster: SlurmCluster, folder: Path) -> dict[str, str]:
    """An environment with the programs that the workflow puts before Slurm's."""
    folders = [str(REPOSITORY / "workflow/slurm" / name) for name in ("status", "submit")]
    path = os.pathsep.join([*folders, cluster.environment["PATH"]])
    submitted, process = str(folder / "submitted.tsv"), str(os.getpid())
    return {**cluster.environment, SUBMITTED: submitted, PROCESS: process, "PATH": path}


def start(cluster: SlurmCluster, folder: Path, target: str) -> subprocess.Popen[str]:
    """Snakemake with these programs."""
    (folder / "Snakefile").write_text(SNAKEFILE.replace("PYTHON_", sys.executable))
    environment = {**os.environ, **with_programs(cluster, folder)}
    command = [
        sys.executable, "-m", "snakemake", "--executor", "slurm", "--jobs", "4", "--keep-going", "--retries", "2",
        "--default-resources", "mem_mb=300", "runtime=30", *AT_ONCE,
        "--logger", "clockwatt", "--slurm-status-command", "sacct" if cluster.accounting else "squeue", "--", target,
    ]  # fmt: skip
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def running(cluster: SlurmCluster, rule: str) -> str:
    """Id of the job of a rule, once its step runs: one that ends before has failed, whatever ended it."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for line in cluster.command("squeue", "-h", "-t", "R", "-o", "%i|%k").stdout.splitlines():
            job, comment = line.split("|")
            steps = cluster.command("squeue", "-h", "--steps", f"--jobs={job}", "-o", "%i").stdout.split()
            if comment == f"rule_{rule}" and f"{job}.0" in steps:
                return job
        time.sleep(0.5)
    raise AssertionError(f"no job of rule {rule} runs")


def test_cancelled_late_and_hungry_jobs_fail_and_the_cancelled_is_shown_once_and_not_submitted_again(cluster, tmp_path):
    snakemake = start(cluster, tmp_path, "all")
    cancelled, late = running(cluster, "cancelled"), running(cluster, "late")
    cluster.command("scancel", cancelled)
    ended = cluster.command("scontrol", "update", f"jobid={late}", "endtime=now+1")  # its limit is up
    assert ended.returncode == 0, ended.stderr
    said, _ = snakemake.communicate(timeout=ENDS_WITHIN_S)
    assert snakemake.returncode == 1
    assert re.search(rf"SLURM-job '{cancelled}' failed, SLURM status is: 'CANCELLED'", said), said
    assert re.search(rf"SLURM-job '{late}' failed, SLURM status is: 'TIMEOUT'", said), said
    # of a job whose step ran out of memory Slurm says so or, where the step's end came first, that it failed
    (hungry,) = re.findall(r"SLURM-job '(\d+)' failed, SLURM status is: '(?:OUT_OF_MEMORY|FAILED)'", said)
    assert hungry not in (cancelled, late)
    of_hungry = (tmp_path / ".snakemake/slurm_logs/rule_hungry" / f"{hungry}.log").read_text()
    assert "oom-kill" in of_hungry
    assert of_hungry.count("Building DAG of jobs") == 1, "a job starts Snakemake once"
    assert len(re.findall("  cancelled failed: .* The next run submits it again", said)) == 1, said
    assert "not submitted again" not in said
    assert sorted(comment for _, comment, _, _ in record(tmp_path)) == ["rule_cancelled", "rule_hungry", "rule_late"]


def test_a_job_whose_node_is_lost_fails(cluster, tmp_path):
    snakemake = start(cluster, tmp_path, "lost")
    job = running(cluster, "lost")
    # as slurmctld does with a node that is silent; a job that may not be requeued ends with it
    cluster.command("scontrol", "update", f"jobid={job}", "requeue=0")
    cluster.command("scontrol", "update", f"nodename={cluster.node}", "state=down", "reason=test")
    try:
        said, _ = snakemake.communicate(timeout=ENDS_WITHIN_S)
    finally:
        cluster.command("scontrol", "update", f"nodename={cluster.node}", "state=resume")
    assert snakemake.returncode == 1
    assert "'FAILED'" in said


def test_a_job_whose_node_failed_is_waited_for_while_slurm_is_silent_and_submitted_once(cluster, tmp_path):
    snakemake = start(cluster, tmp_path, "moved")
    job = running(cluster, "moved")
    deadline = time.monotonic() + 600
    while not (tmp_path / "began").exists() and time.monotonic() < deadline:
        time.sleep(0.5)
    cluster.command("scontrol", "update", f"nodename={cluster.node}", "state=down", "reason=test")
    if cluster.accounting:
        wait_for(lambda: "NODE_FAIL" in cluster.command("sacct", "-X", "-n", "-j", job, "-o", "State").stdout)
    wait_for(lambda: not any(cluster.on_node()))  # a controller that starts would take them for the requeued job's
    cluster.stop_slurmctld()
    ((_, _, _, run),) = record(tmp_path)
    question = ("sacct", "-XP", "--format=JobIdRaw,State") if cluster.accounting else ("squeue", "--format=%i|%T")
    asked = cluster.command(*question, "--noheader", "--name", run, **with_programs(cluster, tmp_path))
    assert asked.stdout == f"{job}|{'PENDING' if cluster.accounting else 'RUNNING'}\n"
    cluster.start_slurmctld()
    time.sleep(10)  # the executor asks meanwhile
    cluster.command("scontrol", "update", f"nodename={cluster.node}", "state=resume")
    said, _ = snakemake.communicate(timeout=ENDS_WITHIN_S)
    assert snakemake.returncode == 0, said
    assert [submitted for submitted, _, _, _ in record(tmp_path)] == [job], said
    assert not cluster.command("squeue", "-h").stdout.strip()


def test_a_job_that_the_controller_forgot_fails(cluster, tmp_path):
    snakemake = start(cluster, tmp_path, "late")
    running(cluster, "late")
    # killed before it saved its state, the controller starts with none of its jobs
    os.kill(cluster.processes["slurmctld"], signal.SIGKILL)
    cluster.stop_slurmctld()
    for saved in (cluster.root / "state").glob("job_state*"):
        saved.unlink()
    # as if it had been submitted a minute ago: until then nobody calls it forgotten
    ((job, comment, second, run),) = record(tmp_path)
    (tmp_path / "submitted.tsv").write_text(f"{job}\t{comment}\t{int(second) - 60}\t{run}\n")
    time.sleep(10)  # the executor asks meanwhile, and nobody answers
    cluster.start_slurmctld()
    try:
        said, _ = snakemake.communicate(timeout=ENDS_WITHIN_S)
    finally:
        snakemake.kill()
    assert snakemake.returncode == 1
    # where the node told of the orphan within the minute, the new controller had it cancelled, and accounted for
    assert re.search(rf"SLURM-job '{job}' failed, SLURM status is: '(?:FAILED|CANCELLED)'", said), said
