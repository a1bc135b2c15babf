"""What marks cost a program: 10,000 of them in a loop of small steps, recorded and not.

python benchmarks/marks.py

A step is what a small network does: two dense layers, the hidden one of 512, at batch 128: forward, backward and
optimizer step on one core. Steps and marks are timed in turns of the same process; the medians of the turns are told.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import result_file

LOOP = """
import sys, time
import clockwatt, torch

torch.set_num_threads(1)
marks, rounds, size = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
net = torch.nn.Sequential(torch.nn.Linear(784, size), torch.nn.ReLU(), torch.nn.Linear(size, 10))
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
x, y = torch.randn(128, 784), torch.randint(10, (128,))

def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()

def timed(body, count):
    start = time.perf_counter()
    for number in range(count):
        body(number)
    return (time.perf_counter() - start) / count

for _ in range(20):
    step()
steps, single = [], []
for _ in range(rounds):
    steps.append(timed(lambda _: step(), 50))
    single.append(timed(lambda number: clockwatt.mark("step", number), marks // rounds))
print(*steps)
print(*single)
"""


def measured(marks: int, rounds: int, size: int, folder: str | None) -> tuple[float, float]:
    """Seconds of a step and of a mark, the medians of rounds."""
    environ = {name: value for name, value in os.environ.items() if name != "CLOCKWATT_MARKS"}
    if folder is not None:
        environ["CLOCKWATT_MARKS"] = folder
    done = subprocess.run(
        [sys.executable, "-c", LOOP, str(marks), str(rounds), str(size)], env=environ, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    steps, single = ([float(value) for value in line.split()] for line in done.stdout.splitlines())
    return statistics.median(steps), statistics.median(single)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--marks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", type=int, default=512, help="of the hidden layer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        rows, shares = [], {}
        for what, where in (("recorded", folder), ("not recorded", None)):
            step_s, mark_s = measured(options.marks, options.rounds, options.size, where)
            share = mark_s / step_s
            rows.append([what, f"{mark_s * 1e6:.2f} µs", f"{step_s * 1e6:.0f} µs", f"{share:.2%}"])
            shares[what] = share
            print(f"{what}: a mark {mark_s * 1e6:.2f} µs, a step {step_s * 1e6:.0f} µs: {share:.2%} of the loop")
        print(f"({time.perf_counter() - start:.0f} s)")
    result_file.write(
        "telemetry", "Marks in a program", ["marks", "a mark", "a step", "share of the loop"], rows,
        targets=[result_file.target("share of a loop", 100 * shares["recorded"], at_most=1, unit="%")],
    )  # fmt: skip


if __name__ == "__main__":
    main()
