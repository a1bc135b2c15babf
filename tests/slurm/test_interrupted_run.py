"""An interrupted run on a real Slurm cancels its jobs, also while it asks for their states, and no others."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from clocks_node import wait_for
from harness import SlurmCluster

from support.processes import command_of, killed_at_end
from support.workdir import ON_SLURM, Workdir

pytestmark = pytest.mark.slurm

ENDS_WITHIN_S = 300
SELECTIONS = {"SCANCEL_STATE": "RUNNING", "SQUEUE_PARTITION": "none", "SACCT_FORMAT": "JobName", "SBATCH_WAIT": "1"}
"""Settings of a user for other purposes; jobs of these tests are pending."""
BY_HAND = r"^error: jobs of this run may go on\. .* cancel them: (scancel .*)$"
SHARDS = 30
EXIT_WITHIN_S = 120


@pytest.fixture(params=["sacct", "squeue"])
def cluster(request) -> Iterator[SlurmCluster]:
    started = request.getfixturevalue("accounting_cluster" if request.param == "sacct" else "plain_cluster")
    started.command("scontrol", "update", f"nodename={started.node}", "state=drain", "reason=test")  # jobs stay queued
    yield started
    started.command("scancel", "--user=root")
    started.command("scontrol", "update", f"nodename={started.node}", "state=resume")


@contextlib.contextmanager
def started_run(
    cluster: SlurmCluster, folder: Path, *options: str, path: str = "", campaign: Mapping[str, Any] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A run, for which programs of the folders in `path` stand before others."""
    workdir = Workdir(folder, cluster.environment | SELECTIONS | {"PATH": path + cluster.environment["PATH"]})
    workdir.configure(campaign)
    status = "sacct" if cluster.accounting else "squeue"
    command = workdir.command(
        *ON_SLURM, "--slurm-status-command", status, *options, "--", "results/dataset/operations.parquet",
    )  # fmt: skip
    started = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **workdir.environment}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    with killed_at_end(started) as snakemake:
        yield snakemake


@contextlib.contextmanager
def queued_run(cluster: SlurmCluster, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run whose jobs are queued, while it asks for their states: the programs of these tests take half a minute."""
    with started_run(cluster, folder, *options) as snakemake:
        wait_for(lambda: is_asking(snakemake), ENDS_WITHIN_S)
        yield snakemake


def is_asking(snakemake: subprocess.Popen[str]) -> bool:
    """Return whether a run asks Slurm for the states of its jobs."""
    children = psutil.Process(snakemake.pid).children()
    return any({"--states=all", "--parsable2"} & {*command_of(child)} for child in children)


def queued(cluster: SlurmCluster) -> set[str]:
    return set(cluster.command("squeue", "--noheader", "--format=%A").stdout.split())


def submissions(folder: Path) -> list[psutil.Process]:
    """Programs that submit jobs of the runs of a folder, also when these have ended."""
    return [process for process in psutil.process_iter() if str(folder) in " ".join(command_of(process))]


def submitted(folder: Path) -> list[set[str]]:
    """The jobs of each run of a folder."""
    records = folder.glob("results/runs/*/submitted-*.tsv")
    return [{line.split("\t")[0] for line in record.read_text().splitlines()} for record in records]


@pytest.mark.parametrize("interrupts", [1, 2])
def test_an_interrupt_during_a_status_query_cancels_the_jobs_of_this_run_alone(cluster, tmp_path, interrupts):
    with queued_run(cluster, tmp_path) as first:
        (jobs,) = submitted(tmp_path)
        assert jobs == queued(cluster)
        with queued_run(cluster, tmp_path, "--nolock") as second:
            (others,) = [found for found in submitted(tmp_path) if found != jobs]
            assert jobs | others == queued(cluster)
            wait_for(lambda: is_asking(first), ENDS_WITHIN_S)
            for _ in range(interrupts):
                os.killpg(first.pid, signal.SIGINT)  # as a terminal does
                with contextlib.suppress(subprocess.TimeoutExpired):
                    first.wait(1)
            said, _ = first.communicate(timeout=ENDS_WITHIN_S)
            assert first.returncode, said
            assert queued(cluster) == others, said
            second.kill()


def test_a_job_that_is_submitted_while_the_run_ends_is_cancelled(cluster, tmp_path):
    slow, ended = tmp_path / "bin" / "sbatch", tmp_path / "ended"
    slow.parent.mkdir()
    waits = f"until [ -e {shlex.quote(str(ended))} ]; do sleep 0.2; done"
    slow.write_text(f'#!/bin/sh\n{waits}\nexec {shutil.which("sbatch")} "$@"\n')
    slow.chmod(0o755)

    def submission() -> list[psutil.Process]:
        below = psutil.Process(run.pid).children(recursive=True)
        return below if any(str(slow) in command_of(process) for process in below) else []

    with started_run(cluster, tmp_path, path=f"{slow.parent}{os.pathsep}") as run:
        wait_for(lambda: bool(submission()), ENDS_WITHIN_S)
        programs = submission()
        while run.poll() is None:
            os.killpg(run.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(0.5)
    assert not submitted(tmp_path)  # yet
    ended.touch()
    psutil.wait_procs(programs)
    assert submitted(tmp_path)
    assert not queued(cluster)


@contextlib.contextmanager
def submitting_run(cluster: SlurmCluster, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run that has submitted few of its many jobs: what they need is pretended."""
    files = [f"catalogue/{name}.parquet" for name in ("operations", "calls", "networks")]
    files += [f"measurements/a30/sm{clock}/calibration.parquet" for clock in (900, 1440)]
    for file in files:
        made = folder / "results" / file
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
    with started_run(cluster, folder, *options, campaign={"shards": SHARDS}) as run:
        wait_for(lambda: bool(submitted(folder)), ENDS_WITHIN_S)
        yield run


@pytest.mark.parametrize("cluster", ["squeue"], indirect=True)
def test_two_interrupts_end_a_run_at_once_while_slurm_is_silent_and_many_jobs_are_not_yet_submitted(cluster, tmp_path):
    controller = psutil.Process(cluster.processes["slurmctld"])
    with submitting_run(cluster, tmp_path) as run:
        controller.suspend()
        try:
            for _ in range(2):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(1)
                os.killpg(run.pid, signal.SIGINT)
            said, _ = run.communicate(timeout=EXIT_WITHIN_S)
        finally:
            controller.resume()
    assert len(submitted(tmp_path)[0]) < SHARDS
    (by_hand,) = re.findall(BY_HAND, said, re.MULTILINE)
    wait_for(lambda: not submissions(tmp_path), ENDS_WITHIN_S)
    assert cluster.command(*shlex.split(by_hand)).returncode == 0
    assert not queued(cluster)


@pytest.mark.parametrize("cluster", ["squeue"], indirect=True)
def test_jobs_that_are_submitted_while_slurm_is_silent_wait_for_it(cluster, tmp_path):
    with submitting_run(cluster, tmp_path, "--retries", "0") as run:
        cluster.stop_slurmctld()
        log = next(tmp_path.glob(".snakemake/log/*"))
        try:
            wait_for(lambda: "Slurm has not answered" in log.read_text(), ENDS_WITHIN_S)
        finally:
            cluster.start_slurmctld()
        wait_for(lambda: "Slurm answers again." in log.read_text(), ENDS_WITHIN_S)
        wait_for(lambda: len(submitted(tmp_path)[0]) > SHARDS, ENDS_WITHIN_S)
        said = log.read_text()
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=ENDS_WITHIN_S)
    assert "Error in rule" not in said
    assert re.search(r"has not answered since .* \(`sbatch`: .*\)", said)
    assert not queued(cluster)


def test_while_slurm_is_silent_the_run_says_so_once_and_how_to_cancel_its_jobs(cluster, tmp_path):
    with queued_run(cluster, tmp_path) as run:
        cluster.stop_slurmctld()
        log = next(tmp_path.glob(".snakemake/log/*"))
        try:
            wait_for(lambda: "Slurm has not answered" in log.read_text(), ENDS_WITHIN_S)
            cluster.start_slurmctld()
            wait_for(lambda: "Slurm answers again." in log.read_text(), ENDS_WITHIN_S)
            cluster.stop_slurmctld()
            run.send_signal(signal.SIGINT)
            said, _ = run.communicate(timeout=ENDS_WITHIN_S)
        finally:
            if "slurmctld" not in cluster.processes:
                cluster.start_slurmctld()
    for line in (
        r"Slurm has not answered since \d\d:\d\d \(`squeue`: .*Unable to contact slurm controller.*\)\. .*Ctrl-C\.",
        r"Slurm answers again\.",
    ):
        assert re.findall(line, said), said
        assert len(re.findall(line, log.read_text())) == 1, log.read_text()
    assert queued(cluster)
    (by_hand,) = re.findall(BY_HAND, said, re.MULTILINE)
    assert cluster.command(*shlex.split(by_hand)).returncode == 0
    assert not queued(cluster)
