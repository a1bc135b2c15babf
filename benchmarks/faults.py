"""Disturb a campaign on a real local Slurm at random, and see that its measurements are those of an undisturbed run.

    python benchmarks/faults.py [--faults 100] [--seed 0] [--pause-s 3]        # as root, like tests/slurm

A campaign of two virtual GPUs runs on the Slurm of `tests/slurm/harness.py`, its results on a file system of its own.
Every now and then one of the faults below is made; when Snakemake ends, or is killed, it is started again. After the
last fault the campaign is left to finish. Then every operation and network must have the rows that the same campaign
has without Slurm and without faults, each once, with the same status and values within a virtual GPU's noise. An
AssertionError tells what does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pyarrow.parquet as pq

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "slurm")]

from harness import SlurmCluster  # noqa: E402  # from the tests

import standin_nvml  # noqa: E402
from standin_nvml import StandInNvml  # noqa: E402
from support.logged_bench import FOLDER  # noqa: E402
from support.workdir import KEY, MEASURED_ALL, ON_SLURM, Workdir  # noqa: E402

SLURM = {"cpus_per_task": 1, "mem_mb": 1200, "runtime": 10}
CAMPAIGN = {
    "gpus": {
        "a30": {"device": "virtual:a30", "clocks_mhz": [900], "slurm": SLURM | {"gres": "gpu:a30:1"}},
        "turing": {
            "device": "virtual:rtx2080ti", "clocks_mhz": [1005], "tf32": False,
            "slurm": SLURM | {"gres": "gpu:rtx2080ti:1"},
        },
    },
    "telemetry": {"segment_s": 0.6},
    "shards": 2,
}  # fmt: skip
DISK = "200M"
VALUES = ("time_host_s", "time_device_s", "power_w", "energy_dynamic_j")
TOLERANCE = 0.05
"""Of the median over all rows: a virtual GPU draws its noise anew in each session."""
ENDS_WITHIN_S = 1200
FINISHING_RUNS = 10


class Disturbed:
    """The campaign on Slurm, and what is done to it."""

    def __init__(self, cluster: SlurmCluster, workdir: Workdir, loggers: Path, rng: random.Random) -> None:
        self.cluster, self.workdir, self.loggers, self.rng = cluster, workdir, loggers, rng
        self.snakemake: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._edits = 0

    def run(self) -> None:
        """Start Snakemake if it does not run."""
        if self.snakemake is not None and self.snakemake.poll() is None:
            return
        self.cluster.command("scancel", "--user=root")  # what a killed Snakemake left
        environment = {**os.environ, **self.workdir.environment}
        shutil.rmtree(self.workdir.path / ".snakemake" / "locks", ignore_errors=True)  # as `snakemake --unlock` does
        with (self.workdir.path / "snakemake.log").open("ab") as log:
            self.snakemake = subprocess.Popen(
                self.workdir.command(*ON_SLURM, "--", *MEASURED_ALL), cwd=self.workdir.path, env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.starts += 1

    def finish(self) -> None:
        """Let it run until all is measured: a run sets damaged files aside, the next makes them anew."""
        for _ in range(FINISHING_RUNS):
            self.run()
            assert self.snakemake is not None
            if self.snakemake.wait(ENDS_WITHIN_S) == 0:
                return
        raise AssertionError((self.workdir.path / "snakemake.log").read_text()[-4000:])

    def kill_worker(self) -> bool:
        """SIGKILL a process that measures, or the one that waits for it."""
        known = {path.name for path in self.loggers.iterdir()}
        measuring = [process for process in self._workers() if {"measure", "--multiprocessing-fork"} & _words(process)]
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
        self.workdir.configure(CAMPAIGN | {"fit": {"trees": 10 + self._edits}})
        return True

    def node_down_and_up(self) -> bool:
        """Take the node down, which ends its jobs, and up again."""
        self.cluster.command("scontrol", "update", f"nodename={self.cluster.node}", "state=down", "reason=fault")
        time.sleep(1)
        return (
            self.cluster.command("scontrol", "update", f"nodename={self.cluster.node}", "state=resume").returncode == 0
        )

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

    @property
    def faults(self) -> list[Callable[[], bool]]:
        """All of them; each tells whether it found something to disturb."""
        return [
            self.kill_worker, self.kill_worker, self.kill_logger, self.kill_job, self.kill_snakemake, self.scancel,
            self.requeue, self.flip, self.truncate, self.edit, self.node_down_and_up, self.kill_slurmd,
            self.kill_slurmctld, self.full_disk, self.read_only,
        ]  # fmt: skip

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


def _words(process: psutil.Process) -> set[str]:
    """Of the command that a process runs; none of one that has ended."""
    with contextlib.suppress(psutil.Error):
        return set(process.cmdline())
    return set()


def logged(loggers: Path) -> dict[str, str]:
    """What has the jobs' virtual GPUs read by a logger process too."""
    paths = (REPOSITORY / "tests" / "support" / "in_jobs", REPOSITORY / "tests")
    return {"PYTHONPATH": os.pathsep.join(map(str, paths)), FOLDER: str(loggers)}


def measured(workdir: Workdir) -> pd.DataFrame:
    """Rows of the assembled files, anchors apart."""
    paths = [
        path
        for path in sorted(workdir.path.glob("results/measurements/*/*/*.parquet"))
        if not path.name.startswith(("telemetry", "calibration"))
    ]
    rows = pd.concat([pq.read_table(path).to_pandas() for path in paths])
    return rows[rows["kind"] != "anchor"]


def compare(disturbed: pd.DataFrame, undisturbed: pd.DataFrame) -> None:
    """Hold the rows of one run against those of the other."""
    key = ["gpu", "point", *KEY]
    counts = [Counter(map(tuple, rows[[*key, "status"]].astype(str).to_numpy())) for rows in (disturbed, undisturbed)]
    assert counts[0] == counts[1], f"rows differ: {list((counts[0] - counts[1]) + (counts[1] - counts[0]))[:5]}"
    assert max(counts[0].values()) == 1
    both = disturbed.merge(undisturbed, on=key, suffixes=("", "_undisturbed"), validate="one_to_one")
    for name in VALUES:
        mine, theirs = both[name].to_numpy(float), both[f"{name}_undisturbed"].to_numpy(float)
        assert (np.isnan(mine) == np.isnan(theirs)).all(), f"{name}: null in one run alone"
        some = theirs > 0
        away = np.abs(mine[some] / theirs[some] - 1)
        print(f"{name}: {some.sum()} rows, median {np.median(away):.2%} apart, at most {away.max():.2%}")
        assert np.median(away) <= TOLERANCE, name


@contextlib.contextmanager
def file_system(path: Path) -> Iterator[None]:
    """A file system of its own at `path`."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def disturb(root: Path, cluster: SlurmCluster, faults: int, seed: int, pause_s: float) -> Counter[str]:
    """Run the campaign undisturbed, and on Slurm with faults; returns how many of each were made.

    Parameters
    ----------
    root
        Folder for both, which the daemons of Slurm can look into.
    cluster
        The Slurm.
    faults, seed, pause_s
        How many are made, of which draw, and the mean pause between two.

    Raises
    ------
    AssertionError
        If the two runs' rows are not equal.
    """
    rng, made, loggers = random.Random(seed), Counter[str](), root / "loggers"
    for folder in (loggers, root / "disturbed", root / "undisturbed"):
        folder.mkdir()
    alone = Workdir(root / "undisturbed")
    alone.configure(CAMPAIGN)
    alone.run(*MEASURED_ALL)
    print(f"undisturbed: {len(measured(alone))} rows", flush=True)
    nvml = StandInNvml(standin_nvml.build(root), root / "nvml")
    nvml.install("NVIDIA A30")
    workdir = Workdir(root / "disturbed", cluster.environment | nvml.environ | logged(loggers))
    workdir.configure(CAMPAIGN)
    with file_system(workdir.path / "results"):
        disturbed, began = Disturbed(cluster, workdir, loggers, rng), time.monotonic()
        while made.total() < faults:
            disturbed.run()
            time.sleep(rng.expovariate(1 / pause_s))
            fault = rng.choice(disturbed.faults)
            if fault():
                made[fault.__name__] += 1
                print(f"{time.monotonic() - began:.0f} s: {fault.__name__}", flush=True)
        print(f"{made.total()} faults in {time.monotonic() - began:.0f} s: {dict(made)}", flush=True)
        workdir.configure(CAMPAIGN)
        cluster.command("scontrol", "update", f"nodename={cluster.node}", "state=resume")
        disturbed.finish()
        print(f"finished after {disturbed.starts} starts, {time.monotonic() - began:.0f} s", flush=True)
        compare(measured(workdir), measured(alone))
    return made


def main() -> None:
    """Disturb, finish and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=3.0, help="mean pause between two faults")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp", ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o755)  # the daemons of Slurm look into it
        (root / "slurm").mkdir()
        with SlurmCluster(root / "slurm") as cluster:
            disturb(root, cluster, given.faults, given.seed, given.pause_s)


if __name__ == "__main__":
    main()
