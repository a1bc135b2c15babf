"""Read power, energy, SM clock, throttle reasons and temperature of a GPU until standard input ends.

python benchmarks/nvml_log.py GPU_UUID FILE.csv        # `power_readings.py` starts it; imports nothing slow
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pynvml

COLUMNS = ["monotonic_s", "energy_mj", "instant_w", "average_w", "sm_clock_mhz", "reasons", "temperature_c"]
_EVERY_S = 0.005


def main(uuid: str, output: Path) -> None:
    """Write a line for each reading, with `COLUMNS`."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    fields = [pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_POWER_AVERAGE]
    name = "nvmlDeviceGetCurrentClocksEventReasons"  # its name since 12.2
    reasons = getattr(pynvml, name, None) or pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    with output.open("w", encoding="utf-8", buffering=1) as file:
        while not stopped.wait(_EVERY_S):
            instant, average = pynvml.nvmlDeviceGetFieldValues(handle, fields)
            row = [
                time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
                instant.value.uiVal / 1e3, average.value.uiVal / 1e3,
                pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), reasons(handle),
                pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            ]  # fmt: skip
            file.write(",".join(map(str, row)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
