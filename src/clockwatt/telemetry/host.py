"""Sensors of the host: processor use per socket, processor temperatures, memory."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import psutil

_CPUS = Path("/sys/devices/system/cpu")
_HWMON = Path("/sys/class/hwmon")
_POWERCAP = Path("/sys/class/powercap")
_PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


class HostSensors:
    """Reads the host; utilisation is over the time since the reading before (the first one gives None)."""

    def __init__(self) -> None:
        self._sockets = _cpus_by_socket()
        self._busy_before: list[tuple[float, float]] | None = None

    def cpu_utilization_percent(self) -> list[float] | None:
        """Return the share of time the processors of each socket were busy, in percent, sockets ascending."""
        now = [(times.idle + getattr(times, "iowait", 0.0), sum(times[:8])) for times in psutil.cpu_times(percpu=True)]
        before, self._busy_before = self._busy_before, now
        if before is None or len(before) != len(now):
            return None
        return [_busy_percent([(now[cpu], before[cpu]) for cpu in cpus if cpu < len(now)]) for cpus in self._sockets]

    @staticmethod
    def cpu_temperature_c() -> list[float] | None:
        """Temperatures of the processor packages in °C; None where the host shows none (virtual machines)."""
        readings = [
            (_text(entry.with_name(entry.name.replace("_input", "_label"))), float(millidegrees) * 1e-3)
            for chip in sorted(_HWMON.glob("hwmon*"), key=lambda path: int(path.name.removeprefix("hwmon")))
            if _text(chip / "name") in _PROCESSOR_SENSORS
            for entry in sorted(chip.glob("temp*_input"))
            if (millidegrees := _text(entry)).removeprefix("-").isdecimal()
        ]
        packages = [value for label, value in readings if re.match(r"Package|Tctl|Tdie", label)]
        return packages or [value for _, value in readings] or None

    @staticmethod
    def cpu_energy_j() -> list[float] | None:
        """Energy counters of the processor packages in J, which wrap; None where the host has none or only root may."""
        packages = sorted(path for path in _POWERCAP.glob("intel-rapl:*") if path.name.count(":") == 1)
        try:
            return [int((path / "energy_uj").read_text()) * 1e-6 for path in packages] or None
        except (OSError, ValueError):
            return None

    @staticmethod
    def memory_used_bytes() -> int:
        """Return the host memory in use, in bytes."""
        return int(psutil.virtual_memory().used)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # a sensor that sleeps, or has no label
        return ""


def _cpus_by_socket() -> list[list[int]]:
    sockets: dict[int, list[int]] = defaultdict(list)
    for cpu in range(psutil.cpu_count() or 1):
        package = _CPUS / f"cpu{cpu}" / "topology" / "physical_package_id"
        sockets[int(package.read_text()) if package.is_file() else 0].append(cpu)
    return [sockets[package] for package in sorted(sockets)]


def _busy_percent(pairs: list[tuple[tuple[float, float], tuple[float, float]]]) -> float:
    idle = sum(now[0] - before[0] for now, before in pairs)
    total = sum(now[1] - before[1] for now, before in pairs)
    return max(0.0, min(100.0, 100.0 * (1 - idle / total))) if total > 0 else 0.0
