"""Several workloads in turn within one process, each marked by a phase of its name, in random order.

    clockwatt record --output DIR -- python benchmarks/workload_sequence.py [--only NAME …] [--turns 3] [--seconds 210]

PyTorch starts once, so that all workloads are recorded in a few minutes. Each has an equal share of the time left;
one that makes its data on the host may take longer.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time

import torch

import clockwatt
from clockwatt.config import ORIGINAL_WORKLOADS, WORKLOADS
from clockwatt.studies.workloads.names import module_of
from clockwatt.studies.workloads.session import main as run_workload

SHORT = ("matmul", "question_answering", "fine_tuning", "black_scholes", "fft", "sepia")
"""Scaled workloads that differ most in power."""
LEAST_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*WORKLOADS, *ORIGINAL_WORKLOADS]
    parser.add_argument("--only", nargs="+", choices=names, default=[*ORIGINAL_WORKLOADS, *SHORT])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=210.0, help="for all turns")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, end_s = random.Random(given.seed), time.monotonic() + given.seconds
    order = [name for _ in range(given.turns) for name in chance.sample(given.only, len(given.only))]
    failed = 0
    for place, name in enumerate(order):
        seconds = max(LEAST_S, (end_s - time.monotonic()) / (len(order) - place))
        options = [
            "--seconds",
            f"{seconds:.2f}",
            "--seed",
            str(place),
            "--scale",
            f"{given.scale:g}",
            "--rest-max-s",
            "1",
        ]
        with clockwatt.phase(name):
            failed += run_workload(importlib.import_module(module_of(name)).WORKLOAD, options)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
