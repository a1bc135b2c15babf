"""All sensors of a GPU and its host over a run, on one grid; and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from clockwatt.telemetry.recording.gpu_summary import power_readings, readings
from clockwatt.telemetry.recording.host_readings import of_sockets, power_of_counter

PERIOD_S = 1.0
"""Period of the grid, in s: that of the slowest sensors."""

LEAST_SECONDS = 8
"""Fewest common seconds of two sensors for a correlation."""

POWER, TEMPERATURE = "power_w", "temperature_c"
CPU_UTILIZATION, CPU_TEMPERATURE, CPU_POWER = "cpu_utilization_percent", "cpu_temperature_c", "cpu_power_w"
HOST_MEMORY = "host_memory_used_bytes"

_OF_GPU = (
    TEMPERATURE, "gpu_utilization_percent", "memory_utilization_percent", "memory_used_bytes", "memory_temperature_c",
    "sm_clock_mhz", "memory_clock_mhz", "pcie_tx_kib_s", "pcie_rx_kib_s", "fan_speed_percent",
)  # fmt: skip

_WORDS = {
    POWER: "power", TEMPERATURE: "GPU temperature", "gpu_utilization_percent": "GPU busy",
    "memory_utilization_percent": "memory busy", "memory_used_bytes": "memory used",
    "memory_temperature_c": "memory temperature", "sm_clock_mhz": "SM clock", "memory_clock_mhz": "memory clock",
    "pcie_tx_kib_s": "PCIe sent", "pcie_rx_kib_s": "PCIe received", "fan_speed_percent": "fan",
    CPU_UTILIZATION: "CPU busy", CPU_TEMPERATURE: "CPU temperature", CPU_POWER: "CPU power",
    HOST_MEMORY: "host memory",
}  # fmt: skip


@dataclass(frozen=True)
class Sensors:
    """Readings during a run.

    Attributes
    ----------
    table
        A column for each sensor, means over `PERIOD_S` by `time_s`; NaN where there was no reading.
    """

    table: pd.DataFrame

    @property
    def there(self) -> list[str]:
        """Sensors that gave readings."""
        return [str(name) for name in self.table.columns if self.table[name].notna().any()]

    @property
    def missing(self) -> list[str]:
        """Sensors that the machine does not have, or that gave nothing."""
        return [str(name) for name in self.table.columns if self.table[name].isna().all()]

    @property
    def varying(self) -> list[str]:
        """Sensors with which something can go together."""
        return [name for name in self.there if self.table[name].min() < self.table[name].max()]

    @property
    def constant(self) -> list[str]:
        """Sensors that always said the same."""
        return [name for name in self.there if name not in self.varying]


def sensors_of(gpu: pd.DataFrame, host: pd.DataFrame, end_s: float) -> Sensors:
    """Put all sensors of a run on one grid.

    Parameters
    ----------
    gpu, host
        Telemetry, with `time_s` since the program's start.
    end_s
        When the program ended.
    """
    read = {POWER: power_readings(gpu, end_s)} | {name: readings(gpu, name) for name in _OF_GPU}
    read |= _each(of_sockets(host, "host_cpu_utilization_percent"), CPU_UTILIZATION)
    read |= _each(of_sockets(host, "host_cpu_temperature_c"), CPU_TEMPERATURE)
    read |= _each([power_of_counter(energy) for energy in of_sockets(host, "host_cpu_energy_j")], CPU_POWER)
    read[HOST_MEMORY] = readings(host, HOST_MEMORY)
    table = pd.DataFrame({name: _means(values, end_s) for name, values in read.items()})
    return Sensors(table.rename_axis("time_s"))


def correlations(sensors: Sensors) -> pd.DataFrame:
    """Return Pearson's correlation of each two sensors that vary.

    Returns
    -------
    pandas.DataFrame
        `sensor`, `other`, `correlation` and `readings` that both share, each pair both ways. A pair with less than
        `LEAST_SECONDS` of them, or of which one does not vary in these, is left out.
    """
    names = sensors.varying
    matrix = sensors.table[names].corr(min_periods=LEAST_SECONDS).to_numpy(float)
    there = sensors.table[names].notna().to_numpy(int)
    shared = there.T @ there
    rows = [
        (names[row], names[column], value, int(shared[row, column]))
        for (row, column), value in np.ndenumerate(matrix)
        if np.isfinite(value)
    ]
    return pd.DataFrame(rows, columns=["sensor", "other", "correlation", "readings"])


def in_words(sensor: str) -> str:
    """Return `CPU 1 temperature` for `cpu1_temperature_c`; without a number where there is only one."""
    for kind in (CPU_UTILIZATION, CPU_TEMPERATURE, CPU_POWER):
        number = sensor.removeprefix("cpu").removesuffix(kind.removeprefix("cpu"))
        if number.isdecimal():
            return _WORDS[kind].replace("CPU", f"CPU {number}")
    return _WORDS[sensor]


def _each(sockets: list[pd.Series[float]], name: str) -> dict[str, pd.Series[float]]:
    """Return the readings of sockets by name: `cpu_…` if there is one or none, else `cpu0_…`, `cpu1_…`."""
    if not sockets:
        return {name: pd.Series(np.zeros(0), index=pd.Index(np.zeros(0)))}
    several = len(sockets) > 1
    return {
        name.replace("cpu", f"cpu{number}", 1) if several else name: values for number, values in enumerate(sockets)
    }


def _means(values: pd.Series[float], end_s: float) -> pd.Series[float]:
    """Return means of the readings in each period from the program's start to its end, at the periods' middles."""
    periods = max(1, int(end_s // PERIOD_S))
    number = np.floor(values.index.to_numpy(float) / PERIOD_S).astype(int)
    within = (number >= 0) & (number < periods)
    means = pd.Series(values.to_numpy(float)[within]).groupby(number[within]).mean().reindex(range(periods))
    return means.set_axis((np.arange(periods) + 0.5) * PERIOD_S)
