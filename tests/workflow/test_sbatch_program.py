"""The sbatch that stands before Slurm's: it waits for a silent controller, and for no run that ends."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from clockwatt.workflow.cluster import PROCESS, SUBMITTED, cancel_jobs
from support.processes import killed_at_end
from support.workdir import REPOSITORY

PROGRAM = REPOSITORY / "workflow" / "slurm" / "submit" / "sbatch"
SILENT = "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
SILENT_ONCE = f"echo >>calls; [ $(wc -l <calls) -gt 1 ] || {{ {SILENT}; }}; echo 12"
ENDS_WITHIN_S = 60


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The record of a run that submitted job 11 for the same rule."""
    record = tmp_path / "submitted.tsv"
    record.write_text("11\trule\t0\trun\n")
    return record


def with_programs(folder: Path, **scripts: str) -> dict[str, str]:
    """The environment of a run where Slurm's own programs are these scripts in a folder."""
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return os.environ | {"PATH": os.pathsep.join([str(PROGRAM.parent), str(folder), os.environ["PATH"]])}


def started(run: Path, process: int | None = None, **scripts: str) -> subprocess.Popen[str]:
    """The program where Slurm's own programs are these scripts."""
    programs = {"squeue": "", "sacct": "", "scancel": 'echo "$*" >cancelled'} | scripts
    environment = with_programs(run.parent, **programs) | {SUBMITTED: str(run), PROCESS: str(process or os.getpid())}
    return subprocess.Popen(
        [PROGRAM, "--parsable", "--job-name", "run", "--comment", "rule", "--wrap=true"], cwd=run.parent, text=True,
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def asked(folder: Path, command: str, script: str) -> subprocess.CompletedProcess[str]:
    """What another program beside it says where Slurm's own is this script."""
    program, *arguments = command.split()
    environment = with_programs(folder, **{program: script})
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)


def recorded(run: Path) -> list[str]:
    return [line.split("\t")[0] for line in run.read_text().splitlines()]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path.name}"
        time.sleep(0.05)


def test_it_asks_a_silent_controller_again_and_notes_since_when(run):
    note = run.with_name("submitted.tsv.unanswered")
    hold = 'case "$*" in *--name*) until [ -e answer ]; do sleep 0.05; done ;; esac'
    with killed_at_end(started(run, squeue=hold, sbatch=SILENT_ONCE)) as program:
        wait_for(note)
        _, command, message = note.read_text().split("\t")
        assert (command, message) == ("sbatch", "sbatch: error: Unable to contact slurm controller (connect failure)\n")
        (run.parent / "answer").touch()
        assert program.communicate(timeout=ENDS_WITHIN_S) == ("12\n", "")
    assert recorded(run) == ["11", "12"]
    assert not note.exists()


def test_it_does_not_submit_again_what_an_attempt_without_an_answer_submitted(run):
    # a controller that wakes up may list its jobs before it submits one that it was asked for earlier
    late = "echo >>asked; [ $(wc -l <asked) -eq 1 ] || printf '10 another\\n11 rule\\n13 rule\\n'"
    queue = f'case "$*" in *--name*) {late} ;; esac'
    with killed_at_end(started(run, squeue=queue, sbatch=SILENT_ONCE)) as program:
        assert program.communicate(timeout=ENDS_WITHIN_S) == ("13\n", "")
    assert recorded(run) == ["11", "13"]
    assert (run.parent / "calls").read_text() == "\n"


def test_a_refusal_is_passed_on_at_once(run):
    refusal = "sbatch: error: invalid partition specified: gpus"
    with killed_at_end(started(run, sbatch=f"echo >>calls; echo '{refusal}' >&2; exit 1")) as program:
        assert program.communicate(timeout=ENDS_WITHIN_S) == ("", f"{refusal}\n")
    assert program.returncode == 1
    assert (run.parent / "calls").read_text() == "\n"


def test_without_the_name_of_a_run_nothing_is_cancelled(run, monkeypatch):
    monkeypatch.setenv("PATH", with_programs(run.parent, scancel=f"echo >{run.parent}/cancelled")["PATH"])
    run.with_name("submitted.tsv.name").touch()
    cancel_jobs(run)
    assert not (run.parent / "cancelled").exists()


@pytest.mark.parametrize("killed", [False, True])
def test_it_submits_nothing_for_a_run_that_has_ended(run, killed):
    gone = subprocess.Popen(["true"])
    gone.wait()
    if not killed:
        run.with_name("submitted.tsv.ended").touch()
    with killed_at_end(started(run, gone.pid if killed else None, sbatch="echo >>calls; echo 12")) as program:
        said, error = program.communicate(timeout=ENDS_WITHIN_S)
    assert (program.returncode, said) == (1, "")
    assert "it is not submitted" in error
    assert not (run.parent / "calls").exists()


def test_nobody_waits_for_it_once_the_run_ends_and_it_cancels_the_job(run):
    slow = "touch begun; until [ -e answer ]; do sleep 0.05; done; echo 12"
    with killed_at_end(started(run, sbatch=slow)) as program:
        wait_for(run.parent / "begun")
        run.with_name("submitted.tsv.ended").touch()
        said, error = program.communicate(timeout=ENDS_WITHIN_S)
    assert (program.returncode, said) == (1, "")
    assert "it is not submitted" in error
    (run.parent / "answer").touch()
    wait_for(run.parent / "cancelled")
    assert (run.parent / "cancelled").read_text() == f"--user={os.getuid()} --name=run\n"
    assert recorded(run) == ["11", "12"]


@pytest.mark.parametrize("command", ["sinfo -o %P", "sshare -U"])
@pytest.mark.parametrize(("script", "said"), [("echo main", "main\n"), (SILENT, "")])
def test_a_silent_slurm_has_no_default_partition_and_no_accounts_and_fails_no_job(tmp_path, command, script, said):
    done = asked(tmp_path, command, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_any_other_question_about_partitions_fails_without_an_answer(tmp_path):
    assert asked(tmp_path, "sinfo --noheader", SILENT).returncode == 1
