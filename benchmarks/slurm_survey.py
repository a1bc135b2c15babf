"""Survey virtual cards of several nodes on a real Slurm: lose a node, interrupt the survey, go on, compare.

    python benchmarks/slurm_survey.py

It needs root and the packages of `tests/slurm/harness.py`. Each node is a slurmd of its own on this machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "slurm")]

import slurm_files  # noqa: E402  # from the tests
from harness import SlurmCluster  # noqa: E402
from machine import free_ports  # noqa: E402
from result_file import target, write  # noqa: E402

from clockwatt.gpu.specs import find_spec  # noqa: E402
from clockwatt.gpu.virtual.model import CardModel  # noqa: E402
from clockwatt.studies.survey import results  # noqa: E402
from support.processes import killed_at_end  # noqa: E402
from support.workdir import ON_SLURM, Workdir  # noqa: E402

GPU, NODES, CARDS_OF_NODE, ROUNDS, JOBS = "h200", 8, 8, 2, 4
FOLDER = Path("results/studies/survey") / GPU
QUANTITY = "time of ReLU (memory)"
TIMEOUT_S = 3600


class SeveralNodes(SlurmCluster):
    """A cluster without accounting whose nodes all run on this machine, in the partition `cluster`."""

    def __init__(self, root: Path, nodes: int) -> None:
        super().__init__(root, accounting=False)
        self.others = [f"{self.node}-{number}" for number in range(1, nodes)]
        self.nodes = [self.node, *self.others]
        lines = [f"SlurmdSpoolDir={root}/spool/%n", f"SlurmdPidFile={root}/run/slurmd-%n.pid"]
        for node, port in zip(self.others, free_ports(len(self.others)), strict=True):
            lines.append(f"NodeName={node} NodeHostname={socket.gethostname()} Port={port} CPUs=1 RealMemory=4000")
        lines.append(f"PartitionName=cluster Nodes={','.join(self.nodes)} State=UP\n")
        self._settings = "\n".join(lines)

    def start_slurmd(self, *, configless: bool = False) -> None:
        """Start the daemons of all nodes, which read the files."""
        assert not configless
        for node in self.nodes:
            self.start_node(node)

    def start_node(self, node: str) -> None:
        """Start the daemon of a node and wait until it is up."""
        self._run(f"slurmd-{node}", "slurmd", "-D", "-N", node)
        shown = "sinfo", "-h", "-n", node, "-p", "cluster", "-o", "%T"
        self._wait(
            f"slurmd-{node}", lambda: self.command(*shown).stdout.strip() in {"idle", "mixed", "allocated"}
        )  # fmt: skip

    def lose(self, node: str) -> None:
        """Kill the daemon of a node and all processes of its jobs, as in a power cut; Slurm has it down."""
        os.kill(self.processes.pop(f"slurmd-{node}"), signal.SIGKILL)
        for process in processes_of(node):
            process.kill()
        self.command("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def stop(self) -> None:
        """Stop what was started, and remove the control groups of all nodes."""
        super().stop()
        for node in self.others:
            for group in sorted(groups_of(node), key=lambda path: len(path.parts), reverse=True):
                group.rmdir()


def groups_of(node: str) -> list[Path]:
    """Return the control groups of a node."""
    own = f"system.slice/{node}_slurmstepd.scope" if slurm_files.V2 else f"*/slurm_{node}"
    return list(slurm_files.CGROUPS.glob(f"{own}/**/"))


def processes_of(node: str) -> list[psutil.Process]:
    """Return the processes of the jobs of a node, Slurm's own included."""
    groups = [group for group in groups_of(node) if "/job_" in str(group)]
    pids = {int(pid) for group in groups for pid in (group / "cgroup.procs").read_text().split()}
    return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]


def wait_until(fulfilled: Callable[[], bool]) -> None:
    """Wait for a condition, up to `TIMEOUT_S`."""
    deadline = time.monotonic() + TIMEOUT_S
    while not fulfilled():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.5)


def disturbed(cluster: SeveralNodes, folder: Path) -> list[list[object]]:
    """Survey with a node lost and an interruption; return rows on what was measured before and after."""
    workdir, cards = Workdir(folder, cluster.environment), folder / FOLDER / "cards"
    slurm = {"partition": "cluster", "cpus_per_task": 1, "mem_mb": 1500}
    survey = {"gpus": {GPU: dict.fromkeys(cluster.nodes, CARDS_OF_NODE)}, "rounds": ROUNDS, "programs": ["copy"]}
    workdir.configure(
        {"gpus": {GPU: {"device": f"virtual:{GPU}", "slurm": slurm}}, "studies": {"survey": survey}}
    )  # fmt: skip
    options = [*ON_SLURM, "--slurm-status-command", "squeue", "--latency-wait", "5", "--jobs", str(JOBS)]
    options += ["--", str(FOLDER / "variance.csv")]

    def measured() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in cards.glob("*.parquet")}

    started = subprocess.Popen(
        workdir.command(*options), cwd=folder, env={**os.environ, **workdir.environment}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with killed_at_end(started) as snakemake:
        wait_until(lambda: len(measured()) > JOBS or snakemake.poll() is not None)
        wait_until(lambda: any(map(processes_of, cluster.others)) or snakemake.poll() is not None)
        lost = next(node for node in cluster.others if processes_of(node))
        cluster.lose(lost)
        snakemake.send_signal(signal.SIGINT)
        snakemake.communicate(timeout=TIMEOUT_S)
    before = measured()
    cluster.start_node(lost)
    workdir.run(*options)
    after = measured()
    again = sum(after[file] != time_ns for file, time_ns in before.items())
    return [
        ["cards measured when a node was lost and the survey interrupted", len(before)],
        ["of these, measured again by the second run", again],
        [f"cards measured in the end, of {NODES * CARDS_OF_NODE}", len(after)],
    ]


def compared(folder: Path) -> tuple[list[list[object]], float, bool]:
    """Return rows on the differences found, the largest error of a card in %, and whether the SD is recovered."""
    cards, found = pd.read_csv(folder / FOLDER / "cards.csv"), results.survey([folder / FOLDER / "cards"])
    numbers = [
        zlib.crc32(f"{node}-{index:.0f}".encode()) for node, index in zip(cards["host"], cards["index"], strict=True)
    ]
    planted = np.array([CardModel(find_spec(GPU), seed=0, card=number).time_factor for number in numbers])
    error = 100 * (cards[QUANTITY] - (planted / np.median(planted) - 1)).abs().max()
    part, deviation = found.variance.loc[QUANTITY], np.log(planted).std(ddof=1)
    held = part["card_low"] <= deviation <= part["card_high"] and part["host_low"] == 0
    words = {level: results.variance.words(part[[f"{level}_{name}" for name in ("deviation", "low", "high")]].set_axis(
        ["deviation", "low", "high"])) for level in ("card", "host")}  # fmt: skip
    rows: list[list[object]] = [
        ["largest error of a card's difference", f"{error:.3f} %"],
        ["SD of cards: planted", f"{100 * deviation:.2f} %"],
        ["SD of cards: found, with its 95 % interval", words["card"]],
        ["SD of nodes, none planted: found, with its 95 % interval", words["host"]],
    ]
    return rows, error, held


def main() -> None:
    """Write the table."""
    root, folder = (Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp")) for prefix in ("slurm-", "survey-"))
    root.chmod(0o755)
    try:
        with SeveralNodes(root, NODES) as cluster:
            rows = disturbed(cluster, folder)
        differences, error, held = compared(folder)
    finally:
        shutil.rmtree(root)
        shutil.rmtree(folder)
    write(
        "cards",
        "A survey on a real Slurm, disturbed",
        ["what", "value"],
        [*rows, *differences],
        targets=[
            target("Survey on Slurm: cards measured", int(str(rows[2][1])), at_least=NODES * CARDS_OF_NODE),
            target("Survey on Slurm: largest error of a card", error, at_most=0.1, unit="%"),
            target("Survey on Slurm: intervals of cards and nodes that hold", 100 * held, at_least=100, unit="%"),
        ],
        notes=[
            f"Each of {NODES} nodes is a slurmd of its own on one machine. One is killed with its jobs and comes back.",
            "A card whose job ends while Snakemake is interrupted may be measured again.",
            f"Differences are those in {QUANTITY}.",
        ],
        hardware=f"virtual H200, {NODES} nodes × {CARDS_OF_NODE} cards",
    )  # fmt: skip


if __name__ == "__main__":
    main()
