"""Look for examples that break a property, at random: the tests of properties, each round with another seed.

    python tools/random_examples.py [--rounds 20] [--first-seed 0] [TEST ...]

The test suite itself draws the same examples in every run, so that a red test means a bad change. What is found here
becomes a test of its own. Ends with 1 at the first seed that fails, and says how to repeat it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
NO_TEST = 5
"""What pytest ends with where nothing is to be run."""


def main() -> int:
    """Run the rounds; 0 where nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("tests", nargs="*", default=["tests/unit"], metavar="TEST")
    arguments = parser.parse_args()
    environment = os.environ | {"HYPOTHESIS_PROFILE": "random"}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.rounds):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "hypothesis", f"--hypothesis-seed={seed}"]
        done = subprocess.run(
            [*command, *arguments.tests], cwd=REPOSITORY, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode == NO_TEST:
            parser.error(f"no test of a property in {' '.join(arguments.tests)}")
        if done.returncode:
            print(f"{done.stdout}\nseed {seed}: run it again with --first-seed {seed} --rounds 1", file=sys.stderr)
            return 1
        print(f"seed {seed}: {done.stdout.strip().splitlines()[-1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
