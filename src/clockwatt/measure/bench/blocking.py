"""Timing what is issued behind a blocking kernel, the technique of NVIDIA's nvbench.

While a kernel that only waits keeps the device busy, the host issues all that is to be timed. Nothing then waits for
the host, and nothing makes the host wait; an event behind the blocking kernel proves it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

_MARGIN = 1.5
_FLOOR_S = 200e-6
_TRIAL_CYCLES = 20_000_000


class BlockingKernel:
    """A kernel that does nothing for a given time, at the clock that ran when this was made."""

    def __init__(self) -> None:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(2):  # the first run loads the kernel
            start.record()
            torch.cuda._sleep(_TRIAL_CYCLES)
            end.record()
            end.synchronize()
        self._cycles_per_s = _TRIAL_CYCLES / (float(start.elapsed_time(end)) / 1e3)

    def block(self, guess_s: float) -> torch.cuda.Event:
        """Keep an idle device busy for longer than `guess_s`; the event has happened once it no longer is."""
        torch.cuda.synchronize()
        released = torch.cuda.Event()
        torch.cuda._sleep(int((_FLOOR_S + _MARGIN * guess_s) * self._cycles_per_s))
        released.record()
        return released

    def times(self, leading: Callable[[], Any], timed: Callable[[], Any], guess_s: float) -> tuple[float, float | None]:
        """Return host and device time in s of `timed`, when both are issued behind a kernel that outlasts `guess_s`.

        No device time if the kernel ended before all was issued.
        """
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        released = self.block(guess_s)
        leading()
        first.record()
        start = time.perf_counter()
        timed()
        issued_s = time.perf_counter() - start
        last.record()
        all_were_queued = not released.query()
        last.synchronize()
        return issued_s, first.elapsed_time(last) / 1e3 if all_were_queued else None


class Parts:
    """Times a pass in parts, each behind a blocking kernel that outlasts `guess_s`.

    Attributes
    ----------
    host_s
        Sum over parts in s; what a cut takes is not in it.
    all_were_queued
        Whether every part was issued before its first kernel ran.
    """

    def __init__(self, kernel: BlockingKernel, guess_s: float) -> None:
        self.host_s = 0.0
        self.all_were_queued = True
        self._kernel, self._guess_s = kernel, guess_s
        self._spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def begin(self) -> None:
        """Begin a part on an idle device."""
        self._released = self._kernel.block(self._guess_s)
        self._first = torch.cuda.Event(enable_timing=True)
        self._first.record()
        self._start = time.perf_counter()

    def end(self) -> None:
        """End a part."""
        self.host_s += time.perf_counter() - self._start
        last = torch.cuda.Event(enable_timing=True)
        last.record()
        self.all_were_queued &= not self._released.query()
        self._spans.append((self._first, last))

    def cut(self) -> None:
        """End a part and begin the next."""
        self.end()
        self.begin()

    @property
    def device_s(self) -> float:
        """Sum over parts in s; waits for the last one."""
        torch.cuda.synchronize()
        return float(sum(first.elapsed_time(last) for first, last in self._spans)) / 1e3
