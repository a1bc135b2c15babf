"""What `clockwatt record` reads: every sensor of a GPU and all its rings, or the host alone.

Jobs that measure read less, by `LaneReader`: each reading costs time of the driver that they share.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from clockwatt.config import TelemetryConfig
from clockwatt.errors import OutputError
from clockwatt.gpu.interface import Gpu, GpuError, NotSupportedError, PowerSample, Ring
from clockwatt.io.segments import SegmentWriter
from clockwatt.schema.records import TelemetryRow
from clockwatt.telemetry.host import HostSensors
from clockwatt.telemetry.recorder import LoggerReport, Recorder
from clockwatt.telemetry.rings import RingDrain, RingReport
from clockwatt.telemetry.sampling import RING, SLOW, LaneReader

SAMPLES = "samples"
POWER = "power_sample_w"


class EverythingReader(LaneReader):
    """Read a GPU at several sampling rates, with all ring buffers. See `LaneReader` for the parameters."""

    def __init__(
        self, gpu: Gpu, session_id: str, clock: Callable[[], tuple[int, int]], *, cpu_ns: Callable[[], int],
        sensor_cpu_share: float,
    ) -> None:  # fmt: skip
        super().__init__(gpu, session_id, clock, None, cpu_ns=cpu_ns, sensor_cpu_share=sensor_cpu_share)
        self._drains = {POWER: RingDrain(gpu.power_samples)}
        self._drains |= {str(ring): RingDrain(_of_ring(gpu, ring)) for ring in Ring}

    @property
    def rings(self) -> dict[str, RingReport]:
        """How each ring that the GPU has was drained, by its column."""
        return {name: drain.report for name, drain in self._drains.items() if drain.report.samples}

    def read(self, lane: str) -> list[TelemetryRow]:
        """See `LaneReader`; a reading of the ring buffers has the rows of all that are due."""
        rows = super().read(lane)
        if lane == SLOW:
            (row,) = rows
            row.memory_temperature_c = self._try("memory_temperature", self._gpu.memory_temperature_c)
            row.fan_speed_percent = self._try("fan_speed", self._gpu.fan_speed_percent)
        return rows

    def _read_ring(self, *, at_end: bool = False) -> list[TelemetryRow]:
        rows: list[TelemetryRow] = []
        for name in list(self._drains):
            rows += self._drained(name, at_end=at_end)
        return rows

    def read_last(self) -> list[TelemetryRow]:
        """Return the remaining samples of all ring buffers, whether due or not."""
        return self._read_ring(at_end=True)

    def _drained(self, name: str, *, at_end: bool) -> list[TelemetryRow]:
        drain = self._drains[name]
        time_us, monotonic_ns = self._clock()
        if not (at_end or drain.is_due(monotonic_ns)):
            return []
        try:
            samples = drain.drain(time_us, monotonic_ns)
        except NotSupportedError:
            del self._drains[name]
            return []
        except GpuError:
            self.failed_readings += 1
            return []
        lane = RING if name == POWER else SAMPLES
        rows = []
        for sample in samples:
            value: Any = sample.power_w if isinstance(sample, PowerSample) else sample.value
            stamp_ns = monotonic_ns - (time_us - sample.time_us) * 1000
            rows.append(
                TelemetryRow(
                    session_id=self._session_id,
                    lane=lane,
                    time_us=sample.time_us,
                    monotonic_ns=stamp_ns,
                    **{name: value},
                )
            )
        return rows


class EverythingRecorder(Recorder):
    """Writes what is read to segments and keeps nothing else, since a program may run for days.

    Rows that cannot be written (a full disk) go with the next segment: telemetry goes on.
    """

    def __init__(
        self, reader: EverythingReader | HostReader, writer: SegmentWriter, config: TelemetryConfig, start_ns: int
    ) -> None:
        super().__init__(reader, writer, config, start_ns)
        self._complete = reader

    def take(self) -> list[TelemetryRow]:
        """See `Recorder`; nothing is kept to be taken."""
        return []

    def close(self) -> LoggerReport:
        """Drain the rings and close the open segment.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        self._write(self._complete.read_last())
        self._writer.flush()
        return LoggerReport(self.dropped_ticks, self._complete.failed_readings, self._complete.rings)

    def _read(self, lane: str) -> None:
        self._write(self._reader.read(lane))

    def _write(self, rows: list[TelemetryRow]) -> None:
        with contextlib.suppress(OutputError):
            self._writer.add(rows)


class HostReader:
    """Read the host at the slow sampling rate. See `LaneReader` for the parameters."""

    def __init__(self, session_id: str, clock: Callable[[], tuple[int, int]]) -> None:
        self._session_id, self._clock = session_id, clock
        self._sensors = HostSensors()
        self.failed_readings = 0
        self.rings: dict[str, RingReport] = {}

    def read_last(self) -> list[TelemetryRow]:
        """Return no rows: the host has no ring buffers to drain."""
        return []

    def read(self, lane: str) -> list[TelemetryRow]:
        """Return the row of a reading; other sampling rates have none."""
        if lane != SLOW:
            return []
        time_us, monotonic_ns = self._clock()
        sensors = self._sensors
        row = TelemetryRow(
            session_id=self._session_id, lane=lane, time_us=time_us, monotonic_ns=monotonic_ns,
            host_cpu_utilization_percent=sensors.cpu_utilization_percent(),
            host_cpu_temperature_c=sensors.cpu_temperature_c(),
            host_cpu_energy_j=sensors.cpu_energy_j(), host_memory_used_bytes=sensors.memory_used_bytes(),
        )  # fmt: skip
        row.read_ns = self._clock()[1] - monotonic_ns
        return [row]


def _of_ring(gpu: Gpu, ring: Ring) -> Callable[[int], Any]:
    return lambda since_us: gpu.samples(ring, since_us)
