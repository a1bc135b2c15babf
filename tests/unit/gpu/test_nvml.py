import contextlib
import importlib
import subprocess
import sys
import time

import pytest

import standin_nvml
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import (
    GpuLostError,
    GpuNotFoundError,
    NoPermissionError,
    NotSupportedError,
    throttle_reason_names,
)
from clockwatt.gpu.nvidia.nvml import NvmlGpu
from clockwatt.gpu.nvidia.vendor import installed_gpus, lost_gpus
from clockwatt.gpu.sensing.sensors import update_periods_s


def call(uuid, method, *arguments):
    with contextlib.closing(NvmlGpu(uuid)) as gpu:
        return getattr(gpu, method)(*arguments)


def identity(uuid):
    with contextlib.closing(NvmlGpu(uuid)) as gpu:
        return gpu.identity


def polled_periods(uuid):
    with contextlib.closing(NvmlGpu(uuid)) as gpu:
        return update_periods_s(gpu, now_ns=time.monotonic_ns, wait=time.sleep, duration_s=3.0)


def test_identity(nvml, in_worker):
    found = in_worker(identity, nvml.uuid(2))
    assert (found.name, found.uuid) == ("NVIDIA GeForce RTX 2080 Ti", nvml.uuid(2))
    assert (found.driver_version, found.cuda_version, found.virtual) == ("580.1.2", "13.2", False)


def test_a_missing_package_is_named_with_its_fix(monkeypatch):
    monkeypatch.delitem(sys.modules, "clockwatt.gpu.nvidia")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ClockwattError, match=r"nvidia-ml-py cannot be imported .*pip install nvidia-ml-py"):
        importlib.import_module("clockwatt.gpu.nvidia")


def test_every_sensor_is_read_in_its_unit(nvml, in_worker):
    card = nvml.card(1)
    card.power_mw, card.limit_mw, card.temperature_c, card.performance_state = 123_000, 150_000, 66, 2
    card.gpu_percent, card.memory_percent, card.memory_used, card.throttle_reasons = 97, 41, 3 * 2**30, 0x24
    expected = {
        "power_average_w": pytest.approx(123, abs=0.004),
        "power_instant_w": pytest.approx(123, abs=0.004),
        "energy_counter_j": pytest.approx(123 * 3600, rel=0.01),
        "sm_clock_mhz": 1440,
        "memory_clock_mhz": 1215,
        "throttle_reasons": 0x24,
        "temperature_c": 66,
        "performance_state": 2,
        "memory_used_bytes": 3 * 2**30,
        "pcie_tx_kib_s": 100,
        "pcie_rx_kib_s": 200,
        "power_limit_w": 150,
        "default_power_limit_w": 165,
        "power_limit_range_w": (100, 165),
        "persistence_mode": True,
        "supported_memory_clocks_mhz": [1215],
        "supported_sm_clocks_mhz": list(range(210, 1441, 15)),
    }
    assert {name: in_worker(call, nvml.uuid(1), name) for name in expected} == expected
    utilization = in_worker(call, nvml.uuid(1), "utilization")
    assert (utilization.gpu_percent, utilization.memory_percent) == (97, 41)
    assert throttle_reason_names(0x24) == ["sw_power_cap", "sw_thermal_slowdown"]


def test_ring_gives_what_is_newer_oldest_first(nvml, in_worker):
    before_us = time.time() * 1e6
    samples = in_worker(call, nvml.uuid(0), "power_samples", 0)
    stamps = [sample.time_us for sample in samples]
    assert len(samples) == 119
    assert stamps == sorted(stamps)
    assert before_us - 20_000 <= stamps[-1] <= time.time() * 1e6
    assert all(30.0 <= sample.power_w < 30.005 for sample in samples)
    newer = in_worker(call, nvml.uuid(0), "power_samples", stamps[-3])
    assert [sample.time_us for sample in newer[:2]] == stamps[-2:]
    assert in_worker(call, nvml.uuid(0), "power_samples", stamps[-1] + 10**9) == []


@pytest.mark.parametrize(
    ("missing", "method"),
    [
        (standin_nvml.MISSING_INSTANT, "power_instant_w"),
        (standin_nvml.MISSING_COUNTER, "energy_counter_j"),
        (standin_nvml.MISSING_PCIE, "pcie_tx_kib_s"),
    ],
)
def test_a_missing_sensor_says_so(nvml, in_worker, missing, method):
    nvml.card(0).missing = missing
    with pytest.raises(NotSupportedError, match=rf"NVIDIA A30 \({nvml.uuid(0)}\): .*not supported by this GPU"):
        in_worker(call, nvml.uuid(0), method)


def test_average_power_of_a_card_without_the_field(nvml, in_worker):
    nvml.card(0).missing = standin_nvml.MISSING_AVERAGE_FIELD
    assert in_worker(call, nvml.uuid(0), "power_average_w") == pytest.approx(30, abs=0.004)


@pytest.mark.undisturbed
def test_update_periods_are_found_by_polling(nvml, in_worker):
    nvml.card(0).missing = standin_nvml.MISSING_INSTANT
    periods = in_worker(polled_periods, nvml.uuid(0))
    assert periods["power_samples"] == pytest.approx(0.02)
    assert periods["power_average"] == pytest.approx(0.1, abs=0.05)
    assert periods["energy_counter"] == pytest.approx(0.1, abs=0.05)
    assert "power_instant" not in periods


def test_a_lost_gpu_is_told_from_a_missing_sensor(nvml, in_worker):
    nvml.card(0).lost = 1
    with pytest.raises(GpuLostError, match="fell off the bus"):
        in_worker(call, nvml.uuid(0), "sm_clock_mhz")
    assert in_worker(lost_gpus) == 1
    found = [(gpu.uuid, gpu.serial) for gpu in in_worker(installed_gpus)]
    assert found == [(uuid, uuid[28:]) for uuid in (nvml.uuid(1), nvml.uuid(2))]


def lose_while_open(uuid, state_file):
    with contextlib.closing(NvmlGpu(uuid)) as gpu:
        card = standin_nvml.mapped(state_file).cards[0]
        card.lost = 1
        try:
            return gpu.power_average_w()
        finally:
            card.lost = 0


def test_a_gpu_may_be_lost_while_it_is_read(nvml, in_worker):
    with pytest.raises(GpuLostError, match=r"NVIDIA A30 \(GPU-0.*average power: the GPU fell off the bus"):
        in_worker(lose_while_open, nvml.uuid(0), nvml.state_file)


def test_settings_reach_the_card(nvml, in_worker):
    uuid, card = nvml.uuid(0), nvml.card(0)
    in_worker(call, uuid, "lock_sm_clock", 900)
    in_worker(call, uuid, "lock_memory_clock", 1215)
    in_worker(call, uuid, "set_power_limit", 120.5)
    assert (card.locked_sm_mhz, card.locked_memory_mhz, card.limit_mw) == (900, 1215, 120_500)
    assert in_worker(call, uuid, "sm_clock_mhz") == 900
    in_worker(call, uuid, "reset_sm_clock")
    in_worker(call, uuid, "reset_memory_clock")
    assert (card.locked_sm_mhz, card.locked_memory_mhz) == (0, 0)
    assert nvml.card(1).settings_made == 0


def test_the_clock_settles_late(nvml, in_worker):
    nvml.card(0).settle_us = 10_000_000
    in_worker(call, nvml.uuid(0), "lock_sm_clock", 900)
    assert in_worker(call, nvml.uuid(0), "sm_clock_mhz") == 1440


@pytest.mark.parametrize(
    "setting",
    [
        ("lock_sm_clock", 900),
        ("reset_sm_clock",),
        ("lock_memory_clock", 1215),
        ("reset_memory_clock",),
        ("set_power_limit", 120),
    ],
)
def test_settings_need_permission(nvml, in_worker, setting):
    nvml.card(0).may_set = 0
    with pytest.raises(NoPermissionError, match=r"NVIDIA A30.*privileges"):
        in_worker(call, nvml.uuid(0), *setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("lock_sm_clock", 901), "Nearest: 900 and 915 MHz"),
        (("lock_memory_clock", 5001), "memory clock 5001 MHz is not supported. Nearest: 1215 MHz"),
        (("supported_sm_clocks_mhz", 5001), "Nearest: 1215 MHz"),
        (("set_power_limit", 300), "300 W is outside 100 to 165 W"),
    ],
)
def test_what_is_not_supported_is_refused_before_the_driver_sees_it(nvml, in_worker, setting, message):
    with pytest.raises(NotSupportedError, match=message):
        in_worker(call, nvml.uuid(0), *setting)
    assert nvml.card(0).settings_made == 0


def test_mig_is_refused_with_a_reason(nvml, in_worker):
    nvml.card(0).mig_enabled = 1
    with pytest.raises(NotSupportedError, match="clocks and power readings belong to the whole card"):
        in_worker(identity, nvml.uuid(0))
    nvml.card(1).missing = standin_nvml.MISSING_MIG
    assert in_worker(identity, nvml.uuid(1)).name == "NVIDIA A30"


def test_unknown_uuid(nvml, in_worker):
    with pytest.raises(GpuNotFoundError, match="GPU-nowhere: no such GPU"):
        in_worker(identity, "GPU-nowhere")


def test_cards_of_other_jobs_are_left_out(nvml, in_worker):
    nvml.card(0).hidden = 1
    assert [gpu.uuid for gpu in in_worker(installed_gpus)] == [nvml.uuid(1), nvml.uuid(2)]


def test_no_driver_says_what_to_do(nvml):
    code = "from clockwatt.gpu.nvidia.vendor import installed_gpus; installed_gpus()"
    without_cards = nvml.environment(STANDIN_NVML_STATE="/nowhere")
    tried = subprocess.run([sys.executable, "-c", code], env=without_cards, capture_output=True, text=True, check=False)
    assert "GpuNotFoundError: NVML: no NVIDIA driver was found" in tried.stderr
    assert "can also use virtual:a30" in tried.stderr
