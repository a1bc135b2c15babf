"""GPUs of which sensors are read and nothing is set."""

from __future__ import annotations

from typing import Any

from clockwatt.gpu.interface import Gpu, NotSupportedError


def _lacks(gpu: Gpu, *_asked: Any, **_options: Any) -> Any:
    raise NotSupportedError(f"{gpu.identity.name}: has no such sensor or setting that clockwatt supports.")


class SensorsOnlyGpu(Gpu):
    """A GPU without any sensor or setting; a vendor overrides the sensors that it has."""

    power_average_w = power_instant_w = energy_counter_j = power_samples = power_limit_w = _lacks
    sm_clock_mhz = memory_clock_mhz = throttle_reasons = performance_state = _lacks
    temperature_c = utilization = memory_used_bytes = pcie_tx_kib_s = pcie_rx_kib_s = _lacks
    supported_memory_clocks_mhz = supported_sm_clocks_mhz = power_limit_range_w = default_power_limit_w = _lacks
    persistence_mode = lock_sm_clock = reset_sm_clock = lock_memory_clock = reset_memory_clock = set_power_limit = (
        _lacks
    )

    def close(self) -> None:
        """See `Gpu`."""
