"""AMD GPUs on a stand-in of amdsmi 7.0.2, whose functions return what its source does; no GPU was at hand."""

import enum
from types import SimpleNamespace

import pytest

from clockwatt.gpu import registry
from clockwatt.gpu.amd.vendor import AmdVendor
from clockwatt.gpu.interface import GpuError, GpuNotFoundError, NotSupportedError
from clockwatt.telemetry.sampling import FAST, SLOW, LaneReader

UUIDS = ("6aff74a1-0000-1000-80c8-1be4dc8bd5ff", "8cff74a1-0000-1000-8033-4aa2dc8bd5ff")


class Failed(Exception):  # noqa: N818, as amdsmi's AmdSmiLibraryException
    def get_error_info(self, *, detailed=True):
        return f"{self.args[0]} - and more" if detailed else self.args[0]


class Amdsmi:
    """The functions that clockwatt calls, for two MI300X."""

    AmdSmiLibraryException = Failed
    AmdSmiClkType = enum.IntEnum("AmdSmiClkType", {"GFX": 0, "MEM": 4})
    AmdSmiTemperatureType = enum.IntEnum("AmdSmiTemperatureType", {"HOTSPOT": 1})
    AmdSmiTemperatureMetric = enum.IntEnum("AmdSmiTemperatureMetric", {"CURRENT": 0})

    def __init__(self, **failing):
        self.failing = failing

    def __getattribute__(self, name):
        failing = object.__getattribute__(self, "failing") if name.startswith("amdsmi_") else {}
        if name in failing:
            raise Failed(failing[name])
        return object.__getattribute__(self, name)

    def amdsmi_init(self):
        pass

    def amdsmi_get_processor_handles(self):
        return [SimpleNamespace(number=0), SimpleNamespace(number=1)]

    def amdsmi_get_gpu_asic_info(self, handle):
        return {"market_name": "AMD Instinct MI300X OAM", "num_compute_units": 304}

    def amdsmi_get_gpu_driver_info(self, handle):
        return {"driver_name": "amdgpu", "driver_version": "6.14.14", "driver_date": "N/A"}

    def amdsmi_get_gpu_device_uuid(self, handle):
        return UUIDS[handle.number]

    def amdsmi_get_power_info(self, handle):
        powers = {"socket_power": 733, "current_socket_power": 733, "average_socket_power": "N/A"}
        return powers | {"gfx_voltage": "N/A", "power_limit": 750}

    def amdsmi_get_energy_count(self, handle):
        return {"energy_accumulator": 2_000_000, "counter_resolution": 15.259, "timestamp": 1}

    def amdsmi_get_clock_info(self, handle, kind):
        return {"clk": {0: 2087, 4: 1300}[kind], "min_clk": 132, "max_clk": 2100, "clk_locked": "N/A"}

    def amdsmi_get_temp_metric(self, handle, kind, metric):
        return 61

    def amdsmi_get_gpu_activity(self, handle):
        return {"gfx_activity": 100, "umc_activity": 24, "mm_activity": "N/A"}

    def amdsmi_get_gpu_vram_usage(self, handle):
        return {"vram_total": 196_592, "vram_used": 4096}

    def amdsmi_get_power_cap_info(self, handle):
        return {"power_cap": 750_000_000, "default_power_cap": 750_000_000}


def vendor(**failing):
    return AmdVendor(lambda: Amdsmi(**failing))


def test_gpus_are_found_and_logged_like_any(monkeypatch):
    monkeypatch.setattr(registry, "_VENDORS", [vendor()])  # a stand-in of NVML may be loaded in this process
    first, second = registry.installed_gpus()
    assert (first.uuid, second.uuid, first.name) == (*UUIDS, "AMD Instinct MI300X OAM")
    assert registry.visible_gpus({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}) == [second]
    assert registry.visible_gpus({"ROCR_VISIBLE_DEVICES": "1,0", "CUDA_VISIBLE_DEVICES": "0"}) == [second]
    gpu = registry.open_installed(second)
    assert (gpu.index(), gpu.identity.driver_version) == (1, "6.14.14")
    reader = LaneReader(gpu, "s", lambda: (1, 1), None, cpu_ns=lambda: 0, sensor_cpu_share=1.0)
    (fast,), (slow,) = reader.read(FAST), reader.read(SLOW)
    assert (fast.power_instant_w, fast.power_average_w) == (733, None)
    assert fast.energy_counter_j == pytest.approx(30.518)
    assert (fast.sm_clock_mhz, fast.memory_clock_mhz, fast.throttle_reasons) == (2087, 1300, None)
    assert (slow.gpu_utilization_percent, slow.memory_utilization_percent, slow.temperature_c) == (100, 24, 61)
    assert (slow.memory_used_bytes, slow.power_limit_w) == (4 * 2**30, pytest.approx(750))
    assert reader.failed_readings == 0


@pytest.mark.parametrize(
    ("status", "kind"), [("AMDSMI_STATUS_NOT_SUPPORTED", NotSupportedError), ("AMDSMI_STATUS_BUSY", GpuError)]
)
def test_an_error_of_the_library_names_gpu_and_sensor(status, kind):
    gpu = vendor(amdsmi_get_temp_metric=status).open(UUIDS[0])
    with pytest.raises(kind, match=f"AMD GPU 0: temperature: amdsmi says {status}") as caught:
        gpu.temperature_c()
    assert type(caught.value) is kind


def test_without_library_driver_or_gpu_there_is_none():
    assert AmdVendor(lambda: None).installed() == []
    assert vendor(amdsmi_init="AMDSMI_STATUS_DRIVER_NOT_LOADED").visible({"HIP_VISIBLE_DEVICES": "GPU-1"}) == []
    assert AmdVendor().installed() == []  # amdsmi is not among the dependencies
    with pytest.raises(GpuNotFoundError, match="GPU-9: no such AMD GPU"):
        vendor().open("GPU-9")


@pytest.mark.parametrize("chosen", ["2", "GPU-6aff", "-1"])
def test_what_cannot_be_resolved_is_named(chosen):
    with pytest.raises(GpuNotFoundError, match=r"HIP_VISIBLE_DEVICES=.*: names no AMD GPU here"):
        vendor().visible({"HIP_VISIBLE_DEVICES": chosen})
    assert vendor().visible({"HIP_VISIBLE_DEVICES": ""}) == []


def test_no_campaign_measures_it():
    assert vendor().open_model("amd instinct mi300x oam", seed=0) is not None
    with (
        registry.register(vendor()),
        pytest.raises(NotSupportedError, match=r"gpus\.mi300\.device: .*clockwatt record"),
    ):
        registry.open_gpu("AMD Instinct MI300X OAM", seed=0, key="gpus.mi300.device")
