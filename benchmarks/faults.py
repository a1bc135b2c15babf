"""Disturb a campaign on a real local Slurm at random, and see that its dataset is that of an undisturbed run.

    python benchmarks/faults.py [--faults 100] [--seed 0] [--pause-s 1] [--folder DIR]

A campaign of a virtual GPU runs on the Slurm of `tests/slurm/harness.py`, as root, its results on a file system of its
own. Every now and then one of the faults of `tests/slurm/disturbed.py` is made. When Snakemake ends, or is killed, it
is started again. A campaign that ends before its faults are made starts over. After each round, which has each kind of
fault, it is left to finish. Then its dataset must have the rows that the same campaign has without Slurm and without
faults, each once, with the same status, as much excluded, and values within a virtual GPU's noise. An AssertionError
says what does not hold.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "slurm")]

import result_file  # noqa: E402
from disturbed import FAULTS  # noqa: E402  # from the tests
from fault_run import TOLERANCE, Outcome, disturb  # noqa: E402
from harness import SlurmCluster  # noqa: E402

CAMPAIGN: Mapping[str, Any] = {
    "gpus": {
        "a30": {
            "device": "virtual:a30", "clocks_mhz": [900], "tf32": False,
            "slurm": {"gres": "gpu:a30:1", "cpus_per_task": 1, "mem_mb": 1200, "runtime": 10},
        },
    },
    "telemetry": {"segment_s": 0.6},
}  # fmt: skip


def dealt(faults: int, rng: random.Random) -> list[list[str]]:
    """So many names of faults in rounds: in each of them all in random order."""
    sizes = [min(len(FAULTS), faults - begun) for begun in range(0, faults, len(FAULTS))]
    return [rng.sample(FAULTS, size) for size in sizes]


def main() -> None:
    """Disturb, finish and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=1.0, help="mean pause between two faults")
    parser.add_argument(
        "--folder", type=Path, help="where all of it lies, kept afterwards; short, and there is none yet"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp", ignore_cleanup_errors=True) as name:
        root = given.folder or Path(name)
        (root / "slurm").mkdir(parents=True)
        root.chmod(0o755)  # the daemons of Slurm look into it
        # a job that a killed controller believes to run is missed soon
        with SlurmCluster(root / "slurm", settings="SlurmdTimeout=20\n") as cluster:
            rng = random.Random(given.seed)
            rounds = dealt(given.faults, rng)
            for outcome in disturb(root, cluster, CAMPAIGN, rounds, rng, given.pause_s):
                write(outcome)


def write(outcome: Outcome) -> None:
    """Write the JSON of a campaign that ended each round until now with the rows of an undisturbed run."""
    apart = {kind: max(value for name, value in outcome.apart.items() if kind in name) for kind in ("time", "energy")}
    result_file.write(
        "faults",
        "A campaign on a real Slurm, disturbed at random",
        ["fault", "times"],
        sorted(outcome.made.items()),
        targets=[
            result_file.target("faults", outcome.made.total(), at_least=100),
            result_file.target("largest relative difference of a time", apart["time"], at_most=TOLERANCE),
            result_file.target(
                "dynamic energies: largest difference by whole energy", apart["energy"], at_most=TOLERANCE
            ),
        ],
        notes=[
            f"After each of {outcome.rounds} rounds, a rerun had all {outcome.rows} rows of an undisturbed run once.",
            "Their status and flags of exclusion were the same.",
            f"{outcome.disturbed_s:.0f} s with faults, {outcome.finishing_s:.0f} s of reruns to the end.",
            f"Snakemake was started {outcome.starts} times.",
        ],
    )


if __name__ == "__main__":
    main()
