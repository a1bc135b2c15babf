"""The sacct and squeue that stand before Slurm's: every ending is a word that the executor knows."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from support.workdir import REPOSITORY

SACCT = REPOSITORY / "workflow" / "slurm" / "status" / "sacct"


def said(folder: Path, real: str, queued: str = "", *arguments: str) -> subprocess.CompletedProcess[str]:
    """What it says where the real programs say this."""
    for name, text in (("sacct", real), ("squeue", queued)):
        (folder / f"{name}.txt").write_text(text)
        (folder / name).write_text(f"#!/bin/sh\ncat {folder}/{name}.txt\n")
        (folder / name).chmod(0o755)
    path = os.pathsep.join([str(SACCT.parent), str(folder), os.environ["PATH"]])
    return subprocess.run(
        ["sacct", *arguments], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("CANCELLED by 1000", "CANCELLED"),
        ("COMPLETED", "COMPLETED"),
        ("TIMEOUT", "TIMEOUT"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("NODE_FAIL", "NODE_FAIL"),
        ("RUNNING", "RUNNING"),
        ("REVOKED", "FAILED"),
        ("PREEMPTED", "CANCELLED"),
    ],
)
def test_every_state_is_one_word(tmp_path, state, word):
    assert said(tmp_path, f"11|COMPLETED\n12|{state}\n").stdout == f"11|COMPLETED\n12|{word}\n"


def test_a_preempted_job_that_slurm_still_holds_is_waited_for(tmp_path):
    assert said(tmp_path, "12|PREEMPTED\n", queued="12 pending\n").stdout == "12|PREEMPTED\n"


@pytest.mark.parametrize(("queued", "word"), [("12 pending\n", "PENDING"), ("", "FAILED")])
def test_a_job_whose_node_failed_is_retried_by_slurm_or_by_snakemake(tmp_path, queued, word):
    assert said(tmp_path, "12|NODE_FAIL\n", queued, "--name", "run").stdout == f"12|{word}\n"


@pytest.mark.parametrize("program", ["sacct", "squeue"])
def test_a_job_that_slurm_holds_after_a_failed_launch_is_released(tmp_path, program):
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/released\n')
    (tmp_path / "scontrol").chmod(0o755)
    listed = "12|launch failed requeued held\n13|Resources\n"
    if program == "sacct":
        said(tmp_path, "12|PENDING\n13|PENDING\n", listed, "--name", "run")
    else:
        submit(tmp_path, job_12=5, job_13=5)
        queue(tmp_path, listed)
    assert (tmp_path / "released").read_text() == "release 12\n"


def test_the_node_of_a_job_that_had_none_is_not_said(tmp_path):
    assert said(tmp_path, "None assigned                  \n").stdout == ""


def test_a_failure_of_the_real_one_is_passed_on(tmp_path):
    (tmp_path / "sacct").write_text("#!/bin/sh\necho no accounting >&2\nexit 1\n")
    (tmp_path / "sacct").chmod(0o755)
    path = os.pathsep.join([str(SACCT.parent), str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(["sacct"], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no accounting\n")


def queue(folder: Path, listed: str, *arguments: str) -> list[str]:
    """What squeue says of a run where Slurm's own lists this."""
    (folder / "squeue.txt").write_text(listed)
    (folder / "squeue").write_text(f"#!/bin/sh\ncat {folder}/squeue.txt\n")
    (folder / "squeue").chmod(0o755)
    path = os.pathsep.join([str(SACCT.parent), str(folder), os.environ["PATH"]])
    command = ["squeue", *(arguments or ("--format=%i|%T", "--states=all", "--noheader", "--name", "run"))]
    environment = os.environ | {"PATH": path, "CLOCKWATT_RUN": str(folder)}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()


def submit(folder: Path, **ago_s: int) -> None:
    """The note of what a run has submitted, and when."""
    lines = [f"{job.removeprefix('job_')}\trule\t{int(time.time()) - ago}\n" for job, ago in ago_s.items()]
    (folder / "submitted-run.tsv").write_text("".join(lines))


def test_a_job_that_the_controller_forgot_has_failed_without_accounting_too(tmp_path):
    submit(tmp_path, job_11=300, job_12=300, job_13=61)
    for _ in range(2):
        assert queue(tmp_path, "11|RUNNING\n12|COMPLETED\n") == ["11|RUNNING", "12|COMPLETED", "13|FAILED"]


def test_a_job_is_not_forgotten_yet_a_moment_after_it_was_submitted(tmp_path):
    submit(tmp_path, job_13=5)
    assert queue(tmp_path, "") == []


@pytest.mark.parametrize(
    ("program", "of_sacct"),
    [("squeue", "echo '13|RUNNING'"), ("sacct", "echo '13|RUNNING'"), ("sacct", "echo is disabled >&2; exit 1")],
)
def test_nothing_is_forgotten_where_no_controller_answers(tmp_path, program, of_sacct):
    submit(tmp_path, job_13=300)  # of an error, the executor would forget its jobs, and wait for ever
    (tmp_path / "squeue").write_text("#!/bin/sh\necho slurm_load_jobs error >&2\nexit 1\n")
    (tmp_path / "sacct").write_text(f"#!/bin/sh\n{of_sacct}\n")
    for name in ("squeue", "sacct"):
        (tmp_path / name).chmod(0o755)
    path = os.pathsep.join([str(SACCT.parent), str(tmp_path), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "CLOCKWATT_RUN": str(tmp_path)}
    command = [program, "--format=%i|%T", "--name", "run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "13|RUNNING\n")


def test_a_job_that_the_controller_forgot_has_failed_with_accounting(tmp_path):
    submit(tmp_path, job_11=300, job_12=300, job_13=61, job_14=5)
    real = "11|RUNNING\n12|COMPLETED\n13|RUNNING\n14|RUNNING\n"
    for name, text in (("sacct", real), ("squeue", "11|listed\n")):
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / name).write_text(f"#!/bin/sh\ncat {tmp_path}/{name}.txt\n")
        (tmp_path / name).chmod(0o755)
    path = os.pathsep.join([str(SACCT.parent), str(tmp_path), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "CLOCKWATT_RUN": str(tmp_path)}
    command = ["sacct", "--format=JobIdRaw,State", "--name", "run"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == real + "13|FAILED\n"  # the executor keeps the last state of a job


def test_any_other_question_is_slurms(tmp_path):
    submit(tmp_path, job_13=300)
    assert queue(tmp_path, "13 main\n", "--noheader") == ["13 main"]
