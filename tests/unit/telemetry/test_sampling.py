from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.config import TelemetryConfig
from clockwatt.gpu.interface import PowerSample
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.io.files import read_table
from clockwatt.io.segments import segment_paths
from clockwatt.schema.records import TELEMETRY_SCHEMA
from clockwatt.telemetry.host import HostSensors
from clockwatt.telemetry.logger import virtual_logger
from clockwatt.telemetry.sampling import FAST, RING, SLOW, CpuBudget, LaneReader, Rhythm


@given(st.integers(1, 10**9), st.lists(st.integers(0, 5 * 10**9), min_size=1, max_size=50))
def test_a_rhythm_keeps_its_grid_and_counts_what_it_slept_through(period: int, steps: list[int]) -> None:
    rhythm, now, ticks = Rhythm(period, 0), 0, 0
    for step in steps:
        now += step
        ticks += rhythm.tick(now)
        assert rhythm.due_ns % period == 0
        assert now < rhythm.due_ns <= now + period
    assert ticks + rhythm.dropped == now // period + 1


def reader(gpu: VirtualGpu) -> LaneReader:
    return LaneReader(
        gpu, "s", lambda: (gpu.epoch_us, gpu.monotonic_ns), host=None, cpu_ns=lambda: 0, sensor_cpu_share=0.02
    )


@given(st.integers(10_000, 7_000_000), st.sampled_from([0.01, 0.02, 0.05]))
def test_a_dear_sensor_keeps_to_its_share_and_is_read_at_least_every_400_ms(cost_ns: int, share: float) -> None:
    budget, read_at = CpuBudget(share), []
    for now_ns in range(0, 20 * 10**9, 10**8):
        if budget.allows(now_ns):
            budget.spent(now_ns, cost_ns)
            read_at.append(now_ns)
    spent = cost_ns * (len(read_at) - 1) / (read_at[-1] - read_at[0])
    assert spent <= max(share, cost_ns / 4e8) * 1.0001
    assert max(later - earlier for earlier, later in pairwise(read_at)) <= 4e8
    if cost_ns <= share * 1e8:
        assert len(read_at) == 200  # a cheap one is read in every tick


class DearCounter(VirtualGpu):
    """A virtual GPU whose energy counter takes CPU time to read, as that of an H200."""

    cpu_ns = 0

    def energy_counter_j(self) -> float:
        self.cpu_ns += 4_000_000
        return super().energy_counter_j()


def test_only_the_dear_sensor_is_left_out_of_ticks() -> None:
    gpu = DearCounter("h100", seed=0)
    lanes = LaneReader(
        gpu, "s", lambda: (gpu.epoch_us, gpu.monotonic_ns), host=None, cpu_ns=lambda: gpu.cpu_ns, sensor_cpu_share=0.02
    )
    rows = []
    for _ in range(100):
        gpu.advance(0.1)
        rows += lanes.read(FAST)
    assert all(row.power_instant_w is not None and row.sm_clock_mhz is not None for row in rows)
    assert sum(row.energy_counter_j is not None for row in rows) == 50  # 4 ms every 0.2 s are 2 %


class ShiftedRing(VirtualGpu):
    """A virtual GPU that maps the ring's time stamps anew for each drain, as the driver does."""

    drains = 0

    def power_samples(self, since_us: int) -> list[PowerSample]:
        self.drains += 1
        shift_us = 5 * self.drains
        return [PowerSample(sample.time_us + shift_us, sample.power_w) for sample in super().power_samples(0)]


def test_a_sample_whose_time_stamp_moves_between_drains_is_taken_once() -> None:
    gpu = ShiftedRing("h100", seed=0)
    lanes = reader(gpu)
    stamps = []
    for _ in range(10):
        gpu.advance(1.0)
        stamps += [row.time_us for row in lanes.read(RING)]
    distances = [later - earlier for earlier, later in pairwise(stamps)]
    assert min(distances) > 19_000
    assert max(distances) < 21_000


def test_the_ring_gives_each_sample_once() -> None:
    gpu = VirtualGpu("a30", seed=0)
    lanes = reader(gpu)
    stamps = []
    for _ in range(10):
        gpu.advance(0.3)
        stamps += [row.time_us for row in lanes.read(RING)]
    assert len(stamps) == len(set(stamps))
    assert stamps == sorted(stamps)
    assert len(stamps) == pytest.approx(3.0 / 0.02, abs=1)


def test_a_missing_sensor_is_null_and_the_others_are_read() -> None:
    gpu = VirtualGpu("rtx2080ti", seed=0)
    gpu.advance(1.0)
    (fast,), (slow,) = reader(gpu).read(FAST), reader(gpu).read(SLOW)
    assert fast.power_instant_w is None  # Turing has no such sensor
    assert fast.power_average_w is not None
    assert fast.power_average_w > 0
    assert slow.pcie_tx_kib_s is None
    assert slow.temperature_c is not None


def test_a_virtual_logger_writes_what_it_hands_out(tmp_path: Path) -> None:
    gpu = VirtualGpu("a30", seed=0)
    with virtual_logger(gpu, "s", tmp_path, TelemetryConfig()) as logger:
        logger.advance(2.05)
        first = logger.take()
        logger.advance(1.0)
        second = logger.take()
    assert gpu.monotonic_ns == pytest.approx(3.05e9)
    assert sum(row.lane == FAST for row in first) == 21
    assert sum(row.lane == FAST for row in second) == 10
    (path,) = segment_paths(tmp_path)
    assert read_table(path, TELEMETRY_SCHEMA).num_rows >= len(first) + len(second)


def test_the_host_is_read() -> None:
    host = HostSensors()
    assert host.cpu_utilization_percent() is None
    utilization = host.cpu_utilization_percent()
    assert utilization
    assert all(0 <= share <= 100 for share in utilization)
    assert host.memory_used_bytes() > 1e6
