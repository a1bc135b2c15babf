"""Draining a driver's ring of samples often enough to lose none, and counting what came twice or was lost."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clockwatt.gpu.interface import FOREIGN_CLOCK_US, SAME_SAMPLE_US, PowerSample, Sample

SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 0.2, 5.0
_SHARE_OF_LENGTH = 0.4
"""A ring is drained again when so much of it is new: late by as much again, nothing is lost."""

_GAP = 2.2
"""More periods than this between two drains have lost some samples; stamps of an H200 are up to half a period off."""

_PROBED_EVERY = 50
"""After so many drains all of a ring is taken once more, to see how long it is by now."""


@dataclass
class RingReport:
    """Statistics of draining a ring buffer."""

    samples: int = 0
    duplicates: int = 0  # handed out twice in one drain, or again in a later one
    lost: int = 0
    period_s: float | None = None  # between samples
    length_s: float | None = None  # longest stretch of time that the ring was seen to hold
    polled_every_s: float = SHORTEST_PERIOD_S


class RingDrain:
    """The samples of a ring, each once.

    Parameters
    ----------
    read
        Gives all samples with a stamp after some µs, as `Gpu.samples`.
    """

    def __init__(self, read: Callable[[int], Sequence[PowerSample | Sample]]) -> None:
        self._read = read
        self._drains = 0
        self._newest_us = 0
        self._offset_us: int | None = None
        self._due_ns = 0
        self.report = RingReport()

    def is_due(self, now_ns: int) -> bool:
        """Return whether it is time to drain it."""
        return now_ns >= self._due_ns

    def drain(self, now_us: int, now_ns: int) -> list[PowerSample | Sample]:
        """Return new samples, oldest first, with stamps on the caller's clock.

        Parameters
        ----------
        now_us
            The caller's clock in µs since the epoch, which a driver's own clock is mapped to.
        now_ns
            The clock that `is_due` is asked with.

        Raises
        ------
        GpuError
            If the ring cannot be read.
        """
        whole = self.report.length_s is None or self._drains % _PROBED_EVERY == 0
        found = self._read(0 if whole else self._newest_us)
        self._drains += 1
        stamps = sorted({sample.time_us for sample in found})
        self.report.duplicates += len(found) - len(stamps)
        if whole:
            self._see_length(stamps)
        # the driver maps its stamps anew for each drain, so that a sample may come back some µs later
        known_us = self._newest_us + SAME_SAMPLE_US if self._newest_us else 0
        fresh = {sample.time_us: sample for sample in found if sample.time_us > known_us}
        if not whole:
            self.report.duplicates += sum(stamp <= known_us for stamp in stamps)
        self._count(sorted(fresh))
        self._due_ns = now_ns + round(self.report.polled_every_s * 1e9)
        if fresh and self._offset_us is None:
            foreign = abs(now_us - max(fresh)) >= FOREIGN_CLOCK_US
            self._offset_us = now_us - max(fresh) if foreign else 0
        offset_us = self._offset_us or 0
        return [_shifted(fresh[stamp], offset_us) for stamp in sorted(fresh)]

    def _see_length(self, stamps: list[int]) -> None:
        report = self.report
        if len(stamps) < 3:
            return
        report.period_s = statistics.median(b - a for a, b in itertools.pairwise(stamps)) * 1e-6
        report.length_s = max(report.length_s or 0.0, len(stamps) * report.period_s)
        report.polled_every_s = min(LONGEST_PERIOD_S, max(SHORTEST_PERIOD_S, _SHARE_OF_LENGTH * report.length_s))

    def _count(self, fresh: list[int]) -> None:
        if not fresh:
            return
        report = self.report
        if self._newest_us and report.period_s:
            gap = (fresh[0] - self._newest_us) / (report.period_s * 1e6)
            report.lost += round(gap) - 1 if gap > _GAP else 0
        report.samples += len(fresh)
        self._newest_us = fresh[-1]


def _shifted(sample: PowerSample | Sample, offset_us: int) -> PowerSample | Sample:
    if not offset_us:
        return sample
    value = sample.power_w if isinstance(sample, PowerSample) else sample.value
    return type(sample)(sample.time_us + offset_us, value)
