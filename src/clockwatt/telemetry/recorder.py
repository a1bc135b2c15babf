"""Read a GPU at three sampling rates and write the rows to closed segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from clockwatt.config import TelemetryConfig
from clockwatt.io.segments import SegmentWriter
from clockwatt.schema.records import TelemetryRow
from clockwatt.telemetry.rings import RingReport
from clockwatt.telemetry.sampling import FAST, RING, SLOW, Rhythm


@dataclass(frozen=True)
class LoggerReport:
    """How well a logger kept its rhythm."""

    dropped_ticks: int
    failed_readings: int
    rings: dict[str, RingReport] = field(default_factory=dict)


class Reader(Protocol):
    """What reads the sensors of each sampling rate."""

    failed_readings: int

    def read(self, lane: str) -> list[TelemetryRow]:
        """Return the rows of one reading at a sampling rate."""


class Recorder:
    """Take the readings that are due, keep their rows for `take` and write them to segments."""

    def __init__(self, reader: Reader, writer: SegmentWriter, config: TelemetryConfig, start_ns: int) -> None:
        self._reader, self._writer = reader, writer
        periods = {FAST: config.fast_period_s, SLOW: config.slow_period_s, RING: config.ring_period_s}
        # half a tick away from the fast readings, so that slower ones do not delay them
        starts_ns = dict.fromkeys((SLOW, RING), start_ns + round(config.fast_period_s * 0.5e9)) | {FAST: start_ns}
        self._rhythms = {lane: Rhythm(round(period * 1e9), starts_ns[lane]) for lane, period in periods.items()}
        self._fresh: list[TelemetryRow] = []
        self._due_ns = self._earliest_due_ns()

    @property
    def due_ns(self) -> int:
        """Return when the next reading is due, on the monotonic clock of `start_ns`."""
        return self._due_ns

    def _earliest_due_ns(self) -> int:
        return min(rhythm.due_ns for rhythm in self._rhythms.values())

    def tick(self, now_ns: int) -> None:
        """Take every reading that is due."""
        for lane, rhythm in self._rhythms.items():
            if rhythm.tick(now_ns):
                self._read(lane)
        self._due_ns = self._earliest_due_ns()

    def take(self) -> list[TelemetryRow]:
        """Return everything read since the last call, with the ring buffer drained up to now."""
        self._read(RING)
        taken, self._fresh = self._fresh, []
        return taken

    @property
    def dropped_ticks(self) -> int:
        """Ticks that were missed, of all sampling rates."""
        return sum(rhythm.dropped for rhythm in self._rhythms.values())

    def flush(self) -> None:
        """Close the open segment."""
        self._writer.flush()

    def close(self) -> LoggerReport:
        """Drain, close the open segment, merge all segments into one."""
        self._read(RING)
        self._writer.merge()
        return LoggerReport(self.dropped_ticks, self._reader.failed_readings)

    def _read(self, lane: str) -> None:
        rows = self._reader.read(lane)
        self._fresh.extend(rows)
        self._writer.add(rows)
