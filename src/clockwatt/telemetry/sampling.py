"""The three sampling rates of the logger: what is read at each, and when it is due."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeVar

from clockwatt.gpu.interface import (
    FOREIGN_CLOCK_US,
    SAME_SAMPLE_US,
    Gpu,
    GpuError,
    NotSupportedError,
    PowerSample,
    Utilization,
)
from clockwatt.schema.records import TelemetryRow
from clockwatt.telemetry.host import HostSensors

RING, FAST, SLOW = "ring", "fast", "slow"

_REMEMBERED_COSTS = 5
_LONGEST_PAUSE_NS = 400_000_000
"""Longest interval of a costly fast sensor: a window of one second has at least two readings."""

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
        """Return whether a tick is due at `now_ns`; if so the next one is set."""
        if now_ns < self.due_ns:
            return False
        missed = (now_ns - self.due_ns) // self.period_ns
        self.dropped += missed
        self.due_ns += (missed + 1) * self.period_ns
        return True


class CpuBudget:
    """Space the readings of a costly sensor so that it takes no more than its share of a core.

    The CPU time of a reading depends on card and driver, so it is measured at each reading.

    Parameters
    ----------
    share
        Largest share of one core, in (0, 1].
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._costs_ns: deque[int] = deque(maxlen=_REMEMBERED_COSTS)
        self._last_ns: int | None = None
        self._pause_ns = 0.0

    def allows(self, now_ns: int) -> bool:
        """Return whether a reading at `now_ns` keeps to the share, or has been put off for 0.4 s."""
        return self._last_ns is None or now_ns - self._last_ns >= self._pause_ns

    def spent(self, now_ns: int, cost_ns: int) -> None:
        """Note a reading that was due at `now_ns` and took `cost_ns` of CPU time."""
        self._last_ns = now_ns
        self._costs_ns.append(cost_ns)
        # of a virtual GPU nothing costs anything
        pause_ns = statistics.median(self._costs_ns) / self._share if any(self._costs_ns) else 0.0
        self._pause_ns = min(pause_ns, _LONGEST_PAUSE_NS)


class LaneReader:
    """Read a GPU at three sampling rates into telemetry rows. A sensor that is missing or fails gives None, never 0.

    Costly fast sensors are not read in every tick (see `CpuBudget`). Each slow reading has one of the two directions of
    PCIe traffic, because reading one takes 20 ms. What was not read is None.

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
    cpu_ns
        CPU time of this thread in ns, which readings are charged by.
    sensor_cpu_share
        See `CpuBudget`.
    """

    def __init__(
        self,
        gpu: Gpu,
        session_id: str,
        clock: Callable[[], tuple[int, int]],
        host: HostSensors | None,
        *,
        cpu_ns: Callable[[], int],
        sensor_cpu_share: float,
    ) -> None:
        self._gpu = gpu
        self._session_id = session_id
        self._clock = clock
        self._host = host
        self._cpu_ns = cpu_ns
        self._budgets = defaultdict[str, CpuBudget](lambda: CpuBudget(sensor_cpu_share))
        self._missing: set[str] = set()
        self._slow_readings = 0
        self._ring_since_us = 0
        self.failed_readings = 0

    def read(self, lane: str) -> list[TelemetryRow]:
        """Return the rows of one reading; the ring buffer gives one for each new sample."""
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
        gpu, due_ns = self._gpu, row.monotonic_ns
        row.power_instant_w = self._afford("power_instant", gpu.power_instant_w, due_ns)
        row.energy_counter_j = self._afford("energy_counter", gpu.energy_counter_j, due_ns)
        row.power_average_w = self._afford("power_average", gpu.power_average_w, due_ns)
        row.sm_clock_mhz = self._afford("sm_clock", gpu.sm_clock_mhz, due_ns)
        row.memory_clock_mhz = self._afford("memory_clock", gpu.memory_clock_mhz, due_ns)
        row.throttle_reasons = self._afford("throttle_reasons", gpu.throttle_reasons, due_ns)

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
        if self._slow_readings % 2 == 0:
            row.pcie_tx_kib_s = self._try("pcie_tx", gpu.pcie_tx_kib_s)
        else:
            row.pcie_rx_kib_s = self._try("pcie_rx", gpu.pcie_rx_kib_s)
        self._slow_readings += 1
        if self._host is not None:
            row.host_cpu_utilization_percent = self._host.cpu_utilization_percent()
            row.host_cpu_temperature_c = self._host.cpu_temperature_c()
            row.host_memory_used_bytes = self._host.memory_used_bytes()

    def _read_ring(self) -> list[TelemetryRow]:
        samples: Any = self._try("power_samples", lambda: self._gpu.power_samples(self._ring_since_us))
        if not samples:
            return []
        # the driver hands out overlapping buffers, in which a sample may come twice
        known_us = self._ring_since_us + SAME_SAMPLE_US if self._ring_since_us else 0
        fresh = {sample.time_us: sample for sample in samples if sample.time_us > known_us}
        if not fresh:
            return []
        self._ring_since_us = max(fresh)
        time_us, monotonic_ns = self._clock()
        offset_us = 0 if abs(time_us - self._ring_since_us) < FOREIGN_CLOCK_US else time_us - self._ring_since_us
        return [self._ring_row(fresh[stamp], offset_us, time_us, monotonic_ns) for stamp in sorted(fresh)]

    def _ring_row(self, sample: PowerSample, offset_us: int, time_us: int, monotonic_ns: int) -> TelemetryRow:
        stamp_us = sample.time_us + offset_us
        return TelemetryRow(
            session_id=self._session_id, lane=RING, time_us=stamp_us,
            monotonic_ns=monotonic_ns - (time_us - stamp_us) * 1000, power_sample_w=sample.power_w,
        )  # fmt: skip

    def _afford(self, sensor: str, read: Callable[[], T], now_ns: int) -> T | None:
        budget = self._budgets[sensor]
        if not budget.allows(now_ns):
            return None
        before_ns = self._cpu_ns()
        value = self._try(sensor, read)
        budget.spent(now_ns, self._cpu_ns() - before_ns)
        return value

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
