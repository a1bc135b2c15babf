import contextlib
import itertools
import signal
import subprocess
import sys
import time

import pytest

import standin_nvml
from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.control.methods import ControlError, ReleaseError
from clockwatt.control.points import operating_point
from clockwatt.gpu.interface import NoPermissionError, NotSupportedError
from clockwatt.gpu.nvidia.nvml import NvmlGpu
from clockwatt.gpu.virtual.card import VirtualGpu, Work

CONTROL = ControlConfig()
WORK = Work(flops=6_400_000, bytes_moved=77_000_000, dtype="float32", tf32=True, matrix=False)
EVERYTHING = OperatingPoint(sm_clock_mhz=900, memory_clock_mhz=810, power_limit_w=150)

HOLD = """
import contextlib, signal, sys, time
from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.control.points import operating_point
from clockwatt.gpu.nvidia.nvml import NvmlGpu

def stop(number, frame):
    raise SystemExit(128 + number)

signal.signal(signal.SIGTERM, stop)
point = OperatingPoint.parse("sm900-pl120")
with contextlib.closing(NvmlGpu(sys.argv[1])) as gpu, operating_point(gpu, point, ControlConfig()):
    print("held", flush=True)
    time.sleep(600)
"""


def settled(gpu):
    gpu.load(WORK)
    gpu.advance(1)
    return gpu.sm_clock_mhz(), gpu.memory_clock_mhz(), gpu.power_limit_w()


def test_a_point_is_held_and_released():
    gpu = VirtualGpu("rtx2080ti", seed=0)
    before = settled(gpu)
    with operating_point(gpu, EVERYTHING, CONTROL) as applied:
        assert settled(gpu) == (900, 810, 150)
        assert applied.warnings == []
    assert settled(gpu) == before


def test_the_power_limit_is_put_back_to_what_it_was():
    gpu = VirtualGpu("rtx2080ti", seed=0)
    gpu.set_power_limit(222)
    with operating_point(gpu, OperatingPoint(power_limit_w=150), CONTROL):
        assert gpu.power_limit_w() == 150
    assert gpu.power_limit_w() == 222


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_released_when_the_body_fails(error):
    gpu = VirtualGpu("rtx2080ti", seed=0)
    before = settled(gpu)
    with pytest.raises(error), operating_point(gpu, EVERYTHING, CONTROL):
        raise error
    assert settled(gpu) == before


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (OperatingPoint(sm_clock_mhz=901, power_limit_w=150), "Nearest: 900 and 915 MHz"),
        (OperatingPoint(memory_clock_mhz=811), "memory clock 811 MHz is not supported. Nearest: 810 and 6800 MHz"),
        (OperatingPoint(sm_clock_mhz=900, power_limit_w=20), "power limit 20 W is outside 100 to 280 W"),
    ],
)
def test_what_is_not_supported_is_refused_before_anything_is_set(point, message):
    gpu = VirtualGpu("rtx2080ti", seed=0)
    before = settled(gpu)
    with pytest.raises(NotSupportedError, match=message), operating_point(gpu, point, CONTROL):
        pytest.fail("entered")
    assert settled(gpu) == before


def test_without_permission_the_message_says_what_to_do():
    gpu = VirtualGpu("a30", seed=0, permitted=False)
    entering = operating_point(gpu, OperatingPoint(sm_clock_mhz=900), CONTROL)
    with (
        pytest.raises(NoPermissionError, match=r"control\.method nvml sets sm900 itself.*run as root.*clocks_mhz"),
        entering,
    ):
        pytest.fail("entered")


def test_the_default_point_needs_no_permission():
    gpu = VirtualGpu("a100", seed=0, permitted=False)
    for method in ("nvml", "none"):
        with operating_point(gpu, OperatingPoint(), ControlConfig(method=method)):
            assert settled(gpu)[0] == 1410


def test_method_none_refuses_any_other_point():
    entering = operating_point(
        VirtualGpu("a30", seed=0), OperatingPoint(sm_clock_mhz=900), ControlConfig(method="none")
    )
    with pytest.raises(ControlError, match=r"control\.method none sets nothing, not sm900"), entering:
        pytest.fail("entered")


def hold(uuid, point="sm900"):
    with contextlib.closing(NvmlGpu(uuid)) as gpu, operating_point(gpu, OperatingPoint.parse(point), CONTROL) as held:
        return held.warnings


def test_a_half_applied_point_is_taken_back(nvml, in_worker):
    nvml.card(0).missing = standin_nvml.MISSING_SM_LOCK
    with pytest.raises(NotSupportedError, match="locking the SM clock at 900 MHz: not supported by this GPU"):
        in_worker(hold, nvml.uuid(0), "sm900-mem1215")
    assert nvml.card(0).settings_made == 3  # the memory clock was locked, the SM clock refused, the memory clock reset
    assert nvml.card(0).locked_memory_mhz == 0


def test_persistence_mode_off_is_reported(nvml, in_worker):
    nvml.card(1).persistence = 0
    assert in_worker(hold, nvml.uuid(0)) == []
    (warning,) = in_worker(hold, nvml.uuid(1))
    assert "persistence mode is off" in warning
    assert "nvidia-smi -pm 1" in warning
    assert nvml.card(1).locked_sm_mhz == 0


def start_holding(nvml):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, nvml.uuid(0)],
        env=nvml.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    assert (nvml.card(0).locked_sm_mhz, nvml.card(0).limit_mw) == (900, 120_000)
    return holder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_released_on_a_signal(nvml, number):
    holder = start_holding(nvml)
    holder.send_signal(number)
    holder.communicate(timeout=300)
    assert holder.returncode != 0
    assert (nvml.card(0).locked_sm_mhz, nvml.card(0).limit_mw) == (0, 165_000)


def test_a_second_signal_does_not_cut_the_release_short(nvml):
    holder = start_holding(nvml)
    for _ in range(20):
        holder.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    holder.communicate(timeout=300)
    assert (nvml.card(0).locked_sm_mhz, nvml.card(0).limit_mw) == (0, 165_000)


def test_a_failed_release_is_loud_and_releases_the_rest(nvml):
    holder = start_holding(nvml)
    nvml.card(0).missing = standin_nvml.MISSING_SM_LOCK
    holder.send_signal(signal.SIGTERM)
    _, said = holder.communicate(timeout=300)
    assert f"{ReleaseError.__name__}: THE GPU IS NOT AS IT WAS." in said
    assert f"nvidia-smi -i {nvml.uuid(0)} --reset-gpu-clocks" in said
    assert (nvml.card(0).locked_sm_mhz, nvml.card(0).limit_mw) == (900, 165_000)


def test_every_combination_of_settings_is_released():
    gpu = VirtualGpu("rtx2080ti", seed=0)
    before = settled(gpu)
    for settings in itertools.product([None, 900], [None, 810], [None, 150]):
        with operating_point(gpu, OperatingPoint(*settings), CONTROL):
            expected = tuple(asked or had for asked, had in zip(settings, before, strict=True))
            assert settled(gpu)[1:] == expected[1:]
        assert settled(gpu) == before
