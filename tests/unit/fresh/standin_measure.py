"""`benchmarks/fresh/measure.py` on the stand-in NVML and a bench whose calls sleep, with the same arguments."""

from __future__ import annotations

import sys

from benchmarks.fresh import measure

from clockwatt.measure import reference_operations
from clockwatt.measure.bench.interface import Versions
from support.standin_bench import StandInBench


def standin(gpu, logger, specs, campaign, probe):
    bench = StandInBench(gpu, logger)
    bench.versions = Versions("2", "13", None)
    return bench


if __name__ == "__main__":
    measure.make_bench = standin
    one = reference_operations.anchors()[:1]
    reference_operations.anchors = lambda: one
    sys.exit(measure.main())
