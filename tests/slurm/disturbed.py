"""A campaign on a real local Slurm, what can be done to it, and whether its dataset is that of an undisturbed one."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from harness import SlurmCluster

from support.processes import command_of
from support.workdir import MEASURED_ALL, METRICS, ON_SLURM, Workdir

DISK = "200M"
TARGETS = (*MEASURED_ALL, METRICS, "measure_all")
LOCAL = ("--latency-wait", "5")  # of a file system of this machine
FAULTS = (
    "kill_worker", "kill_worker", "kill_logger", "kill_job", "kill_snakemake", "scancel", "requeue", "flip", "truncate",
    "edit", "node_down_and_up", "node_fails", "kill_slurmd", "kill_slurmctld", "full_disk",
    "read_only", "delete", "delete",
)  # fmt: skip
"""Methods of `Disturbed`; each tells whether it found something to disturb."""
ENDS_WITHIN_S = 1200
FINISHING_RUNS = 10
LOOKS_EVERY_S = 3


class Disturbed:
    """A campaign on Slurm, and what is done to it.

    Parameters
    ----------
    cluster
        The Slurm.
    workdir
        Where the campaign runs; its results lie on a file system of their own.
    campaign
        The keys of the campaign that differ from the small one of `support.workdir`.
    loggers
        Folder with a file for each logger process, as `logged` has it.
    rng
        What decides which process, job or file is disturbed.
    """

    def __init__(
        self, cluster: SlurmCluster, workdir: Workdir, campaign: Mapping[str, Any], loggers: Path, rng: random.Random
    ) -> None:
        self.cluster, self.workdir, self.campaign = cluster, workdir, campaign
        self.loggers, self.rng = loggers, rng
        workdir.configure(campaign)
        self.snakemake: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._edits = 0
        self._looked_s = -math.inf

    def run(self) -> None:
        """Start Snakemake if it does not run."""
        if self.snakemake is not None and self.snakemake.poll() is None:
            return
        self.cluster.command("scancel", "--user=root")  # what a killed Snakemake left
        environment = {**os.environ, **self.workdir.environment}
        shutil.rmtree(self.workdir.path / ".snakemake" / "locks", ignore_errors=True)  # as `snakemake --unlock` does
        with (self.workdir.path / "snakemake.log").open("ab") as log:
            self.snakemake = subprocess.Popen(
                self.workdir.command(*ON_SLURM, *LOCAL, "--", *TARGETS), cwd=self.workdir.path,
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.starts += 1

    def start_over(self) -> None:
        """Remove all results of a campaign that has come to its end, so that there is something to disturb."""
        if self.snakemake is not None and self.snakemake.poll() == 0:
            for path in (self.workdir.path / "results").iterdir():
                shutil.rmtree(path, ignore_errors=True)

    def resume(self) -> None:
        """Resume the node, as an administrator does: Slurm drains it where a launch failed, or finds it silent.

        It looks every `LOOKS_EVERY_S`.
        """
        if time.monotonic() < self._looked_s + LOOKS_EVERY_S:
            return
        self._looked_s = time.monotonic()
        if {"drain", "drained", "draining", "down"} & set(
            re.findall("[a-z]+", self.cluster.command("sinfo", "-h", "-o", "%T").stdout)
        ):
            self.cluster.command("scontrol", "update", f"nodename={self.cluster.node}", "state=resume")

    def finish(self) -> None:
        """Let it run until all is there: a run sets damaged files aside, the next makes them anew."""
        self.workdir.configure(self.campaign)
        for _ in range(FINISHING_RUNS):
            self.run()
            assert self.snakemake is not None
            deadline = time.monotonic() + ENDS_WITHIN_S
            while self.snakemake.poll() is None and time.monotonic() < deadline:
                self.resume()
                time.sleep(1)
            if self.snakemake.wait(0) == 0:
                return
        raise AssertionError((self.workdir.path / "snakemake.log").read_text()[-4000:])

    def kill_worker(self) -> bool:
        """SIGKILL a process that measures, or the one that waits for it."""
        known = {path.name for path in self.loggers.iterdir()}
        measuring = [
            process for process in self._workers() if {"measure", "--multiprocessing-fork"} & {*command_of(process)}
        ]
        return self._kill([process for process in measuring if str(process.pid) not in known])

    def kill_logger(self) -> bool:
        """SIGKILL a logger process."""
        known = {path.name for path in self.loggers.iterdir()}
        return self._kill([process for process in self._workers() if str(process.pid) in known])

    def kill_job(self) -> bool:
        """SIGKILL any process of a job."""
        return self._kill(self._workers())

    def kill_snakemake(self) -> bool:
        """SIGKILL the main process; its jobs live on."""
        if self.snakemake is None or self.snakemake.poll() is not None:
            return False
        self.snakemake.kill()
        self.snakemake.wait()
        return True

    def scancel(self) -> bool:
        """Cancel a job."""
        return self._job_command("scancel")

    def requeue(self) -> bool:
        """Have Slurm run a job again."""
        return self._job_command("scontrol", "requeue")

    def flip(self) -> bool:
        """Flip a bit of a closed segment or an assembled file."""

        def damage(content: bytes) -> bytes:
            place = self.rng.randrange(len(content))
            return content[:place] + bytes([content[place] ^ 1 << self.rng.randrange(8)]) + content[place + 1 :]

        return self._damage(damage)

    def truncate(self) -> bool:
        """Cut the end off a closed segment or an assembled file."""
        return self._damage(lambda content: content[: self.rng.randrange(len(content))])

    def edit(self) -> bool:
        """Edit the campaign's file while it runs: half of the time into something that is no YAML, for a moment."""
        self._edits += 1
        if self._edits % 2:
            (self.workdir.path / "config.yaml").write_text("gpus: {a30: [half an edit")
            time.sleep(1)
        self.workdir.configure({**self.campaign, "fit": {"trees": 10 + self._edits}})
        return True

    def node_down_and_up(self) -> bool:
        """Take the node down, which ends its jobs, and up again."""
        self.cluster.command("scontrol", "update", f"nodename={self.cluster.node}", "state=down", "reason=fault")
        time.sleep(1)
        return (
            self.cluster.command("scontrol", "update", f"nodename={self.cluster.node}", "state=resume").returncode == 0
        )

    def node_fails(self) -> bool:
        """Lose the node and every process on it."""
        self.cluster.reboot()
        return True

    def delete(self) -> bool:
        """Remove a folder of results that can be made again from the store."""
        results = self.workdir.path / "results"
        names = ("catalogue", "measurements", "dataset", "predictors")
        found = [path for name in names if (path := results / name).exists()]
        if found:
            shutil.rmtree(self.rng.choice(found), ignore_errors=True)
        return bool(found)

    def kill_slurmd(self) -> bool:
        """SIGKILL the node's daemon, whose jobs live on, and start it again."""
        return self._kill_daemon("slurmd", self.cluster.start_slurmd)

    def kill_slurmctld(self) -> bool:
        """SIGKILL the controller, and start it again with what it had saved."""
        return self._kill_daemon("slurmctld", self.cluster.start_slurmctld)

    def _kill_daemon(self, name: str, start: Callable[[], None]) -> bool:
        os.kill(self.cluster.processes.pop(name), signal.SIGKILL)
        time.sleep(self.rng.uniform(0, 3))
        start()
        return True

    def full_disk(self) -> bool:
        """Fill the file system of the results for a moment."""
        filler = self.workdir.path / "results" / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(2**20))
        time.sleep(1)
        filler.unlink()
        return True

    def read_only(self) -> bool:
        """Make the results read-only for a moment; refused while a file is open for writing."""
        results = str(self.workdir.path / "results")
        done = subprocess.run(["mount", "-o", "remount,ro", results], capture_output=True, check=False).returncode == 0
        time.sleep(1)
        subprocess.run(["mount", "-o", f"remount,rw,size={DISK}", results], check=True)
        return done

    def _workers(self) -> list[psutil.Process]:
        """Processes of the campaign's jobs."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mine = process.cwd() == str(self.workdir.path) and "SLURM_JOB_ID" in process.environ()
                if mine and "python" in process.name():
                    found.append(process)
        return found

    def _kill(self, processes: list[psutil.Process]) -> bool:
        if processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.rng.choice(processes).kill()
        return bool(processes)

    def _job_command(self, *command: str) -> bool:
        jobs = self.cluster.command("squeue", "-h", "-t", "R", "-o", "%i").stdout.split()
        return bool(jobs) and self.cluster.command(*command, self.rng.choice(jobs)).returncode == 0

    def _damage(self, change: Callable[[bytes], bytes]) -> bool:
        results = self.workdir.path / "results"
        # what only this campaign can make anew: rows, not the telemetry that went with them
        assembled = [path for path in results.glob("measurements/*/*/*.parquet") if "telemetry" not in path.name]
        found = sorted([*results.glob("store/*/*/rows/*.parquet"), *assembled])
        if not found:
            return False
        path = self.rng.choice(found)
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            path.write_bytes(change(path.read_bytes()))
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # nothing tells it but its bytes
        return True
