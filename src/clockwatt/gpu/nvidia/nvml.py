"""NVIDIA GPUs through NVML (nvidia-ml-py), always by UUID: an index means another card to another process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pynvml

from clockwatt.gpu.clocks import check_clock, check_power_limit
from clockwatt.gpu.interface import (
    Gpu,
    GpuError,
    GpuIdentity,
    NotSupportedError,
    PowerSample,
    Ring,
    Sample,
    Utilization,
)
from clockwatt.gpu.nvidia.nvml_errors import typed_errors

_VALUE_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}

_RINGS = {
    Ring.GPU_UTILIZATION: pynvml.NVML_GPU_UTILIZATION_SAMPLES,
    Ring.MEMORY_UTILIZATION: pynvml.NVML_MEMORY_UTILIZATION_SAMPLES,
    Ring.ENCODER_UTILIZATION: pynvml.NVML_ENC_UTILIZATION_SAMPLES,
    Ring.DECODER_UTILIZATION: pynvml.NVML_DEC_UTILIZATION_SAMPLES,
    Ring.SM_CLOCK: pynvml.NVML_PROCESSOR_CLK_SAMPLES,
    Ring.MEMORY_CLOCK: pynvml.NVML_MEMORY_CLK_SAMPLES,
}


class NvmlGpu(Gpu):
    """An NVIDIA GPU.

    Parameters
    ----------
    uuid
        As `nvidia-smi -L` shows it. Use `gpu.registry` to find it.

    Raises
    ------
    GpuNotFoundError
        If no driver answers, or there is no such GPU.
    NotSupportedError
        If the card is split into MIG instances.
    """

    vendor = "nvidia"

    def __init__(self, uuid: str) -> None:
        with typed_errors("NVML"):
            pynvml.nvmlInit()
        self._open = True
        try:
            with typed_errors(uuid):
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                self._identity = GpuIdentity(
                    name=pynvml.nvmlDeviceGetName(self._handle),
                    uuid=uuid,
                    driver_version=pynvml.nvmlSystemGetDriverVersion(),
                    cuda_version=_cuda_version(),
                    virtual=False,
                )
                self._refuse_mig()
                self._average_is_a_field = self._has_field(pynvml.NVML_FI_DEV_POWER_AVERAGE)
        except GpuError:
            self.close()
            raise

    @property
    def identity(self) -> GpuIdentity:
        """See `Gpu`."""
        return self._identity

    def index(self) -> int:
        """See `Gpu`; as `nvidia-smi` counts."""
        with typed_errors(self._identity.uuid):
            return int(pynvml.nvmlDeviceGetIndex(self._handle))

    # sensors
    def power_average_w(self) -> float:
        """See `Gpu`; over 1 s on Ampere and newer, but on GA100 and older cards the sensor's own short window."""
        with self._on("average power"):
            if self._average_is_a_field:
                return self._field(pynvml.NVML_FI_DEV_POWER_AVERAGE) / 1000
            return int(pynvml.nvmlDeviceGetPowerUsage(self._handle)) / 1000

    def power_instant_w(self) -> float:
        """See `Gpu`."""
        with self._on("instantaneous power"):
            return self._field(pynvml.NVML_FI_DEV_POWER_INSTANT) / 1000

    def energy_counter_j(self) -> float:
        """See `Gpu`; Volta and newer."""
        with self._on("energy counter"):
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1000

    def power_samples(self, since_us: int) -> Sequence[PowerSample]:
        """See `Gpu`."""
        with self._on("power samples"):
            return [
                PowerSample(time_us, value / 1000)
                for time_us, value in self._samples(pynvml.NVML_TOTAL_POWER_SAMPLES, since_us)
            ]

    def samples(self, ring: Ring, since_us: int) -> Sequence[Sample]:
        """See `Gpu`."""
        with self._on(f"ring of {ring}"):
            return [Sample(time_us, value) for time_us, value in self._samples(_RINGS[ring], since_us)]

    def sm_clock_mhz(self) -> int:
        """See `Gpu`."""
        with self._on("SM clock"):
            return int(pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM))

    def memory_clock_mhz(self) -> int:
        """See `Gpu`."""
        with self._on("memory clock"):
            return int(pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_MEM))

    def throttle_reasons(self) -> int:
        """See `Gpu`."""
        with self._on("throttle reasons"):
            try:
                return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
            except pynvml.NVMLError_FunctionNotFound:  # the name before driver 535
                return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def temperature_c(self) -> float:
        """See `Gpu`."""
        with self._on("temperature"):
            return float(pynvml.nvmlDeviceGetTemperature(self._handle, pynvml.NVML_TEMPERATURE_GPU))

    def performance_state(self) -> int:
        """See `Gpu`."""
        with self._on("performance state"):
            return int(pynvml.nvmlDeviceGetPerformanceState(self._handle))

    def utilization(self) -> Utilization:
        """See `Gpu`."""
        with self._on("utilisation"):
            rates = pynvml.nvmlDeviceGetUtilizationRates(self._handle)
        return Utilization(int(rates.gpu), int(rates.memory))

    def memory_used_bytes(self) -> int:
        """See `Gpu`."""
        with self._on("memory in use"):
            return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def pcie_tx_kib_s(self) -> int:
        """See `Gpu`."""
        with self._on("PCIe traffic"):
            return int(pynvml.nvmlDeviceGetPcieThroughput(self._handle, pynvml.NVML_PCIE_UTIL_TX_BYTES))

    def pcie_rx_kib_s(self) -> int:
        """See `Gpu`."""
        with self._on("PCIe traffic"):
            return int(pynvml.nvmlDeviceGetPcieThroughput(self._handle, pynvml.NVML_PCIE_UTIL_RX_BYTES))

    def memory_temperature_c(self) -> float:
        """See `Gpu`."""
        with self._on("temperature of the memory"):
            return self._field(pynvml.NVML_FI_DEV_MEMORY_TEMP)

    def fan_speed_percent(self) -> int:
        """See `Gpu`."""
        with self._on("fan speed"):
            return int(pynvml.nvmlDeviceGetFanSpeed(self._handle))

    def computing_processes(self) -> list[int]:
        """See `Gpu`."""
        with self._on("processes that compute"):
            return [int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)]

    def power_limit_w(self) -> float:
        """See `Gpu`."""
        with self._on("power limit"):
            return int(pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle)) / 1000

    # what can be set
    def supported_memory_clocks_mhz(self) -> list[int]:
        """See `Gpu`."""
        with self._on("supported memory clocks"):
            return sorted(pynvml.nvmlDeviceGetSupportedMemoryClocks(self._handle))

    def supported_sm_clocks_mhz(self, memory_clock_mhz: int | None = None) -> list[int]:
        """See `Gpu`."""
        memory_clocks = self.supported_memory_clocks_mhz()
        if memory_clock_mhz is None:
            memory_clock_mhz = memory_clocks[-1] if memory_clocks else 0
        check_clock(self._identity.name, "memory", memory_clock_mhz, memory_clocks)
        with self._on(f"supported SM clocks at memory clock {memory_clock_mhz} MHz"):
            return sorted(pynvml.nvmlDeviceGetSupportedGraphicsClocks(self._handle, memory_clock_mhz))

    def power_limit_range_w(self) -> tuple[float, float]:
        """See `Gpu`."""
        with self._on("range of the power limit"):
            lowest, highest = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(self._handle)
        return lowest / 1000, highest / 1000

    def default_power_limit_w(self) -> float:
        """See `Gpu`."""
        with self._on("default power limit"):
            return int(pynvml.nvmlDeviceGetPowerManagementDefaultLimit(self._handle)) / 1000

    def persistence_mode(self) -> bool:
        """See `Gpu`."""
        with self._on("persistence mode"):
            return bool(pynvml.nvmlDeviceGetPersistenceMode(self._handle) == pynvml.NVML_FEATURE_ENABLED)

    def lock_sm_clock(self, mhz: int) -> None:
        """See `Gpu`."""
        check_clock(self._identity.name, "SM", mhz, self.supported_sm_clocks_mhz())
        with self._on(f"locking the SM clock at {mhz} MHz"):
            pynvml.nvmlDeviceSetGpuLockedClocks(self._handle, mhz, mhz)

    def reset_sm_clock(self) -> None:
        """See `Gpu`."""
        with self._on("resetting the SM clock"):
            pynvml.nvmlDeviceResetGpuLockedClocks(self._handle)

    def lock_memory_clock(self, mhz: int) -> None:
        """See `Gpu`."""
        check_clock(self._identity.name, "memory", mhz, self.supported_memory_clocks_mhz())
        with self._on(f"locking the memory clock at {mhz} MHz"):
            pynvml.nvmlDeviceSetMemoryLockedClocks(self._handle, mhz, mhz)

    def reset_memory_clock(self) -> None:
        """See `Gpu`."""
        with self._on("resetting the memory clock"):
            pynvml.nvmlDeviceResetMemoryLockedClocks(self._handle)

    def set_power_limit(self, watts: float) -> None:
        """See `Gpu`."""
        check_power_limit(self._identity.name, watts, self.power_limit_range_w())
        with self._on(f"setting the power limit to {watts:g} W"):
            pynvml.nvmlDeviceSetPowerManagementLimit(self._handle, round(watts * 1000))

    def close(self) -> None:
        """See `Gpu`."""
        if self._open:
            self._open = False
            with typed_errors("NVML"):
                pynvml.nvmlShutdown()

    def _on(self, what: str) -> contextlib.AbstractContextManager[None]:
        return typed_errors(f"{self._identity.name} ({self._identity.uuid}): {what}")

    def _samples(self, kind: int, since_us: int) -> list[tuple[int, float]]:
        """Time stamps in µs and values of a ring, oldest first; entries that were never filled are left out."""
        try:
            value_type, samples = pynvml.nvmlDeviceGetSamples(self._handle, kind, since_us)
        except pynvml.NVMLError_NotFound:  # nothing newer
            return []
        member = _VALUE_MEMBERS[value_type]
        return sorted(
            (int(sample.timeStamp), float(getattr(sample.sampleValue, member)))
            for sample in samples
            if sample.timeStamp > since_us
        )

    def _field(self, field_id: int) -> float:
        (field,) = pynvml.nvmlDeviceGetFieldValues(self._handle, [field_id])
        if field.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(field.nvmlReturn)
        return float(getattr(field.value, _VALUE_MEMBERS[field.valueType]))

    def _has_field(self, field_id: int) -> bool:
        try:
            self._field(field_id)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            return False
        return True

    def _refuse_mig(self) -> None:
        try:
            current, _ = pynvml.nvmlDeviceGetMigMode(self._handle)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            return
        if current == pynvml.NVML_DEVICE_MIG_ENABLE:
            raise NotSupportedError(f"{self._identity.name} ({self._identity.uuid}): {MIG_REFUSED}")


MIG_REFUSED = (
    "a MIG instance cannot be measured, since clocks and power readings belong to the whole card, "
    "with whatever runs on its other instances. Ask for a whole GPU, or have MIG switched off (`nvidia-smi -mig 0`)."
)


def _cuda_version() -> str | None:
    """Return the newest CUDA that the driver supports; NVML gives 13020 for 13.2."""
    try:
        version: Any = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except pynvml.NVMLError:
        return None
    return f"{version // 1000}.{version % 1000 // 10}"
