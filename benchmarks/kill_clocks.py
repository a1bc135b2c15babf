"""Kill jobs at random moments while the helper sets their GPU: 200 runs by default. Needs root and Slurm.

python benchmarks/kill_clocks.py [RUNS] [--without-epilog]
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("tests", "tests/slurm")]

from clocks_node import clocks_node  # noqa: E402
from kill_runs import WAYS, kill_at_random  # noqa: E402


def main(runs: int, *, slurm_restores: bool) -> None:
    rng = random.Random(0)
    by_way = collections.defaultdict(list)
    with clocks_node(slurm_restores=slurm_restores) as node:
        for number in range(runs):
            way = WAYS[number % len(WAYS)]
            by_way[way].append(kill_at_random(node, rng, way))  # an AssertionError where a GPU stays set
    print("| killed by | runs | set when killed | longest until restored after the job's end |")
    print("| --- | --- | --- | --- |")
    for way, killed in by_way.items():
        longest_s = max(run.restored_s for run in killed)
        print(f"| {way} | {len(killed)} | {sum(run.was_set for run in killed)} | {longest_s * 1000:.0f} ms |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=200)
    parser.add_argument("--without-epilog", action="store_true")
    arguments = parser.parse_args()
    main(arguments.runs, slurm_restores=not arguments.without_epilog)
