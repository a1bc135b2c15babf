"""A virtual GPU beside a real program: its time is the machine's, and it works when the program's processors do."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil

from clockwatt.gpu.interface import PowerSample
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.gpu.virtual.model import Work

_SIDE = 4096
LOAD = Work(flops=2 * _SIDE**3, bytes_moved=3 * 4 * _SIDE**2, dtype="float32", tf32=False, matrix=True)
"""A product of two matrices of 4,096 × 4,096: what it is said to do while the program computes."""

_LOOK_EVERY_NS = 250_000_000
_STEPS_OF_LOAD = 20
"""Number of steps that the load is rounded to, so that it does not change at every reading."""


class RealTimeGpu(VirtualGpu):
    """A virtual GPU whose clock is the machine's.

    Parameters
    ----------
    model
        As after `virtual:`, e.g. `a30`.
    card
        Which of several.

    Raises
    ------
    UnknownGpuError
        If there is no such model.
    """

    def __init__(self, model: str, card: int = 0) -> None:
        super().__init__(model, seed=0, card=card)
        self._start_us, self._start_ns = time.time_ns() // 1000, time.monotonic_ns()
        self._program: psutil.Process | None = None
        self._processor_s = 0.0
        self._looked_ns = 0

    def now(self) -> tuple[int, int]:
        """Return its time as µs since the epoch and on the machine's monotonic clock in ns."""
        return self._start_us + self.epoch_us, self._start_ns + self.monotonic_ns

    def advance_to(self, monotonic_ns: int) -> None:
        """Let its time pass up to a time of the machine's monotonic clock; going back does nothing."""
        self.advance(max(0, monotonic_ns - self._start_ns - self.monotonic_ns) * 1e-9)

    def power_samples(self, since_us: int) -> Sequence[PowerSample]:
        """See `Gpu`; stamps are on the machine's clock."""
        samples = super().power_samples(since_us - self._start_us)
        return [PowerSample(sample.time_us + self._start_us, sample.power_w) for sample in samples]

    def work_for(self, pid: int | None) -> None:
        """Work from now on while this process and its children do; None: idle."""
        self._program = None if pid is None else psutil.Process(pid)
        self._processor_s, self._looked_ns = 0.0, time.monotonic_ns()
        if pid is None:
            self.load(None)

    def look(self) -> None:
        """See how busy the program is; a core's worth keeps the device busy all the time."""
        now_ns = time.monotonic_ns()
        if self._program is None or now_ns - self._looked_ns < _LOOK_EVERY_NS:
            return
        processor_s = _processor_s(self._program)
        busy = (processor_s - self._processor_s) / ((now_ns - self._looked_ns) * 1e-9)
        self._processor_s, self._looked_ns = processor_s, now_ns
        busy = round(min(1.0, max(0.0, busy)) * _STEPS_OF_LOAD) / _STEPS_OF_LOAD
        self.load(LOAD if busy else None, busy)


def _processor_s(program: psutil.Process) -> float:
    """Return the processor time of a process and its children, with ended children that were waited for."""
    total = 0.0
    try:
        for process in (program, *program.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
            total += times.children_user + times.children_system
    except psutil.Error:  # it ends as it is looked at
        pass
    return total
