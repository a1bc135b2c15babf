"""The three lanes of the logger: what each reads, and when it is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from clockwatt.gpu.interface import Gpu, GpuError, NotSupportedError, PowerSample, Utilization
from clockwatt.records import TelemetryRow
from clockwatt.telemetry.host import HostSensors

RING, FAST, SLOW = "ring", "fast", "slow"

_FOREIGN_CLOCK_US = 60_000_000
"""A driver time stamp further than this from the host's clock is not on it."""

T = TypeVar("T")


class Rhythm:
    """A grid of due times; ticks that were slept through are counted and left out, so the grid never shifts.

    Parameters
    ----------
    period_ns
        Distance of the ticks.
    start_ns
        First tick, on the caller's monotonic clock.
    """

    def __init__(self, period_ns: int, start_ns: int) -> None:
        self.period_ns = period_ns
        self.due_ns = start_ns
        self.dropped = 0

    def tick(self, now_ns: int) -> bool:
        """Whether a tick is due at `now_ns`; if so the next one is set."""
        if now_ns < self.due_ns:
            return False
        missed = (now_ns - self.due_ns) // self.period_ns
        self.dropped += missed
        self.due_ns += (missed + 1) * self.period_ns
        return True


class LaneReader:
    """Reads a GPU lane by lane into telemetry rows. A sensor that is missing or fails gives None, never 0.

    Parameters
    ----------
    gpu
        The GPU to read, on a handle of the logger's own.
    session_id
        Stands in every row.
    clock
        Gives (µs since the epoch, monotonic ns).
    host
        Host sensors, or None to leave the host out (virtual GPUs have none).
    """

    def __init__(
        self, gpu: Gpu, session_id: str, clock: Callable[[], tuple[int, int]], host: HostSensors | None
    ) -> None:
        self._gpu = gpu
        self._session_id = session_id
        self._clock = clock
        self._host = host
        self._missing: set[str] = set()
        self._ring_since_us = 0
        self.failed_readings = 0

    def read(self, lane: str) -> list[TelemetryRow]:
        """Rows of one reading of a lane (the ring gives one for each new sample)."""
        if lane == RING:
            return self._read_ring()
        time_us, monotonic_ns = self._clock()
        row = TelemetryRow(session_id=self._session_id, lane=lane, time_us=time_us, monotonic_ns=monotonic_ns)
        if lane == FAST:
            self._read_fast(row)
        else:
            self._read_slow(row)
        row.read_ns = self._clock()[1] - monotonic_ns
        return [row]

    def _read_fast(self, row: TelemetryRow) -> None:
        gpu = self._gpu
        row.power_instant_w = self._try("power_instant", gpu.power_instant_w)
        row.energy_counter_j = self._try("energy_counter", gpu.energy_counter_j)
        row.power_average_w = self._try("power_average", gpu.power_average_w)
        row.sm_clock_mhz = self._try("sm_clock", gpu.sm_clock_mhz)
        row.memory_clock_mhz = self._try("memory_clock", gpu.memory_clock_mhz)
        row.throttle_reasons = self._try("throttle_reasons", gpu.throttle_reasons)

    def _read_slow(self, row: TelemetryRow) -> None:
        gpu = self._gpu
        utilization: Utilization | None = self._try("utilization", gpu.utilization)
        if utilization is not None:
            row.gpu_utilization_percent = utilization.gpu_percent
            row.memory_utilization_percent = utilization.memory_percent
        row.performance_state = self._try("performance_state", gpu.performance_state)
        row.temperature_c = self._try("temperature", gpu.temperature_c)
        row.power_limit_w = self._try("power_limit", gpu.power_limit_w)
        row.memory_used_bytes = self._try("memory_used", gpu.memory_used_bytes)
        row.pcie_tx_kib_s = self._try("pcie_tx", gpu.pcie_tx_kib_s)
        row.pcie_rx_kib_s = self._try("pcie_rx", gpu.pcie_rx_kib_s)
        if self._host is not None:
            row.host_cpu_utilization_percent = self._host.cpu_utilization_percent()
            row.host_cpu_temperature_c = self._host.cpu_temperature_c()
            row.host_memory_used_bytes = self._host.memory_used_bytes()

    def _read_ring(self) -> list[TelemetryRow]:
        samples: Any = self._try("power_samples", lambda: self._gpu.power_samples(self._ring_since_us))
        if not samples:
            return []
        # the driver hands out overlapping buffers, in which a sample may come twice
        fresh = {sample.time_us: sample for sample in samples if sample.time_us > self._ring_since_us}
        if not fresh:
            return []
        self._ring_since_us = max(fresh)
        time_us, monotonic_ns = self._clock()
        offset_us = 0 if abs(time_us - self._ring_since_us) < _FOREIGN_CLOCK_US else time_us - self._ring_since_us
        return [self._ring_row(fresh[stamp], offset_us, time_us, monotonic_ns) for stamp in sorted(fresh)]

    def _ring_row(self, sample: PowerSample, offset_us: int, time_us: int, monotonic_ns: int) -> TelemetryRow:
        stamp_us = sample.time_us + offset_us
        return TelemetryRow(
            session_id=self._session_id, lane=RING, time_us=stamp_us,
            monotonic_ns=monotonic_ns - (time_us - stamp_us) * 1000, power_sample_w=sample.power_w,
        )  # fmt: skip

    def _try(self, sensor: str, read: Callable[[], T]) -> T | None:
        if sensor in self._missing:
            return None
        try:
            return read()
        except NotSupportedError:
            self._missing.add(sensor)
        except GpuError:
            self.failed_readings += 1
        return None
