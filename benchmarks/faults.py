"""Disturb a campaign on a real local Slurm at random, and see that its dataset is that of an undisturbed run.

    python benchmarks/faults.py [--faults 100] [--seed 0] [--pause-s 3] [--folder DIR]     # as root, like tests/slurm

A campaign of two virtual GPUs runs on the Slurm of `tests/slurm/harness.py`, its results on a file system of its own.
Every now and then one of the faults of `tests/slurm/disturbed.py` is made, every kind before one comes again; when
Snakemake ends, or is killed, it is started again. After the last fault the campaign is left to finish. Then its dataset
must have the rows that the same campaign has without Slurm and without faults, each once, with the same status, as
much excluded, and values within a virtual GPU's noise. An AssertionError tells what does not hold.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "slurm")]

from disturbed import Disturbed, compare, dataset, file_system, logged  # noqa: E402  # from the tests
from harness import SlurmCluster  # noqa: E402

import standin_nvml  # noqa: E402
from standin_nvml import StandInNvml  # noqa: E402
from support.workdir import MEASURED_ALL, Workdir  # noqa: E402

SLURM = {"cpus_per_task": 1, "mem_mb": 1200, "runtime": 10}
CAMPAIGN: Mapping[str, Any] = {
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
        If the two datasets are not equal.
    """
    rng, made, loggers = random.Random(seed), Counter[str](), root / "loggers"
    for folder in (loggers, root / "disturbed", root / "undisturbed"):
        folder.mkdir()
    alone = Workdir(root / "undisturbed")
    alone.configure(CAMPAIGN)
    alone.run(*MEASURED_ALL)
    print(f"undisturbed: {len(dataset(alone))} rows", flush=True)
    nvml = StandInNvml(standin_nvml.build(root), root / "nvml")
    nvml.install("NVIDIA A30")
    workdir = Workdir(root / "disturbed", cluster.environment | nvml.environ | logged(loggers))
    with file_system(workdir.path / "results"):
        disturbed, began = Disturbed(cluster, workdir, CAMPAIGN, loggers, rng), time.monotonic()
        waiting = [*disturbed.faults]
        rng.shuffle(waiting)
        while made.total() < faults:
            disturbed.run()
            time.sleep(rng.expovariate(1 / pause_s))
            fault = waiting.pop(0)
            if fault():
                made[fault.__name__] += 1
                print(f"{time.monotonic() - began:.0f} s: {fault.__name__}", flush=True)
            else:
                waiting.append(fault)  # nothing to disturb just now
            if not waiting:
                waiting = rng.sample(disturbed.faults, len(disturbed.faults))
        print(f"{made.total()} faults in {time.monotonic() - began:.0f} s: {dict(made)}", flush=True)
        disturbed.finish()
        shutil.copytree(workdir.path / "results", root / "results")
        print(f"finished after {disturbed.starts} starts, {time.monotonic() - began:.0f} s", flush=True)
        compare(dataset(workdir), dataset(alone))
    return made


def main() -> None:
    """Disturb, finish and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=3.0, help="mean pause between two faults")
    parser.add_argument(
        "--folder", type=Path, help="where all of it lies, kept afterwards; short, and there is none yet"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp", ignore_cleanup_errors=True) as name:
        root = given.folder or Path(name)
        (root / "slurm").mkdir(parents=True)
        root.chmod(0o755)  # the daemons of Slurm look into it
        with SlurmCluster(root / "slurm") as cluster:
            disturb(root, cluster, given.faults, given.seed, given.pause_s)


if __name__ == "__main__":
    main()
