"""Disturb a campaign on a real local Slurm at random, and see that its dataset is that of an undisturbed run.

    python benchmarks/faults.py [--faults 100] [--seed 0] [--pause-s 1] [--folder DIR] [--add]

A campaign of a virtual GPU runs on the Slurm of `tests/slurm/harness.py`, as root, its results on a file system of its
own. Every now and then one of the faults of `tests/slurm/disturbed.py` is made. When Snakemake ends, or is killed, it
is started again. A campaign that ends before its faults are made starts over. After each round, which has each kind of
fault, it is left to finish. Then its dataset must have the rows that the same campaign has without Slurm and without
faults, each once, with the same status, as much excluded, and values within a virtual GPU's noise. An AssertionError
says what does not hold. With `--add`, faults are added to those that the JSON has.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
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
DIFFERENCES = {
    "largest relative difference of a time": "time",
    "dynamic energies: largest difference by whole energy": "energy",
}
"""Target to the columns that it is of."""


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
    parser.add_argument("--add", action="store_true", help="to the faults of the JSON")
    given = parser.parse_args()
    before = json.loads((result_file.RESULTS / "faults.json").read_text()) if given.add else {"rows": [], "targets": []}
    with tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp", ignore_cleanup_errors=True) as name:
        root = given.folder or Path(name)
        (root / "slurm").mkdir(parents=True)
        root.chmod(0o755)  # the daemons of Slurm look into it
        # a job that a killed controller believes to run is missed soon
        with SlurmCluster(root / "slurm", settings="SlurmdTimeout=20\n") as cluster:
            rng = random.Random(given.seed)
            rounds = dealt(given.faults, rng)
            for outcome in disturb(root, cluster, CAMPAIGN, rounds, rng, given.pause_s):
                write(outcome, before)


def write(outcome: Outcome, before: Mapping[str, Any]) -> None:
    """Write the JSON of a campaign that ended each round until now with the rows of an undisturbed run.

    Counts and largest differences include those of `before`, an earlier JSON.
    """
    counts = Counter(
        {
            **outcome.made,
            "rounds, each with a rerun to the end": outcome.rounds,
            "starts of Snakemake": outcome.starts,
            "seconds with faults": round(outcome.disturbed_s),
            "seconds of reruns": round(outcome.finishing_s),
        }
    )
    counts.update(dict(before["rows"]))
    earlier = {one["name"]: float(one["value"]) for one in before["targets"]}
    differences = {
        name: max(earlier.get(name, 0), *(value for column, value in outcome.apart.items() if kind in column))
        for name, kind in DIFFERENCES.items()
    }
    result_file.write(
        "faults",
        "A campaign on a real Slurm, disturbed at random",
        ["what", "count"],
        sorted(counts.items(), key=lambda one: (one[0] not in FAULTS, one[0])),
        targets=[
            result_file.target("faults", sum(counts[name] for name in set(FAULTS)), at_least=100),
            *(result_file.target(name, value, at_most=TOLERANCE) for name, value in differences.items()),
        ],
        notes=[
            f"Each rerun had all {outcome.rows} rows of an undisturbed run once, with the same status and exclusions.",
            *([f"With the faults of `{before['command']}`."] if before["rows"] else []),
        ],
    )


if __name__ == "__main__":
    main()
