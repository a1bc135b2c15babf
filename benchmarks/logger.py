"""Whether the telemetry logger keeps its rhythm, what it costs, and whether it slows what it watches.

    python benchmarks/logger.py [--gpu DEVICE] [--seconds 12] [--pairs 60]

Runs the real logger process beside an addition of 64 numbers, which is bound by the host, and beside a matrix product
that keeps the device busy; takes about 80 s. DEVICE is as in a config (without it, the first GPU that CUDA would show).
For `virtual:h100` and the like only the rhythm is shown, in virtual time: there is no process to cost anything.

For the slowdown the logger is stopped (SIGSTOP) and continued in turns, in random order within each pair of blocks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from scipy import stats

from clockwatt.config import TelemetryConfig
from clockwatt.gpu.interface import InstalledGpu
from clockwatt.gpu.registry import visible_gpus
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.schema.records import TelemetryRow
from clockwatt.telemetry.logger import virtual_logger
from clockwatt.telemetry.process import logger_process
from clockwatt.telemetry.sampling import FAST, RING

BLOCK_S = 0.3
SETTLING_S = 0.05
CALLS = 200
VIRTUAL = "virtual:"


@dataclass(frozen=True)
class Rhythm:
    """Intervals of a lane."""

    readings: int
    missed: int
    variation: float  # standard deviation over mean
    median_s: float

    @classmethod
    def of(cls, times_s: np.ndarray) -> Rhythm:
        """Rhythm of readings at these times, in s."""
        intervals = np.diff(times_s)
        median = float(np.median(intervals))
        missed = int(np.maximum(np.round(intervals / median) - 1, 0).sum())
        return cls(len(times_s), missed, float(intervals.std() / intervals.mean()), median)


@dataclass(frozen=True)
class Watched:
    """What a logger did beside one load."""

    fast: Rhythm
    ring: Rhythm | None
    counter_per_s: float
    core_share: float | None


def main() -> None:
    """Watch, then print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long each load is watched")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of blocks with the logger on and off")
    given = parser.parse_args()
    if given.gpu.startswith(VIRTUAL):
        with tempfile.TemporaryDirectory() as folder:
            print_rhythm({"virtual time": watched_virtually(given.gpu.removeprefix(VIRTUAL), given, Path(folder))})
        return
    gpu = next(found for found in visible_gpus() if found.uuid.startswith(given.gpu))
    loads = {"bound by the host": small_addition(), "heavy": large_product()}
    print_rhythm({name: watched(gpu, load, given.seconds) for name, load in loads.items()})
    slowdown, half_width = slowdown_of(gpu, loads["bound by the host"], given.pairs)
    print(f"\nSlowdown of the host-bound operation: {slowdown:+.2%} ± {half_width:.2%} (95 %; target: at most 0.5 %)")


def small_addition() -> Callable[[], None]:
    """Issues calls that the device is done with before the next one comes."""
    import torch

    numbers = torch.zeros(64, device="cuda")

    def issue() -> None:
        for _ in range(CALLS):
            torch.add(numbers, numbers)
        torch.cuda.synchronize()

    return issue


def large_product() -> Callable[[], None]:
    """Keeps the device busy for milliseconds a call."""
    import torch

    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def issue() -> None:
        for _ in range(4):
            torch.mm(matrix, matrix)
        torch.cuda.synchronize()

    return issue


def watched(gpu: InstalledGpu, load: Callable[[], None], seconds: float) -> Watched:
    """A logger beside a load; what it reads in the first second is left out."""
    with (
        tempfile.TemporaryDirectory() as folder,
        logger_process(gpu, uuid.uuid4().hex, Path(folder), TelemetryConfig()) as logger,
    ):
        (process,) = (psutil.Process(child.pid) for child in multiprocessing.active_children())
        run_for(load, 1.0)
        logger.take()
        before_s, started = cpu_s(process), time.monotonic()
        run_for(load, seconds)
        share = (cpu_s(process) - before_s) / (time.monotonic() - started)
        return summary(logger.take(), share)


def watched_virtually(model: str, given: argparse.Namespace, folder: Path) -> Watched:
    """The lanes in a virtual GPU's own time."""
    gpu = VirtualGpu(model, seed=0)
    with virtual_logger(gpu, uuid.uuid4().hex, folder, TelemetryConfig()) as logger:
        logger.advance(given.seconds)
        return summary(logger.take(), None)


def summary(rows: list[TelemetryRow], core_share: float | None) -> Watched:
    """Rhythm of the lanes in what a logger gave."""
    fast = [row for row in rows if row.lane == FAST]
    ring = np.array([row.time_us * 1e-6 for row in rows if row.lane == RING])
    times_s = np.array([row.monotonic_ns * 1e-9 for row in fast])
    counted = sum(row.energy_counter_j is not None for row in fast)
    return Watched(
        Rhythm.of(times_s), Rhythm.of(ring) if len(ring) > 2 else None, counted / np.ptp(times_s), core_share
    )


def slowdown_of(gpu: InstalledGpu, load: Callable[[], None], pairs: int) -> tuple[float, float]:
    """How much longer a load takes with a running logger than with a stopped one, and the 95 % half-width."""
    rng = np.random.default_rng(0)
    ratios = []
    with (
        tempfile.TemporaryDirectory() as folder,
        logger_process(gpu, uuid.uuid4().hex, Path(folder), TelemetryConfig()),
    ):
        (process,) = multiprocessing.active_children()
        assert process.pid is not None
        try:
            for _ in range(pairs):
                durations = {}
                for on in rng.permutation([True, False]):
                    os.kill(process.pid, signal.SIGCONT if on else signal.SIGSTOP)
                    run_for(load, SETTLING_S)
                    durations[bool(on)] = run_for(load, BLOCK_S)
                ratios.append(np.log(durations[True] / durations[False]))
        finally:
            os.kill(process.pid, signal.SIGCONT)
    half_width = stats.t.ppf(0.975, len(ratios) - 1) * np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    return float(np.expm1(np.mean(ratios))), float(half_width)


def run_for(load: Callable[[], None], seconds: float) -> float:
    """Run a load for so long; gives seconds per issue."""
    started = time.perf_counter()
    issued = 0
    while time.perf_counter() - started < seconds:
        load()
        issued += 1
    return (time.perf_counter() - started) / issued


def cpu_s(process: psutil.Process) -> float:
    """CPU time of a process, all its threads, in s."""
    times = process.cpu_times()
    return float(times.user + times.system)


def print_rhythm(by_load: dict[str, Watched]) -> None:
    """One row per quantity and load."""
    print("| load | lane | readings | median interval | CV of interval | missed | counter readings | share of a core |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for load, seen in by_load.items():
        share = "" if seen.core_share is None else f"{seen.core_share:.2%} (≤ 3 %)"
        lanes = [
            ("10 Hz (≤ 2 %)", seen.fast, f"{seen.counter_per_s:.1f}/s", share),
            ("ring (≤ 1 %)", seen.ring, "", ""),
        ]
        for lane, rhythm, counter, core in lanes:
            if rhythm is not None:
                print(
                    f"| {load} | {lane} | {rhythm.readings} | {rhythm.median_s * 1e3:.2f} ms | {rhythm.variation:.2%} "
                    f"| {rhythm.missed} | {counter} | {core} |"
                )


if __name__ == "__main__":
    main()
