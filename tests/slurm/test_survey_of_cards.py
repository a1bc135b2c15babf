"""The survey of cards, and the health check of the how-to, on a real Slurm with virtual cards."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import psutil
import pyarrow as pa
import pytest
import slurm_files
from clocks_node import wait_for
from harness import SlurmCluster

from clockwatt.io import files
from clockwatt.measure.card import measure_card
from clockwatt.schema.records import MEASUREMENT_SCHEMA
from support.processes import killed_at_end
from support.workdir import ON_SLURM, REPOSITORY, Workdir

pytestmark = pytest.mark.slurm

SLURM = {"partition": "main", "cpus_per_task": 1, "mem_mb": 1500}


def test_each_card_is_a_job_and_is_not_repeated(accounting_cluster, tmp_path):
    node = accounting_cluster.node
    workdir = Workdir(tmp_path, accounting_cluster.environment)
    campaign = {
        "gpus": {
            "a30": {"device": "virtual:a30", "slurm": SLURM},
            "pair": {"device": "virtual:h200", "slurm": SLURM | {"gres": "gpu:1"}},
        },
        "studies": {"survey": {"gpus": {"a30": {node: 4}, "pair": {node: 2}}, "rounds": 2, "programs": []}},
    }
    workdir.configure(campaign)
    last = f"results/studies/survey/a30/cards/{node}-3-1.parquet"
    workdir.run(*ON_SLURM, last, f"results/studies/survey/pair/cards/{node}-1-1.parquet")
    first_us = (tmp_path / last).stat().st_mtime_ns
    table = "results/studies/survey/a30/variance.csv"
    workdir.run(*ON_SLURM, table)
    assert (tmp_path / last).stat().st_mtime_ns == first_us

    listed = accounting_cluster.command("sacct", "-X", "-P", "-n", "-o", "State,AllocTRES,NodeList,Comment,WorkDir")
    jobs = [line.split("|") for line in listed.stdout.splitlines() if line.endswith(str(tmp_path))]
    cards = [job for job in jobs if "study_survey_card" in job[3]]
    assert len(cards) == 5
    assert {(job[0], job[2]) for job in jobs} == {("COMPLETED", node)}
    (pair,) = (job for job in cards if "pair" in job[3])
    assert "gres/gpu=2" in pair[1].split(","), "all cards of the node, so that an index names one"

    found = pd.read_csv((tmp_path / table).with_name("cards.csv"))
    assert found["host"].tolist() == [node] * 4
    assert found["index"].tolist() == [0, 1, 2, 3]


def test_a_survey_goes_on_after_a_reboot_and_an_interruption(accounting_cluster, tmp_path):
    node = accounting_cluster.node
    workdir = Workdir(tmp_path, accounting_cluster.environment)
    gpus = {"a30": {"device": "virtual:a30", "slurm": SLURM}}
    workdir.configure({"gpus": gpus, "studies": {"survey": {"gpus": {"a30": {node: 3}}, "rounds": 2, "programs": []}}})
    folder = Path("results/studies/survey/a30/cards")
    wanted = [str(folder / f"{node}-{index}-1.parquet") for index in range(3)]
    environment = {**os.environ, **workdir.environment}
    on_slurm = *ON_SLURM, "--latency-wait", "5"
    started = subprocess.Popen(
        workdir.command(*on_slurm, "--jobs", "1", "--", *wanted), cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with killed_at_end(started) as snakemake:
        deadline = time.monotonic() + 300
        seen, held = set(), False
        # until the second card is being measured, and accounting knows of it, which a reboot would prevent
        while not held or not is_accounted_running(accounting_cluster, tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.1)
            seen |= measuring(accounting_cluster)
            held = held or (len(seen) == 2 and suspend(tmp_path))
        accounting_cluster.reboot()
        assert not measuring(accounting_cluster)
        snakemake.send_signal(signal.SIGINT)
        said, _ = snakemake.communicate(timeout=300)
    assert snakemake.returncode
    (first,) = (tmp_path / folder).glob("*.parquet")
    first_ns = first.stat().st_mtime_ns

    workdir.run(*on_slurm, "--", *wanted)
    assert first.stat().st_mtime_ns == first_ns
    ended = states(accounting_cluster, tmp_path)
    assert Counter(state for state, _ in ended)["COMPLETED"] == 3, ended
    assert len({comment for state, comment in ended if state == "COMPLETED"}) == 3, "no card was measured twice"
    assert len(ended) == 4, f"one job was lost with its node, and cancelled: {said}"


def measuring(cluster: SlurmCluster) -> set[str]:
    """Return comments of the jobs that measure a card now."""
    running = cluster.command("squeue", "-h", "-t", "R", "-o", "%k").stdout.split()
    return {comment for comment in running if "study_survey_card" in comment}


def states(cluster: SlurmCluster, folder: Path) -> list[tuple[str, str]]:
    """Return state and comment of each job that measured a card of the survey in a folder."""
    jobs = [line.split("|") for line in accounted(cluster, folder)]
    return [(state, comment) for state, comment, _ in jobs if "study_survey_card" in comment]


def suspend(folder: Path) -> bool:
    """Suspend what measures a card in a folder, which would end before accounting knows of it; True if it is there."""
    suspended = False
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "study-survey-card" in process.cmdline() and process.cwd() == str(folder):
                process.suspend()
                suspended = True
    return suspended


def is_accounted_running(cluster: SlurmCluster, folder: Path) -> bool:
    """Return whether accounting has a running job of a folder."""
    return any(line.startswith("RUNNING") for line in accounted(cluster, folder))


def accounted(cluster: SlurmCluster, folder: Path) -> list[str]:
    """Return state, comment (empty until the job ends) and folder of each job in a folder that accounting knows."""
    listed = cluster.command("sacct", "-X", "-P", "-n", "-o", "State,Comment,WorkDir").stdout.splitlines()
    return [line for line in listed if line.endswith(str(folder))]


def test_the_health_check_drains_a_node_with_a_slow_card(tmp_path):
    own = measure_card("virtual:h200", rounds=2).to_pandas()
    fleet = Path(tempfile.mkdtemp(prefix="cards-", dir="/tmp"))
    root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    root.chmod(0o755)

    def write(name: str, uuid: str, factor: float) -> None:
        card = own.assign(gpu_uuid=uuid, session_id=uuid, time_eager_s=factor * own["time_eager_s"])
        files.write_table(pa.Table.from_pandas(card, MEASUREMENT_SCHEMA, preserve_index=False), fleet / name)

    for number in range(6):
        write(f"other-{number}.parquet", f"GPU-{number}", 1 + 0.001 * (number - 2.5))
    text = (REPOSITORY / "docs/how-to/find-a-slow-card.md").read_text()
    script = re.search(r"```\n(#!/bin/bash\n# HealthCheckProgram.*?)```", text, re.DOTALL)[1]
    program, checks = root / "check", root / "checks"
    assert script.endswith("exit 0\n")
    script = script.replace("exit 0", f"echo >>{checks}; exit 0")
    script = script.replace("/var/lib/clockwatt/cards", str(fleet)).replace("/opt/clockwatt/bin", f"{sys.prefix}/bin")
    program.write_text(script.replace("export ", f"export SLURM_CONF={slurm_files.path(root)} ", 1))
    program.chmod(0o755)
    # slurmd begins a check though the last one runs, and stops each after 60 s: on a busy machine they would pile up
    settings = f"HealthCheckProgram={program}\nHealthCheckInterval=20\nHealthCheckNodeState=ANY\n"
    cluster = SlurmCluster(root, accounting=False, settings=settings)
    with cluster:
        checks.write_text("")
        write(f"{cluster.node}-0.parquet", "GPU-good", 1.0)
        wait_for(lambda: checks.read_text().count("\n") > 1, 240)  # the second began after the card was there
        assert "drain" not in state(cluster)
        write(f"{cluster.node}-1.parquet", "GPU-slow", 1.03)
        deadline = time.monotonic() + 240
        while "drain" not in state(cluster) and time.monotonic() < deadline:
            time.sleep(1)
        assert "drain" in state(cluster), cluster.told()
        reason = cluster.command("sinfo", "-h", "-o", "%E").stdout
        assert "GPU-slow, 7 cards compared: slower by 3.0 %" in reason
    shutil.rmtree(root)
    shutil.rmtree(fleet)


def state(cluster: SlurmCluster) -> str:
    """Return the state of the node."""
    return cluster.command("sinfo", "-h", "-o", "%T").stdout
