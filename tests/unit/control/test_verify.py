import contextlib
import itertools
import time

import pytest

import standin_nvml
from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.control.points import operating_point
from clockwatt.control.verify import PERIOD_S, READINGS, ClockMismatchError, verify
from clockwatt.gpu.nvidia.nvml import NvmlGpu
from clockwatt.gpu.virtual.card import VirtualGpu, Work

MEMORY_BOUND = Work(flops=6_400_000, bytes_moved=77_000_000, dtype="float32", tf32=True, matrix=False)
POWER_HUNGRY = Work(flops=10**12, bytes_moved=10**8, dtype="float16", tf32=True, matrix=True)
STRICT = ControlConfig(on_mismatch="error", settle_timeout_s=2)


def verified(point, work, control=STRICT, model="a30"):
    gpu = VirtualGpu(model, seed=0)
    with operating_point(gpu, OperatingPoint.parse(point), control):
        gpu.load(work)
        return verify(gpu, OperatingPoint.parse(point), control, wait=gpu.advance)


def test_a_clock_that_settles_late_is_waited_for():
    seen = verified("sm900", MEMORY_BOUND)
    assert seen.reached
    assert seen.sm_clocks_mhz == [900] * 5
    assert seen.memory_clocks_mhz == [1215] * 5
    assert seen.throttle_reasons == []
    assert seen.waited_s <= 0.4


def test_a_capped_clock_is_a_mismatch_with_its_reason():
    with pytest.raises(
        ClockMismatchError, match=r"sm1440 was set, but .*throttle reasons: sw_power_cap.*settle_timeout_s"
    ):
        verified("sm1440", POWER_HUNGRY)


def test_a_mismatch_can_be_flagged_instead():
    seen = verified("sm1440", POWER_HUNGRY, ControlConfig(on_mismatch="flag", settle_timeout_s=2))
    assert not seen.reached
    assert max(seen.sm_clocks_mhz) < 1440
    assert seen.throttle_reasons == ["sw_power_cap"]
    assert seen.waited_s == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("point", ["default", "pl120"])
def test_without_a_clock_asked_for_any_will_do(point):
    seen = verified(point, POWER_HUNGRY)
    assert seen.reached
    assert len(seen.sm_clocks_mhz) == 5


def test_the_memory_clock_is_verified():
    assert verified("mem6800", MEMORY_BOUND, model="rtx2080ti").memory_clocks_mhz == [6800] * 5
    gpu = VirtualGpu("rtx2080ti", seed=0)  # nobody locked it: it runs at 7000
    with pytest.raises(ClockMismatchError, match="memory clock 7000 MHz"):
        verify(gpu, OperatingPoint(memory_clock_mhz=6800), STRICT, wait=gpu.advance)


def held(uuid, control):
    point = OperatingPoint(sm_clock_mhz=900)
    with contextlib.closing(NvmlGpu(uuid)) as gpu, operating_point(gpu, point, control):
        return verify(gpu, point, control, wait=time.sleep)


def test_a_lock_that_is_accepted_and_ignored_is_found_out(nvml, in_worker):
    nvml.card(0).ignores_locks = 1
    control = ControlConfig(on_mismatch="error", settle_timeout_s=0.3)
    with pytest.raises(ClockMismatchError, match="the SM clock is 1440 to 1440 MHz"):
        in_worker(held, nvml.uuid(0), control)


def held_while_it_settles(uuid, state_file, waits):
    """The clock is there after so many waits, however long one takes."""
    card, waited = standin_nvml.mapped(state_file).cards[0], itertools.count(1)

    def wait(seconds):
        time.sleep(seconds)
        if next(waited) == waits:
            card.settle_us = 0

    point = OperatingPoint(sm_clock_mhz=900)
    with contextlib.closing(NvmlGpu(uuid)) as gpu, operating_point(gpu, point, STRICT):
        return verify(gpu, point, STRICT, wait=wait)


def test_a_real_clock_that_settles_late_is_waited_for(nvml, in_worker):
    nvml.card(0).settle_us = 3_600_000_000
    seen = in_worker(held_while_it_settles, nvml.uuid(0), nvml.state_file, 6)
    assert seen.reached
    assert seen.waited_s == pytest.approx((6 + READINGS - 1) * PERIOD_S)


class Rounded(VirtualGpu):
    """Runs a step beside what is asked for, as Slurm's --gpu-freq may, or stays as it is."""

    def sm_clock_mhz(self):
        return super().sm_clock_mhz() + 15


@pytest.mark.parametrize("on_mismatch", ["error", "flag"])
def test_a_clock_that_slurm_has_set_counts_only_if_it_is_the_one_asked_for(on_mismatch):
    point = OperatingPoint(sm_clock_mhz=900)
    by_slurm = ControlConfig(method="slurm", on_mismatch=on_mismatch, settle_timeout_s=2)
    gpu = VirtualGpu("a30", seed=0)
    gpu.lock_sm_clock(900)
    gpu.load(MEMORY_BOUND)
    assert verify(gpu, point, by_slurm, wait=gpu.advance).reached
    rounded = Rounded("a30", seed=0)
    rounded.lock_sm_clock(900)
    rounded.load(MEMORY_BOUND)
    assert verify(rounded, point, ControlConfig(method="helper", on_mismatch="error"), wait=rounded.advance).reached
    with pytest.raises(ClockMismatchError, match=r"915 to 915 MHz[^/]*use another control\.method"):
        verify(rounded, point, by_slurm, wait=rounded.advance)
