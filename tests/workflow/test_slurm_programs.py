"""The sacct and squeue that stand before Slurm's: every ending is a word that the executor knows."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from pathlib import Path

import pytest

from clockwatt.workflow.cluster import SUBMITTED, report_silence
from support.workdir import REPOSITORY

PROGRAMS = REPOSITORY / "workflow" / "slurm" / "status"
SILENT = "echo 'error: no controller' >&2; exit 1"
OF_RUN = {
    "sacct": ("-X", "--format=JobIdRaw,State", "--name", "run"),
    "squeue": ("--format=%i|%T", "--states=all", "--noheader", "--name", "run"),
}


def asked(folder: Path, *command: str, **scripts: str) -> subprocess.CompletedProcess[str]:
    """What the program of a command says where Slurm's own programs are these scripts."""
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    path = os.pathsep.join([str(PROGRAMS), str(folder), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, SUBMITTED: str(folder / "submitted.tsv")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def states(folder: Path, program: str, **scripts: str) -> list[str]:
    """The states of the jobs of a run."""
    done = asked(folder, program, *OF_RUN[program], **scripts)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def submit(folder: Path, **ago_s: int) -> None:
    """The record of what a run has submitted, and when."""
    lines = [f"{job.removeprefix('job_')}\trule\t{int(time.time()) - ago}\trun\n" for job, ago in ago_s.items()]
    (folder / "submitted.tsv").write_text("".join(lines))


def listing(*lines: str) -> str:
    """A script that prints these lines, and a warning, as Slurm's programs may."""
    return f"echo 'warning: slow' >&2; cat <<'END'\n{''.join(f'{line}{os.linesep}' for line in lines)}END"


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("CANCELLED by 1000", "CANCELLED"),
        ("COMPLETED", "COMPLETED"),
        ("TIMEOUT", "TIMEOUT"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("NODE_FAIL", "FAILED"),
        ("RUNNING", "RUNNING"),
        ("REVOKED", "FAILED"),
        ("PREEMPTED", "CANCELLED"),
    ],
)
def test_every_state_is_one_word(tmp_path, state, word):
    submit(tmp_path, job_12=5)
    scripts = {"sacct": listing("11|COMPLETED", f"12|{state}"), "squeue": listing()}
    assert states(tmp_path, "sacct", **scripts) == ["11|COMPLETED", f"12|{word}"]


@pytest.mark.parametrize(
    ("squeue", "preempted", "failed"),
    [
        (listing("12|PENDING|BeginTime", "13|RUNNING|None"), "PENDING", "RUNNING"),
        (listing("12|PREEMPTED|None", "13|NODE_FAIL|NodeDown"), "CANCELLED", "FAILED"),
        (listing("14|RUNNING|None"), "CANCELLED", "FAILED"),
        (SILENT, "PENDING", "PENDING"),
    ],
)
def test_a_job_that_lost_its_node_goes_on_where_slurm_holds_it_or_is_silent(tmp_path, squeue, preempted, failed):
    submit(tmp_path, job_12=300, job_13=300)
    found = states(tmp_path, "sacct", sacct=listing("12|PREEMPTED", "13|NODE_FAIL"), squeue=squeue)
    assert found == [f"12|{preempted}", f"13|{failed}"]


@pytest.mark.parametrize("program", ["sacct", "squeue"])
def test_a_job_that_slurm_holds_after_a_failed_launch_is_released(tmp_path, program):
    submit(tmp_path, job_12=5, job_13=5)
    listed = listing("12|PENDING|launch failed requeued held", "13|PENDING|Resources")
    states(tmp_path, program, sacct=listing(), squeue=listed, scontrol=f'echo "$@" >{tmp_path}/released')
    assert (tmp_path / "released").read_text() == "release 12\n"


def test_a_failure_of_the_real_one_is_passed_on(tmp_path):
    done = asked(tmp_path, "sacct", sacct="echo no accounting >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "no accounting\n")


@pytest.mark.parametrize("program", ["sacct", "squeue"])
def test_a_job_that_the_controller_forgot_for_a_minute_has_failed(tmp_path, program):
    submit(tmp_path, job_11=300, job_12=300, job_13=61, job_14=5)
    accounted = listing("11|RUNNING", "12|COMPLETED", "13|RUNNING")
    queue = 'case "$*" in *%r*) echo "11|RUNNING|None" ;; *) printf "11|RUNNING\\n12|COMPLETED\\n" ;; esac'
    found = states(tmp_path, program, sacct=accounted, squeue=queue)
    assert found == ["11|RUNNING", "12|COMPLETED", *(["13|RUNNING"] if program == "sacct" else []), "13|FAILED"]


@pytest.mark.parametrize(
    ("program", "sacct", "command"),
    [
        ("squeue", listing("13|RUNNING"), "squeue"),
        ("sacct", listing("13|RUNNING"), "squeue"),
        ("sacct", SILENT, "sacct"),
    ],
)
def test_nothing_is_forgotten_while_slurm_is_silent_and_a_note_says_since_when(tmp_path, program, sacct, command):
    submit(tmp_path, job_13=300)  # of an error, the executor would forget its jobs, and wait for ever
    note = tmp_path / "submitted.tsv.unanswered"
    for message in ("error: no controller", "another"):  # the first one stays
        silent = SILENT.replace("error: no controller", message)
        scripts = {"sacct": sacct.replace("error: no controller", message), "squeue": silent}
        assert states(tmp_path, program, **scripts) == ["13|RUNNING"]
        assert note.read_text().split("\t")[1:] == [command, "error: no controller\n"]
    assert "13|FAILED" not in states(tmp_path, program, sacct=listing(), squeue=listing("13|RUNNING|None"))
    assert not note.exists()


def test_squeue_answers_for_sacct_where_there_is_no_accounting(tmp_path):
    submit(tmp_path, job_12=5, job_13=5)
    sacct = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
    assert states(tmp_path, "sacct", sacct=sacct, squeue=SILENT) == ["12|RUNNING", "13|RUNNING"]
    note = tmp_path / "submitted.tsv.unanswered"
    assert note.read_text().split("\t")[1:] == ["squeue", "error: no controller\n"]
    squeue = listing("12|TIMEOUT|TimeLimit", "13|NODE_FAIL|NodeDown")
    assert states(tmp_path, "sacct", sacct=sacct, squeue=squeue) == ["12|TIMEOUT", "13|FAILED"]
    assert not note.exists()


def test_silence_without_a_message_is_reported(tmp_path):
    (tmp_path / "submitted.tsv.unanswered").write_text("14:02\tsacct\t\n")
    said: queue.Queue[str] = queue.Queue()
    threading.Thread(target=report_silence, args=(tmp_path / "submitted.tsv", said.put), daemon=True).start()
    assert said.get(timeout=10).startswith("Slurm has not answered since 14:02 (`sacct`: no message). ")


@pytest.mark.parametrize("program", ["sacct", "squeue"])
def test_any_other_question_is_slurms(tmp_path, program):
    submit(tmp_path, job_13=300)
    assert asked(tmp_path, program, "--noheader", **{program: listing("13 main")}).stdout == "13 main\n"
