"""Temperatures of processors, from trees of /sys/class/hwmon as machines have them."""

import errno
from pathlib import Path

import pytest

from clockwatt.telemetry import host
from clockwatt.telemetry.host import HostSensors

INTEL_2_SOCKETS = """
hwmon0/name acpitz
hwmon0/temp1_input 27800
hwmon10/name coretemp
hwmon10/temp1_label Package id 1
hwmon10/temp1_input 45000
hwmon10/temp2_label Core 0
hwmon10/temp2_input 43000
hwmon2/name coretemp
hwmon2/temp1_label Package id 0
hwmon2/temp1_input 51000
hwmon2/temp1_crit 100000
hwmon2/temp2_label Core 0
hwmon2/temp2_input 50000
hwmon3/name nvme
hwmon3/temp1_label Composite
hwmon3/temp1_input 38850
"""
AMD = """
hwmon1/name k10temp
hwmon1/temp1_label Tctl
hwmon1/temp1_input 48125
hwmon1/temp3_label Tccd1
hwmon1/temp3_input 44500
"""
ARM = """
hwmon0/name cpu_thermal
hwmon0/temp1_input 41322
"""
VIRTUAL_MACHINE = """
hwmon0/name nvme
hwmon0/temp1_label Composite
hwmon0/temp1_input 36850
"""


def recorded(folder: Path, tree: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    for line in filter(None, tree.splitlines()):
        name, value = line.split(" ", 1)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(value + "\n")
    monkeypatch.setattr(host, "_HWMON", folder)
    return folder


@pytest.mark.parametrize(
    ("tree", "expected"),
    [(INTEL_2_SOCKETS, [51.0, 45.0]), (AMD, [48.125]), (ARM, [41.322]), (VIRTUAL_MACHINE, None), ("", None)],
)
def test_each_processor_gives_the_temperature_of_its_package(tmp_path, tree, expected, monkeypatch):
    recorded(tmp_path, tree, monkeypatch)
    assert HostSensors.cpu_temperature_c() == (expected and pytest.approx(expected))


def test_a_sensor_that_cannot_be_read_is_left_out(tmp_path, monkeypatch):
    tree = recorded(tmp_path, INTEL_2_SOCKETS, monkeypatch)
    (tree / "hwmon2" / "temp1_input").unlink()
    (tree / "hwmon2" / "temp1_input").mkdir()  # reading raises an OSError, as of a chip that sleeps
    with pytest.raises(IsADirectoryError) as raised:
        (tree / "hwmon2" / "temp1_input").read_text()
    assert raised.value.errno == errno.EISDIR
    assert HostSensors.cpu_temperature_c() == [45.0]
