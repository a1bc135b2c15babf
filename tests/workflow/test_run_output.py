"""What a run of Snakemake shows: a line for each job, a bar on a terminal, failures in full, no walls of names."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from support import ready_snakemake
from support.workdir import SNAKEMAKE

NAMES = [f"a-rather-long-name-of-a-file-{number}" for number in range(100)]
SNAKEFILE = f"""
rule all:
    input: "well", "ill"

rule well:
    input: {NAMES}
    output: "well"
    shell: "touch {{output}}"

rule ill:
    output: "ill"
    log: "ill.log"
    shell: "echo 'error: no GPU: ask for one.' >{{log}}; false"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    for name in NAMES:
        (tmp_path / name).touch()
    return tmp_path


def command(*options: str) -> list[str]:
    return [*SNAKEMAKE, "--cores", "1", "--logger", "clockwatt", "--show-failed-logs", "--keep-going", *options]


def on_a_terminal(folder: Path, *options: str) -> str:
    master, terminal = pty.openpty()
    process = subprocess.Popen(command(*options), cwd=folder, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(master, 65536)
        except OSError:  # the last who wrote has ended
            break
    os.close(master)
    process.wait()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def test_a_terminal_shows_a_line_for_each_job_a_bar_and_failures_in_full(folder):
    shown = on_a_terminal(folder)
    assert re.search(r"[━╺╸]+.* 0/3 jobs", shown)
    assert re.search(r"1/3 jobs, .*about 0:00:0\d left", shown)
    assert re.search(r"\d\d:\d\d:\d\d  well done in 0:00:0\d\r\n", shown)
    assert re.search(r"ill failed\r\n  ill\.log:\r\n  \| error: no GPU: ask for one\.\r\n", shown)
    assert NAMES[0] not in shown
    (log,) = folder.glob(".snakemake/log/*.log")
    assert all(name in log.read_text() for name in NAMES)
    assert f"Complete log(s): {log}" in shown.replace("\r\n", "")


def in_a_file(folder: Path, *options: str) -> str:
    arguments = command("--nocolor", *options)[len(SNAKEMAKE) :]
    return ready_snakemake.run(arguments, cwd=folder, environment=os.environ).stdout


def test_a_file_holds_the_same_lines_and_no_bar(folder):
    said = in_a_file(folder)
    assert re.search(r"^\d\d:\d\d:\d\d  well done in 0:00:0\d$", said, re.MULTILINE)
    assert "jobs," not in said
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) < 200


def test_a_dry_run_names_each_job_once(folder):
    said = in_a_file(folder, "-n")
    assert {"well", "ill", "all"} <= set(said.splitlines())
    assert NAMES[0] not in said
