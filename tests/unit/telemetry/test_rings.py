"""Rings of samples: none lost, none twice."""

import time
from pathlib import Path

import pytest

from clockwatt.config import TelemetryConfig
from clockwatt.gpu.interface import InstalledGpu, PowerSample, Ring
from clockwatt.gpu.registry import open_installed
from clockwatt.io.segments import read_segments
from clockwatt.schema.records import TELEMETRY_SCHEMA
from clockwatt.telemetry.process import logger_process
from clockwatt.telemetry.rings import RingDrain
from standin_nvml import MISSING_OTHER_RINGS

OFTEN = TelemetryConfig(ring_period_s=0.2, segment_s=1.0)


class SimulatedRing:
    """Holds the last samples of a clock that a test moves; some come twice, and stamps wander by a few µs."""

    def __init__(self, period_us: int, length: int, start_us: int) -> None:
        self.period_us, self.length, self.now_us = period_us, length, start_us
        self.drains = 0

    def __call__(self, since_us: int) -> list[PowerSample]:
        self.drains += 1
        newest = self.now_us // self.period_us
        ticks = range(newest - self.length + 1, newest + 1)
        stamps = [tick * self.period_us + self.drains % 3 for tick in ticks]
        found = [PowerSample(stamp, float(stamp)) for stamp in stamps if stamp > since_us]
        return found + found[:1]


def drained(period_us: int, length: int, seconds: float, late_s: float = 0.0) -> tuple[RingDrain, list[int]]:
    ring = SimulatedRing(period_us, length, 10_000_000_000)
    drain, stamps = RingDrain(ring), []
    end_us = ring.now_us + round(seconds * 1e6)
    while ring.now_us < end_us:
        if drain.is_due(ring.now_us * 1000):
            ring.now_us += round(late_s * 1e6)
            stamps += [sample.time_us for sample in drain.drain(ring.now_us, ring.now_us * 1000)]
        ring.now_us += 50_000
    return drain, stamps


@pytest.mark.parametrize(("period_us", "length"), [(20_000, 119), (10_000, 60), (166_000, 99), (5_000, 120)])
def test_every_sample_comes_once_and_the_period_follows_the_rings_length(period_us: int, length: int) -> None:
    drain, stamps = drained(period_us, length, 60)
    numbers = [stamp // period_us for stamp in stamps]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    report = drain.report
    assert (report.samples, report.lost) == (len(stamps), 0)
    assert report.duplicates > 0
    assert report.period_s == pytest.approx(period_us * 1e-6, rel=1e-3)
    assert report.length_s == pytest.approx(length * period_us * 1e-6, rel=0.05)
    assert 0.2 <= report.polled_every_s <= max(0.2, 0.45 * report.length_s)


def test_what_was_drained_too_late_is_told_as_lost() -> None:
    drain, stamps = drained(10_000, 60, 20, late_s=1.5)
    held = round((stamps[-1] - stamps[0]) / 10_000) + 1
    assert drain.report.lost == held - len(stamps) > 0


def test_a_drivers_own_clock_is_mapped_once() -> None:
    ring = SimulatedRing(20_000, 119, 500_000)
    drain = RingDrain(ring)
    first = drain.drain(1_700_000_000_000_000, 0)
    ring.now_us += 1_000_000
    second = drain.drain(1_700_000_001_003_000, 10**9)  # read 3 ms late
    assert first[-1].time_us == 1_700_000_000_000_000
    assert (second[-1].time_us - first[-1].time_us) / 20_000 == pytest.approx(50, abs=0.01)


def rings_of(uuid: str, folder: Path, seconds: float):
    with logger_process(InstalledGpu("nvidia", uuid, "NVIDIA A30"), "s", folder, OFTEN, everything=True) as logger:
        time.sleep(seconds)
        assert logger.take() == []  # it may run for days: nothing is kept
        return logger.stop()


def clock_samples(uuid: str) -> list[float]:
    gpu = open_installed(InstalledGpu("nvidia", uuid, "NVIDIA A30"))
    return [sample.value for sample in gpu.samples(Ring.SM_CLOCK, 0)]


def test_all_rings_of_a_card_are_recorded_and_none_of_their_samples_is_lost(nvml, in_worker, tmp_path: Path) -> None:
    nvml.card(0).gpu_percent = 42
    assert set(in_worker(clock_samples, nvml.uuid(0))) == {1440.0}
    report = in_worker(rings_of, nvml.uuid(0), tmp_path, 3.0)
    rows = [table.to_pandas() for table in read_segments(tmp_path, TELEMETRY_SCHEMA)]
    assert set(report.rings) == {"power_sample_w", *map(str, Ring)} - {"decoder_utilization_sample_percent"}
    for name, ring in report.rings.items():
        period_us = 20_000 if name == "power_sample_w" else 10_000
        stamps = sorted(stamp for frame in rows for stamp in frame.loc[frame[name].notna(), "time_us"])
        assert len(stamps) == ring.samples
        assert ring.samples + ring.lost >= 150
        assert ring.period_s == pytest.approx(period_us * 1e-6)
        if not ring.lost:  # a machine so busy that the logger slept for 0.6 s
            assert stamps == list(range(stamps[0], stamps[-1] + 1, period_us))
    assert report.rings["sm_clock_sample_mhz"].duplicates > 0
    lanes = {name for frame in rows for name in frame["lane"]}
    assert lanes == {"ring", "samples", "fast", "slow"}
    used = [value for frame in rows for value in frame["gpu_utilization_sample_percent"].dropna()]
    assert set(used) == {42.0}
    assert all(frame["decoder_utilization_sample_percent"].isna().all() for frame in rows)


def test_a_card_without_other_rings_has_its_power_alone(nvml, in_worker, tmp_path: Path) -> None:
    nvml.card(0).missing = MISSING_OTHER_RINGS
    assert set(in_worker(rings_of, nvml.uuid(0), tmp_path, 0.8).rings) == {"power_sample_w"}
