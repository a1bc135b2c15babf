"""Energy of a call in bursts with pauses between, on a virtual GPU."""

import contextlib

import pytest

from clockwatt.config import TelemetryConfig
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure.bench.interface import Subject
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.measure.calibrate.calibration import DEVICE, POWER_LIMIT, Calibration
from clockwatt.measure.statistics import Estimate
from clockwatt.measure.steps import procedure
from clockwatt.measure.steps.conditions import Surroundings, pace_of
from clockwatt.measure.steps.procedure import energy_with_pauses
from clockwatt.schema.execution import TF32
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import NETWORK, OPERATION, MeasurementRow
from clockwatt.telemetry.logger import virtual_logger
from support import handmade
from support.handmade import operation, write_catalogue

CLOCK_MHZ = 900
MEMORY_BOUND = operation(10**8)
SHORT = operation(10**5)
HOT = operation(10**7, function="torch.nn.functional.linear", flops=10**11)
"""Meets the power limit at the highest clock."""


class RecordingBench(VirtualBench):
    """Bursts take `slower` times as long, by its own account, until pauses are `enough` times as long as they.

    Remembers how long the pauses were.
    """

    slower, enough = 1.0, 0.0

    def __init__(self, *args):
        super().__init__(*args)
        self.pauses_s = []
        self.powers_taken = True

    def idle(self, seconds):
        self.pauses_s.append(seconds)
        super().idle(seconds)

    def take_telemetry(self):
        return super().take_telemetry() if self.powers_taken else []

    def timed_run(self, workload, calls):
        seconds = super().timed_run(workload, calls)
        rested = self.pauses_s and self.pauses_s[-1] >= 0.99 * self.enough * calls * workload.device_s
        return seconds if rested else self.slower * seconds


@contextlib.contextmanager
def bench_at(folder, clock_mhz, power_limit_w=None):
    write_catalogue(folder, [MEMORY_BOUND, SHORT, HOT])
    gpu = VirtualGpu("a30", seed=0)
    gpu.lock_sm_clock(clock_mhz)
    if power_limit_w is not None:
        gpu.set_power_limit(power_limit_w)
    with virtual_logger(gpu, "s", folder / "telemetry", TelemetryConfig()) as logger:
        yield RecordingBench(gpu, logger, 0, folder)


@pytest.fixture
def bench(tmp_path):
    with bench_at(tmp_path, CLOCK_MHZ) as bench:
        yield bench


def subject_of(row, kind=OPERATION):
    return Subject(kind, row.operation_id, "inference", TF32, "float32", 0, device_work=True)


def around(bench, **repeatability):
    return Surroundings(procedure.measure_idle(bench, 4.0, Calibration()), Calibration(**repeatability))


def measured(bench, subject, campaign, surroundings):
    row = MeasurementRow(
        kind=subject.kind, subject_id=subject.subject_id, pass_="inference", gpu="a30", point="sm900", execution=TF32,
        dtype="float32",
    )  # fmt: skip
    procedure.measure(bench, subject, row, campaign.measurement, surroundings)
    assert row.status == "ok"
    return row


def with_pauses(bench, row, surroundings, call_s=None):
    bench.pauses_s.clear()
    with bench.open(subject_of(row)) as workload:
        slower_s = max(workload.host_s, workload.device_s)
        try:
            return energy_with_pauses(bench, workload, call_s or slower_s, surroundings)
        finally:
            del bench.pauses_s[: procedure._TRIALS]  # between calls that are timed alone


@pytest.mark.parametrize("operation_row", [MEMORY_BOUND, SHORT], ids=["bound by the device", "bound by the host"])
def test_where_the_limit_does_not_act_pauses_do_not_change_the_energy(bench, campaign, operation_row):
    surroundings = around(bench)
    row = measured(bench, subject_of(operation_row), campaign, surroundings)
    assert pace_of(row) != POWER_LIMIT
    energy = with_pauses(bench, operation_row, surroundings)
    assert energy.value == pytest.approx(row.energy_dynamic_j, rel=0.05)
    assert 0 < energy.standard_error < 0.1 * energy.value
    assert abs(energy.value - row.energy_dynamic_j) < 4 * energy.standard_error


def test_pauses_are_half_as_long_as_bursts_of_five_milliseconds(bench):
    with_pauses(bench, MEMORY_BOUND, around(bench))
    assert len(bench.pauses_s) >= 0.9 * procedure._WINDOW_S / (1.5 * procedure._BURST_S)
    assert bench.pauses_s == pytest.approx([procedure._BURST_S / 2] * len(bench.pauses_s), rel=0.2)


@pytest.mark.parametrize("share", procedure._PAUSES)
def test_pauses_grow_until_bursts_are_no_longer_slowed(bench, share):
    surroundings = around(bench)
    undisturbed = with_pauses(bench, MEMORY_BOUND, surroundings)
    bench.slower, bench.enough = 1.2, share
    energy = with_pauses(bench, MEMORY_BOUND, surroundings)
    tried = sorted({round(pause_s, 6) for pause_s in bench.pauses_s})
    expected = [pause for pause in procedure._PAUSES if pause <= share]
    assert [pause_s / tried[0] for pause_s in tried] == pytest.approx([pause / expected[0] for pause in expected], 1e-3)
    assert energy.value == pytest.approx(undisturbed.value, rel=0.1)


def test_none_where_even_the_longest_pauses_do_not_help(bench):
    bench.slower, bench.enough = 1.2, 100.0
    assert with_pauses(bench, MEMORY_BOUND, around(bench)) is None
    assert len({round(pause_s, 6) for pause_s in bench.pauses_s}) == len(procedure._PAUSES)


def test_bursts_that_take_a_little_longer_are_not_taken_for_slowed(bench):
    bench.slower, bench.enough = 1.03, 100.0
    assert with_pauses(bench, MEMORY_BOUND, around(bench)) is not None
    assert len({round(pause_s, 6) for pause_s in bench.pauses_s}) == 1


def test_calls_as_long_as_a_burst_are_seen_to_be_slowed(bench, monkeypatch):
    monkeypatch.setattr(procedure, "_BURST_S", 1e-6)
    bench.slower, bench.enough = 10.0, procedure._PAUSES[-1]
    assert with_pauses(bench, MEMORY_BOUND, around(bench)) is not None
    assert bench.pauses_s[-1] > 3 * bench.pauses_s[0]
    bench.enough = float("inf")
    assert with_pauses(bench, MEMORY_BOUND, around(bench)) is None


def test_none_without_idle_power_and_nothing_is_run(bench):
    assert with_pauses(bench, MEMORY_BOUND, Surroundings()) is None
    assert bench.pauses_s == []


def test_none_where_no_power_can_be_read(bench):
    surroundings = around(bench)
    bench.powers_taken = False
    assert with_pauses(bench, MEMORY_BOUND, surroundings) is None


def test_the_error_holds_that_of_idle_power_and_what_measurements_differ_by(bench):
    known = around(bench)
    plain = with_pauses(bench, MEMORY_BOUND, known)
    vague_idle = Surroundings(Estimate(known.idle.value, 20.0, 1))
    per_call_s = 1.5 * _device_s(bench)
    assert with_pauses(bench, MEMORY_BOUND, vague_idle).standard_error == pytest.approx(20.0 * per_call_s, rel=0.1)
    differing = Surroundings(
        known.idle, Calibration(repeatability={(CalibrationQuantity.POWER_REPEATABILITY, DEVICE): 0.2})
    )
    power_w = known.idle.value + plain.value / per_call_s
    assert with_pauses(bench, MEMORY_BOUND, differing).standard_error == pytest.approx(
        0.2 * power_w * per_call_s, rel=0.1
    )


def _device_s(bench):
    with bench.open(subject_of(MEMORY_BOUND)) as workload:
        return workload.device_s


def test_only_what_the_limit_slows_is_measured_with_pauses(tmp_path, campaign):
    with bench_at(tmp_path, 1440) as bench:
        surroundings = around(bench)
        hot = measured(bench, subject_of(HOT), campaign, surroundings)
        assert pace_of(hot) == POWER_LIMIT
        assert hot.energy_dynamic_unthrottled_j == pytest.approx(hot.energy_dynamic_j, rel=0.1)
        assert hot.energy_dynamic_unthrottled_standard_error_j > 0
        cool = measured(bench, subject_of(SHORT), campaign, surroundings)
        assert pace_of(cool) != POWER_LIMIT
        assert cool.energy_dynamic_j is not None
        assert cool.energy_dynamic_unthrottled_j is None
        assert cool.energy_dynamic_unthrottled_standard_error_j is None


def test_networks_are_not_measured_with_pauses(tmp_path, campaign):
    with bench_at(tmp_path, 1440, 100.0) as bench:
        subject = Subject(NETWORK, handmade.NETWORK, "inference", TF32, "float32", 0, device_work=True)
        row = measured(bench, subject, campaign, around(bench))
        assert pace_of(row) == POWER_LIMIT
        assert row.energy_dynamic_j is not None
        assert row.energy_dynamic_unthrottled_j is None


def test_what_cannot_be_measured_with_pauses_is_left_out_of_the_row(tmp_path, campaign):
    with bench_at(tmp_path, 1440) as bench:
        surroundings = around(bench)
        bench.slower, bench.enough = 1.2, 100.0
        row = measured(bench, subject_of(HOT), campaign, surroundings)
        assert pace_of(row) == POWER_LIMIT
        assert row.energy_dynamic_unthrottled_j is None
        assert row.energy_dynamic_unthrottled_standard_error_j is None
