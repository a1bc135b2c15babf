"""A reference for time and power: one long loop of back-to-back calls, its energy counted between two ticks.

The energy counter gets a new value every so many milliseconds. Another process polls it at the two ends of the loop,
while the loop goes on, so that both ends are known to one reading of NVML (a few ms); nothing is polled in between.
"""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from clockwatt.gpu.nvidia.nvml import NvmlGpu
from clockwatt.measure.bench.interface import Bench, Subject, Workload
from clockwatt.measure.statistics import mean_estimate

BLOCK_S = 0.02
TRIAL_S = 0.005
TICK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Tick:
    """A new value of the energy counter: its time (monotonic, with the standard deviation of that) and the value."""

    time_ns: int
    uncertainty_ns: float
    energy_j: float


@dataclass(frozen=True)
class Reference:
    """What the long loop gives per call, with standard errors; `calls` and `window_s` are between the two ticks."""

    time_s: float
    time_error_s: float
    power_w: float
    power_error_w: float
    calls: int
    window_s: float


class CounterWatch(abc.ABC):
    """Tells when the energy counter ticks next."""

    @abc.abstractmethod
    def ask(self) -> None:
        """Begin to look for the next tick."""

    @abc.abstractmethod
    def answer(self) -> Tick | None:
        """The tick that was asked for, once it has been seen."""


class InlineWatch(CounterWatch):
    """Reads the counter between two blocks: for a virtual GPU, whose time stands still meanwhile."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._before = (0, 0.0)

    def ask(self) -> None:
        """See `CounterWatch.ask`."""
        self._before = (self._bench.now_ns(), self._bench.gpu.energy_counter_j())

    def answer(self) -> Tick | None:
        """See `CounterWatch.answer`."""
        now_ns, energy_j = self._bench.now_ns(), self._bench.gpu.energy_counter_j()
        before_ns, before_j = self._before
        self._before = (now_ns, energy_j)
        return None if energy_j == before_j else _tick(before_ns, now_ns, energy_j)


class ProcessWatch(CounterWatch):
    """Reads the counter in a process of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self) -> None:
        """See `CounterWatch.ask`."""
        self._connection.send("tick")

    def answer(self) -> Tick | None:
        """See `CounterWatch.answer`."""
        tick: Tick | None = self._connection.recv() if self._connection.poll() else None
        return tick


@contextlib.contextmanager
def counter_watch(bench: Bench) -> Iterator[CounterWatch]:
    """The watch that goes with a bench's GPU."""
    if bench.gpu.identity.virtual:
        yield InlineWatch(bench)
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, bench.gpu.identity.uuid), daemon=True)
    process.start()
    theirs.close()
    try:
        ours.recv()  # it has opened the GPU
        yield ProcessWatch(ours)
    finally:
        ours.close()
        process.join(TICK_TIMEOUT_S)


def reference(bench: Bench, subject: Subject, watch: CounterWatch, warm_up_s: float, duration_s: float) -> Reference:
    """Run the loop: warm up, find a tick, run for `duration_s`, find the next tick."""
    with bench.open(subject) as workload:
        calls = calls_that_take(bench, workload, BLOCK_S)
        with contextlib.closing(bench.eager_blocks(workload, calls)) as blocks:

            def run(enough: Callable[[], bool]) -> list[float]:
                durations = [next(blocks)]
                while not enough():
                    durations.append(next(blocks))
                return durations

            def tick() -> tuple[Tick, list[float]]:
                watch.ask()
                begun_ns = bench.now_ns()
                durations = []
                while (seen := watch.answer()) is None:
                    durations.append(next(blocks))
                    if bench.now_ns() - begun_ns > TICK_TIMEOUT_S * 1e9:
                        raise SystemExit(f"{bench.gpu.identity.name}: the energy counter stands still under load")
                return seen, durations

            warm_ns = bench.now_ns() + round(warm_up_s * 1e9)
            run(lambda: bench.now_ns() >= warm_ns)
            first, _ = tick()
            durations = run(lambda: bench.now_ns() >= first.time_ns + duration_s * 1e9)
            last, more = tick()
    per_call = mean_estimate(np.array(durations + more) / calls)
    assert per_call is not None
    window_ns = last.time_ns - first.time_ns
    power_w = (last.energy_j - first.energy_j) / (window_ns / 1e9)
    error = float(np.hypot(first.uncertainty_ns, last.uncertainty_ns)) / window_ns
    return Reference(
        per_call.value, per_call.standard_error, power_w, power_w * error, calls * per_call.samples, window_ns / 1e9
    )


def calls_that_take(bench: Bench, workload: Workload, seconds: float) -> int:
    """About how many back-to-back calls take so long, from a trial that grows until it can be timed."""
    calls = 1
    while (taken_s := bench.timed_run(workload, calls)) < TRIAL_S:
        calls *= 4
    return max(1, round(calls * seconds / taken_s))


def next_tick(read: Callable[[], float], now_ns: Callable[[], int] = time.monotonic_ns) -> Tick:
    """Poll until the value changes: that is between the start of the reading before it and the end of its own."""
    before_ns = now_ns()
    seen = read()
    while True:
        start_ns = now_ns()
        value = read()
        if value != seen:
            return _tick(before_ns, now_ns(), value)
        before_ns = start_ns


def _tick(before_ns: int, after_ns: int, energy_j: float) -> Tick:
    return Tick((before_ns + after_ns) // 2, (after_ns - before_ns) / 12**0.5, energy_j)


def _serve(connection: Connection, uuid: str) -> None:
    """Body of the watching process; it ends when the measuring one closes the connection."""
    with contextlib.closing(NvmlGpu(uuid)) as gpu, contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send("running")
        while connection.recv():
            connection.send(next_tick(gpu.energy_counter_j))
