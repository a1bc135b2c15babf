"""How long 100 batch sizes of one network take from Python.

    python benchmarks/sweep_speed.py [--network NAME]

Asks for batch sizes 1 to 100 in a process of its own with an empty cache of traces, in another one with what the first
left in the cache, and again in that process. CPU time tells more than the clock where others use the machine.
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
ASK = """
import json, sys, time
def now(): return time.perf_counter(), time.process_time()
start = now()
import clockwatt
def ask(): clockwatt.predict(sys.argv[1], (32, 3, 224, 224), gpu="h200", batch=list(range(1, int(sys.argv[2]) + 1)))
ask()
first = now()
ask()
again = now()
print(json.dumps([[b - a for a, b in zip(*pair)] for pair in ((start, first), (first, again))]))
"""


def main() -> None:
    """Time the three and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet50")
    network = parser.parse_args().network
    with tempfile.TemporaryDirectory() as cache:
        cold, _ = asked(network, cache)
        warm, again = asked(network, cache)
    rows = [
        [name, round(clock_s, 2), round(cpu_s, 2)]
        for name, (clock_s, cpu_s) in (("empty cache", cold), ("cached traces", warm), ("same process", again))
    ]
    result_file.write(
        "speed",
        f"{SIZES} batch sizes of {network}",
        ["traces", "time (s)", "CPU time (s)"],
        rows,
        targets=[result_file.target(f"{SIZES} batch sizes", cold[1], at_most=AT_MOST_S, unit="s of CPU time")],
        notes=["Imports are part of the first two rows."],
    )


def asked(network: str, cache: str) -> list[list[float]]:
    """Seconds by the clock and of CPU time, of a new process and of the second question in it."""
    environment = {**os.environ, "CLOCKWATT_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ASK, network, str(SIZES)]
    done = subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
