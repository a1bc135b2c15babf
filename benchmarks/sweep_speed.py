"""How long 100 batch sizes of one network take from Python.

    python benchmarks/sweep_speed.py [--network NAME]

Asks for batch sizes 1 to 100 in a process of its own with an empty cache of traces, in another one with what the first
left in the cache, and again in that process. The imports of each process are timed apart. CPU time tells more than the
clock where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

import result_file

SIZES = 100
AT_MOST_S = 5.0
AT_MOST_CACHED_S = 2.0
ASK = """
import json, sys, time
def now(): return time.perf_counter(), time.process_time()
start = now()
import clockwatt, torch, torchvision
import clockwatt.operations.catalogue, clockwatt.predict.api, clockwatt.predict.tracing
imported = now()
def ask(): clockwatt.predict(sys.argv[1], (32, 3, 224, 224), gpu="h200", batch=list(range(1, int(sys.argv[2]) + 1)))
ask()
first = now()
ask()
again = now()
print(json.dumps([[b - a for a, b in zip(*pair)] for pair in ((start, imported), (imported, first), (first, again))]))
"""


def main() -> None:
    """Time the three and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet50")
    network = parser.parse_args().network
    with tempfile.TemporaryDirectory() as cache:
        asked(network, cache)  # compiles the packages' bytecode where there is none
    with tempfile.TemporaryDirectory() as cache:
        imports, cold, _ = asked(network, cache)
        _, cached, again = asked(network, cache)
    rows = [
        [name, round(clock_s, 2), round(cpu_s, 2)]
        for name, (clock_s, cpu_s) in (
            ("imports", imports),
            ("empty cache", cold),
            ("cached traces", cached),
            ("same process", again),
        )
    ]
    result_file.write(
        "speed",
        f"{SIZES} batch sizes of {network}",
        ["part", "time (s)", "CPU time (s)"],
        rows,
        targets=[
            result_file.target(f"{SIZES} batch sizes, {name}", cpu_s, at_most=limit_s, unit="s of CPU time")
            for name, cpu_s, limit_s in (
                ("empty cache", cold[1], AT_MOST_S),
                ("cached traces", cached[1], AT_MOST_CACHED_S),
            )
        ],
        notes=["Only the first row contains imports, which each new process needs."],
    )


def asked(network: str, cache: str) -> list[list[float]]:
    """Seconds by the clock and of CPU time: of a process's imports, and of the first and the second question in it."""
    environment = {**os.environ, "CLOCKWATT_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ASK, network, str(SIZES)]
    done = subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
