from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.config import TelemetryConfig
from clockwatt.files import read_table
from clockwatt.gpu.virtual import VirtualGpu
from clockwatt.records import TELEMETRY_SCHEMA
from clockwatt.segments import segment_paths
from clockwatt.telemetry.host import HostSensors
from clockwatt.telemetry.lanes import FAST, RING, SLOW, LaneReader, Rhythm
from clockwatt.telemetry.logger import virtual_logger


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
    return LaneReader(gpu, "s", lambda: (gpu.epoch_us, gpu.monotonic_ns), host=None)


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
