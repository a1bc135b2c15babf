"""How many operations per hour a GPU is measured at, process start included, and what came out.

    python benchmarks/throughput.py --config FILE --gpu LABEL [--point default] [--results DIR] [--seconds 540]

Runs `clockwatt catalogue` (unless it is there) and `clockwatt measure` for the operations and the networks, within the
seconds that are given; run again, it goes on where it was. Prints rows by status, failures, flags and seconds per
measurement.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.measure import tasks
from clockwatt.measure.store import Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema import layout
from clockwatt.schema.records import TIME, MeasurementRow


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--point", default="default")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--seconds", type=float, default=540)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    catalogue = given.results / layout.CATALOGUE
    if not (catalogue / "networks.parquet").exists():
        timed("catalogue", ["catalogue", "--config", str(given.config), "--output-dir", str(catalogue)], end)
    common = [
        "--config",
        str(given.config),
        "--gpu",
        given.gpu,
        "--point",
        given.point,
        "--catalogue-dir",
        str(catalogue),
    ]
    folder = given.results / layout.MEASUREMENTS / given.gpu / given.point
    for networks in (False, True):
        name = "networks-1.parquet" if networks else "1.parquet"
        extra = ["--networks"] if networks else []
        store = ["--store-dir", str(given.results / layout.STORE), "--output", str(folder / name)]
        timed("networks" if networks else "operations", ["measure", *common, *store, *extra], end)
    report(given, catalogue)


def timed(name: str, arguments: list[str], end: float) -> None:
    """Run a stage until it ends or its time is over; SIGTERM lets it close its files."""
    start = time.monotonic()
    if start >= end:
        print(f"{name}: no time left, run the same command again", flush=True)
        return
    process = subprocess.Popen([sys.executable, "-m", "clockwatt", *arguments])
    try:
        status = process.wait(end - start)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        status = process.wait()
    print(f"{name}: exit status {status} after {time.monotonic() - start:.1f} s", flush=True)


def report(given: argparse.Namespace, catalogue: Path) -> None:
    """Print what the store now holds."""
    campaign = config.load(given.config)
    store = Store(given.results / layout.STORE, campaign, given.gpu, OperatingPoint.parse(given.point))
    for networks in (False, True):
        wanted = tasks.subjects(campaign, campaign.gpu(given.gpu), Shard(1, 1, networks), catalogue)
        rows = store.rows(tasks.key(subject) for subject in wanted)
        measured = [row for row in rows if row.kind != "anchor"]
        print(f"\n{'networks' if networks else 'operations'}: {len(measured)} of {len(wanted)}")
        for pass_ in campaign.passes:
            describe(pass_, [row for row in measured if row.pass_ == pass_])
        for row in measured:
            if row.status != "ok":
                print(f"  {row.status}: {row.subject_id} {row.pass_}: {row.error}")


def describe(name: str, rows: list[MeasurementRow]) -> None:
    """Print one line of counts and one of durations."""
    if not rows:
        return
    seconds = np.array([row.duration_s for row in rows if row.duration_s is not None and row.time_device_s != 0])
    span_s = sum((max(group) - min(group)) / 1e6 for group in sessions(rows).values())
    print(
        f"  {name}: {dict(Counter(row.status for row in rows))}, "
        f"flags {dict(Counter(flag for row in rows for flag in row.flags))}"
    )
    alone = sum(row.quantities == [TIME] for row in rows)
    print(f"  {alone} of {len(rows)} time alone; {3600 * len(rows) / span_s:.0f} an hour")
    print(
        f"  seconds per measurement with device work: median {np.median(seconds):.2f}, mean {seconds.mean():.2f}, "
        f"95th percentile {np.quantile(seconds, 0.95):.2f}, most {seconds.max():.2f}; sessions' span {span_s:.0f} s"
    )


def sessions(rows: list[MeasurementRow]) -> dict[str, list[int]]:
    """Start and end times of the rows in µs, by session."""
    times: dict[str, list[int]] = {}
    for row in rows:
        times.setdefault(row.session_id, []).extend((row.started_us, row.ended_us))
    return times


if __name__ == "__main__":
    main()
