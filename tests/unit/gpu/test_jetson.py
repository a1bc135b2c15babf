"""Jetson boards by their files, written as the kernel's documents and jetson_stats describe them; none was at hand."""

from pathlib import Path

import pytest

from clockwatt.gpu import registry
from clockwatt.gpu.interface import GpuError, NotSupportedError
from clockwatt.gpu.jetson.vendor import JetsonVendor
from clockwatt.telemetry.sampling import FAST, SLOW, LaneReader

ORIN_NX = {
    "proc/device-tree/model": "NVIDIA Jetson Orin NX Engineering Reference Developer Kit\0",
    "proc/device-tree/serial-number": "1421622010101\0",
    "etc/nv_tegra_release": "# R36 (release), REVISION: 2.0, GCID: 34956989, BOARD: generic, EABI: aarch64\n",
    "sys/class/devfreq/15480000.nvdec/cur_freq": "192000000\n",
    "sys/class/devfreq/17000000.gpu/cur_freq": "612000000\n",
    "sys/class/devfreq/17000000.gpu/device/of_node/name": "gpu\0",
    "sys/class/devfreq/17000000.gpu/device/load": "873\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "48250\n",
    "sys/class/thermal/thermal_zone1/type": "gpu-thermal\n",
    "sys/class/thermal/thermal_zone1/temp": "46718\n",
    **{
        f"sys/bus/i2c/devices/1-0040/hwmon/hwmon3/{name}": value
        for name, value in {
            "name": "ina3221\n",
            "in1_label": "VDD_IN\n", "in1_input": "5008\n", "curr1_input": "2400\n",
            "in2_label": "VDD_CPU_GPU_CV\n", "in2_input": "5000\n", "curr2_input": "1100\n",
            "in3_label": "VDD_SOC\n", "in3_input": "5000\n", "curr3_input": "400\n",
            "in7_label": "sum of shunt voltages\n", "in7_input": "19\n",
        }.items()
    },
}  # fmt: skip
XAVIER = {
    "proc/device-tree/model": "Jetson-AGX\0",
    "sys/class/devfreq/17000000.gv11b/cur_freq": "1377000000\n",
    "sys/class/devfreq/17000000.gv11b/device/load": "0\n",
    "sys/class/thermal/thermal_zone1/type": "GPU-therm\n",
    "sys/class/thermal/thermal_zone1/temp": "39500\n",
    **{
        f"sys/bus/i2c/devices/{monitor}/{name}": value
        for monitor in ("1-0040", "1-0041")
        for name, value in {
            "name": "ina3221\n",
            f"hwmon/hwmon{monitor[-1]}/in1_label": f"rail {monitor}\n",
            f"hwmon/hwmon{monitor[-1]}/in1_input": "19000\n",
            f"hwmon/hwmon{monitor[-1]}/curr1_input": "200\n",
            f"hwmon/hwmon{monitor[-1]}/in2_label": "NC\n",
            f"hwmon/hwmon{monitor[-1]}/in2_input": "9\n",
            f"hwmon/hwmon{monitor[-1]}/curr2_input": "9\n",
        }.items()
    },
}


def board(root: Path, files: dict[str, str]) -> JetsonVendor:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return JetsonVendor(root)


def test_a_board_is_found_and_logged_like_any_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_VENDORS", [board(tmp_path, ORIN_NX)])  # a stand-in of NVML may be loaded here
    (found,) = registry.installed_gpus()
    assert registry.visible_gpus({}) == [found]
    assert registry.visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}) == [found]
    gpu = registry.open_installed(found)
    assert (gpu.identity.uuid, gpu.identity.driver_version) == ("jetson-1421622010101", "L4T R36.2.0")
    assert gpu.identity.name == "NVIDIA Jetson Orin NX Engineering Reference Developer Kit"
    reader = LaneReader(gpu, "s", lambda: (1, 1), None, cpu_ns=lambda: 0, sensor_cpu_share=1.0)
    (fast,), (slow,) = reader.read(FAST), reader.read(SLOW)
    assert fast.power_instant_w == pytest.approx(5.008 * 2.4)
    assert fast.sm_clock_mhz == 612
    assert (fast.energy_counter_j, fast.power_average_w, fast.throttle_reasons) == (None, None, None)
    assert (slow.gpu_utilization_percent, slow.memory_utilization_percent) == (87, None)
    assert slow.temperature_c == pytest.approx(46.718)
    assert reader.failed_readings == 0


def test_a_board_without_a_monitor_of_its_input_gives_the_sum_of_its_rails(tmp_path):
    gpu = board(tmp_path, XAVIER).open("")
    assert gpu.power_instant_w() == pytest.approx(2 * 19 * 0.2)
    assert (gpu.sm_clock_mhz(), gpu.identity.uuid, gpu.identity.driver_version) == (1377, "jetson-0", "unknown")


def test_a_gpu_without_power_does_not_answer(tmp_path):
    gpu = board(tmp_path, ORIN_NX | {"sys/class/thermal/thermal_zone1/temp": ""}).open("")
    with pytest.raises(GpuError, match="thermal_zone1/temp cannot be read"):
        gpu.temperature_c()
    (tmp_path / "sys/class/devfreq/17000000.gpu/cur_freq").unlink()
    with pytest.raises(NotSupportedError, match=r"its kernel has no .*cur_freq"):
        gpu.sm_clock_mhz()


def test_a_board_without_sensors_says_so(tmp_path):
    kept = {name: text for name, text in ORIN_NX.items() if "i2c" not in name and "thermal" not in name}
    gpu = board(tmp_path, kept).open("")
    for read in (gpu.power_instant_w, gpu.temperature_c, gpu.power_limit_w, gpu.persistence_mode):
        with pytest.raises(NotSupportedError, match="Jetson Orin NX"):
            read()


def test_nothing_is_set_and_no_campaign_measures_it(tmp_path):
    vendor = board(tmp_path, ORIN_NX)
    with pytest.raises(NotSupportedError, match="has no such sensor or setting"):
        vendor.open("").lock_sm_clock(612)
    with registry.register(vendor), pytest.raises(NotSupportedError, match=r"gpus\.nx\.device: .*clockwatt record"):
        registry.open_gpu("NVIDIA Jetson Orin NX", seed=0, key="gpus.nx.device")


def test_what_is_no_jetson_has_none(tmp_path):
    vendor = board(tmp_path, {"sys/class/devfreq/0000:01:00.0/cur_freq": "1\n"})
    assert vendor.installed() == vendor.visible({}) == []
    assert vendor.open_model("NVIDIA Jetson Orin NX", seed=0) is None
    with pytest.raises(GpuError, match="no Jetson GPU"):
        vendor.open("")
    with_board = board(tmp_path, ORIN_NX)
    assert with_board.visible({"CUDA_VISIBLE_DEVICES": ""}) == []
