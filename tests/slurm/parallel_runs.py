"""The study of several GPUs in a job with two GPUs of one type, disturbed in one way.

    python tests/slurm/parallel_runs.py [dies|hangs|cancelled …]

`dies` kills a rank, `hangs` stops one, which counts as hung after 40 s, and `cancelled` cancels the job.
Another GPU is measured beside. Prints how long the other ranks lived, and what Snakemake said at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import psutil
from harness import SlurmCluster

from support.workdir import ON_SLURM, Workdir

GPUS = ("a30", "a30", "rtx2080ti")
SHARED = "PartitionName=shared Nodes=ALL OverSubscribe=FORCE:4\n"
"""Jobs run beside each other on two cores."""
NETWORK = {"name": "squeezenet1_1", "input": [4, 3, 32, 32]}
BESIDE = "results/measurements/rtx/sm900/networks-1.parquet"
WAYS = ("dies", "hangs", "cancelled")


def campaign(*, seconds: float, strategies: list[str], counts: list[int]) -> dict[str, Any]:
    """The study on two A30s, and an RTX 2080 Ti."""
    slurm = {"partition": "shared", "cpus_per_task": 1, "mem_mb": 1500, "runtime": 10}
    gpus = {
        label: {"device": f"virtual:{kind}", "clocks_mhz": [900], "slurm": slurm | {"gres": f"gpu:{kind}:1"}}
        for label, kind in (("a30", "a30"), ("rtx", "rtx2080ti"))
    }
    gpus["a30"]["count"] = 2
    study = {"networks": [NETWORK], "counts": counts, "strategies": strategies, "seconds": seconds}
    return {"gpus": gpus, "studies": {"parallel": study | {"profile_steps": 1, "idle_s": 0.4}}}


@contextlib.contextmanager
def two_gpus() -> Iterator[SlurmCluster]:
    """A node with two GPUs of one type and one of another."""
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        with SlurmCluster(Path(name), accounting=False, gpus=GPUS, settings=SHARED) as cluster:
            yield cluster


def disturb(cluster: SlurmCluster, folder: Path, way: str) -> None:
    """Disturb a run on two GPUs and print what came of it."""
    temporary = folder / "temporary"
    temporary.mkdir()
    workdir = Workdir(folder, cluster.environment)
    workdir.configure(campaign(seconds=20, strategies=["ddp", "fsdp"], counts=[2]))
    options = *ON_SLURM, "--slurm-status-command", "squeue", "--retries", "0", "--keep-going", "--jobs", "4"
    with (folder / "output").open("w") as output:
        snakemake = subprocess.Popen(
            workdir.command(*options, "--", "study_parallel", BESIDE), cwd=folder, stdout=output,
            stderr=subprocess.STDOUT, env={**os.environ, **workdir.environment, "TMPDIR": str(temporary)},
        )  # fmt: skip
        while not list(temporary.glob("*/*-ddp-*.begun")) and snakemake.poll() is None:
            time.sleep(0.2)
        (job,) = cluster.command("squeue", "-h", "-o", "%i %k").stdout.split(" rule_study_parallel_run")[0].split()[-1:]
        ranks = ranks_in(folder)
        began_s = time.monotonic()
        if way == "cancelled":
            cluster.command("scancel", job)
        else:
            ranks[-1].send_signal(signal.SIGKILL if way == "dies" else signal.SIGSTOP)
        _, left = psutil.wait_procs(ranks, timeout=600)
        lived_s = time.monotonic() - began_s
        snakemake.wait()
    shown = (folder / "output").read_text().partition("Failed:")[2].split("\nFinished measurements")[0]
    cases = [path.name for path in folder.glob("results/studies/parallel/a30/cases/*")]
    print(f"{way}: {len(ranks)} ranks ended after {lived_s:.1f} s, {len(left)} left; measured: {', '.join(cases)}")
    print(f"the other job {'ended well' if (folder / BESIDE).exists() else 'FAILED'};{shown}", flush=True)


def ranks_in(folder: Path) -> list[psutil.Process]:
    """Processes of the study's ranks in a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "--multiprocessing-fork" in process.cmdline() and process.cwd() == str(folder):
                found.append(process)
    return found


def main() -> None:
    """Disturb a run in each of the ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], default=WAYS)
    with two_gpus() as cluster:
        for way in parser.parse_args().ways:
            with tempfile.TemporaryDirectory(prefix=f"{way}-", dir="/tmp") as folder:
                disturb(cluster, Path(folder), way)


if __name__ == "__main__":
    main()
