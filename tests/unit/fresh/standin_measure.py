"""`benchmarks/fresh/measure.py` on the stand-in NVML and a bench whose calls sleep: `standin_measure.py ARGUMENT...`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]

from benchmarks.fresh import measure

from clockwatt.measure import anchors
from clockwatt.measure.bench.interface import Versions
from support.standin_bench import StandInBench


def standin(gpu, logger, specs, campaign, probe):
    bench = StandInBench(gpu, logger)
    bench.versions = Versions("2", "13", None)
    return bench


if __name__ == "__main__":
    measure.make_bench = standin
    one = anchors.anchors()[:1]
    anchors.anchors = lambda: one
    sys.exit(measure.main())
