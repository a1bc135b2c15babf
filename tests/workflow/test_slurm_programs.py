"""The sacct that stands before Slurm's: every ending is one word that the executor knows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.workdir import REPOSITORY

SACCT = REPOSITORY / "workflow" / "slurm" / "status" / "sacct"


def said(folder: Path, real: str, queued: str = "") -> subprocess.CompletedProcess[str]:
    """What it says where the real programs say this."""
    for name, text in (("sacct", real), ("squeue", queued)):
        (folder / f"{name}.txt").write_text(text)
        (folder / name).write_text(f"#!/bin/sh\ncat {folder}/{name}.txt\n")
        (folder / name).chmod(0o755)
    path = os.pathsep.join([str(SACCT.parent), str(folder), os.environ["PATH"]])
    return subprocess.run(["sacct"], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)


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


def test_the_node_of_a_job_that_had_none_is_not_said(tmp_path):
    assert said(tmp_path, "None assigned                  \n").stdout == ""


def test_a_failure_of_the_real_one_is_passed_on(tmp_path):
    (tmp_path / "sacct").write_text("#!/bin/sh\necho no accounting >&2\nexit 1\n")
    (tmp_path / "sacct").chmod(0o755)
    path = os.pathsep.join([str(SACCT.parent), str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(["sacct"], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no accounting\n")
