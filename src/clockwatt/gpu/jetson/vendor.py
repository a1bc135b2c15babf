"""The GPU of a Jetson board, by the files of its kernel; never run on a board by the project.

```
/sys/class/devfreq/*/                  the GPU among them: cur_freq in Hz; device/load in ‰
/sys/bus/i2c/devices/*/hwmon/hwmon*/   INA3221 power monitors: in1_label, in1_input in mV, curr1_input in mA
/sys/class/thermal/thermal_zone*/      type, and temp in m°C
/proc/device-tree/                     model, serial-number
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from clockwatt.gpu.interface import (
    Gpu,
    GpuError,
    GpuIdentity,
    GpuNotFoundError,
    InstalledGpu,
    NotSupportedError,
    Utilization,
    Vendor,
)
from clockwatt.gpu.sensors_only import SensorsOnlyGpu

_GPUS = {"gp10b", "gv11b", "ga10b", "gpu"}
"""Names of the GPU in device trees: of TX2, Xavier, Orin, and of newer kernels."""
_INPUTS = ("VDD_IN", "POM_5V_IN", "5V_IN")
"""Rails that feed the whole module."""
_NO_RAILS = re.compile(r"NC|sum of shunt voltages", re.IGNORECASE)
_VARIABLE = "CUDA_VISIBLE_DEVICES"


class JetsonGpu(SensorsOnlyGpu):
    """The GPU of a Jetson board. Its power is that of the whole module, since few boards have a rail of the GPU alone.

    Parameters
    ----------
    root
        Folder that holds `sys` and `proc`.

    Raises
    ------
    GpuNotFoundError
        If this is no Jetson.
    """

    vendor = "jetson"

    def __init__(self, root: Path = Path("/")) -> None:
        clocks = _gpu_clocks(root)
        if clocks is None:
            raise GpuNotFoundError("no Jetson GPU was found in /sys/class/devfreq.")
        self._clocks = clocks
        serial = _text(root / "proc/device-tree/serial-number") or "0"
        release = re.match(r"# (R\d+).*?REVISION: ([\d.]+)", _text(root / "etc/nv_tegra_release") or "")
        self._identity = GpuIdentity(
            name=_text(root / "proc/device-tree/model") or "NVIDIA Jetson", uuid=f"jetson-{serial}",
            driver_version=f"L4T {release[1]}.{release[2]}" if release else "unknown", cuda_version=None, virtual=False,
        )  # fmt: skip
        self._rails = _rails(root)
        zones = sorted((root / "sys/class/thermal").glob("thermal_zone*"))
        self._zone = next((zone for zone in zones if (_text(zone / "type") or "").casefold().startswith("gpu")), None)

    @property
    def identity(self) -> GpuIdentity:
        """See `Gpu`."""
        return self._identity

    def index(self) -> int:
        """See `Gpu`."""
        return 0

    def power_instant_w(self) -> float:
        """See `Gpu`; of the module: by its input, or where that has no monitor as the sum of all rails."""
        if not self._rails:  # as on the Nano with 2 GB
            raise NotSupportedError(f"{self._identity.name}: has no INA3221, which measures power.")
        inputs = [name for name in _INPUTS if name in self._rails] or list(self._rails)
        return sum(1e-6 * self._number(millivolts) * self._number(milliamperes)
                   for millivolts, milliamperes in map(self._rails.__getitem__, inputs))  # fmt: skip

    def sm_clock_mhz(self) -> int:
        """See `Gpu`."""
        return round(1e-6 * self._number(self._clocks / "cur_freq"))

    def temperature_c(self) -> float:
        """See `Gpu`."""
        if self._zone is None:
            raise NotSupportedError(f"{self._identity.name}: has no thermal zone of the GPU.")
        return 1e-3 * self._number(self._zone / "temp")

    def utilization(self) -> Utilization:
        """See `Gpu`; that of the memory is unknown."""
        return Utilization(round(self._number(self._clocks / "device" / "load") / 10), None)

    def _number(self, path: Path) -> float:
        try:
            return float(path.read_text(encoding="ascii").split()[0])
        except FileNotFoundError:
            raise NotSupportedError(f"{self._identity.name}: its kernel has no {path}.") from None
        except (OSError, ValueError, IndexError) as error:  # a GPU without power does not answer
            raise GpuError(f"{self._identity.name}: {path} cannot be read ({error}).") from None


def _gpu_clocks(root: Path) -> Path | None:
    """Return the folder of the GPU's clock, None if this is no Jetson."""
    for folder in sorted((root / "sys/class/devfreq").glob("*")):
        name = _text(folder / "device/of_node/name") or folder.name.rpartition(".")[2]
        if name in _GPUS and (folder / "device/load").exists():
            return folder
    return None


def _rails(root: Path) -> dict[str, tuple[Path, Path]]:
    """Return the files of voltage in mV and current in mA of each rail, by its label."""
    rails = {}
    for label in sorted((root / "sys/bus/i2c/devices").glob("*/hwmon/hwmon*/in*_label")):
        number, name = label.name.removeprefix("in").removesuffix("_label"), _text(label)
        monitor = _text(label.parent / "name") or _text(label.parents[2] / "name") or ""
        if name and monitor.startswith("ina3221") and not _NO_RAILS.fullmatch(name):
            rails[name] = label.parent / f"in{number}_input", label.parent / f"curr{number}_input"
    return rails


def _text(path: Path) -> str | None:
    """Return a file's text without the zero byte that ends those of a device tree; None if it cannot be read."""
    try:
        return path.read_bytes().rstrip(b"\0\n ").decode(errors="replace") or None
    except OSError:
        return None


class JetsonVendor(Vendor):
    """The one GPU of a Jetson board. `clockwatt record` reads it; a campaign cannot measure it.

    Parameters
    ----------
    root
        Folder that holds `sys` and `proc`.
    """

    name = JetsonGpu.vendor

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def claims(self, device: str) -> bool:
        """See `Vendor.claims`."""
        return "jetson" in device.casefold()

    def installed(self) -> list[InstalledGpu]:
        """See `Vendor.installed`."""
        return [JetsonGpu(self._root).installed] if _gpu_clocks(self._root) else []

    def lost(self) -> int:
        """See `Vendor.lost`."""
        return 0

    def visible(self, environ: Mapping[str, str]) -> list[InstalledGpu]:
        """See `Vendor.visible`."""
        return [] if environ.get(_VARIABLE, "0").split(",")[0].strip() in ("", "-1") else self.installed()

    def open(self, uuid: str) -> Gpu:
        """See `Vendor.open`."""
        return JetsonGpu(self._root)

    def open_configured(self, device: str, *, seed: int, key: str, environ: Mapping[str, str]) -> Gpu:
        """See `Vendor.open_configured`; refused, since CUDA takes no name of the GPU that sysfs knows."""
        raise NotSupportedError(
            f"{key}: {device!r}: a Jetson cannot be measured by a campaign. Use `clockwatt record`."
        )

    def open_model(self, device: str, *, seed: int) -> Gpu | None:
        """See `Vendor.open_model`."""
        return JetsonGpu(self._root) if _gpu_clocks(self._root) else None
