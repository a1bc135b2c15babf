"""Interface of a GPU: identity, sensors, settings. NVIDIA and virtual GPUs implement all of it."""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from clockwatt.errors import ClockwattError


class GpuError(ClockwattError):
    """A GPU or its driver refused; the message says which and why."""


class GpuNotFoundError(GpuError):
    """No such GPU here, or none that this job may use."""


class NotSupportedError(GpuError):
    """The GPU or its driver has no such sensor or setting."""


class NoPermissionError(GpuError):
    """The setting needs privileges that this user does not have."""


class GpuLostError(GpuError):
    """The GPU fell off the bus or its driver stopped answering."""


@dataclass(frozen=True)
class GpuIdentity:
    """Identity of a card, and its driver."""

    name: str  # NVML name, or `virtual NAME`
    uuid: str
    driver_version: str
    cuda_version: str | None  # newest that the driver supports
    virtual: bool


FOREIGN_CLOCK_US = 60_000_000
"""A driver time stamp further than this from the host's clock is not on it."""

SAME_SAMPLE_US = 200
"""The driver maps its time stamps anew for each drain; the same sample came back up to 11 µs later on an H200."""


@dataclass(frozen=True)
class PowerSample:
    """One sample of the driver's power ring."""

    time_us: int  # the driver's time stamp, µs since the epoch (a virtual GPU: on its own clock)
    power_w: float


class Ring(enum.StrEnum):
    """Buffers of a driver in which it keeps samples of a sensor, beside that of power; named by what they hold."""

    GPU_UTILIZATION = "gpu_utilization_sample_percent"
    MEMORY_UTILIZATION = "memory_utilization_sample_percent"
    ENCODER_UTILIZATION = "encoder_utilization_sample_percent"
    DECODER_UTILIZATION = "decoder_utilization_sample_percent"
    SM_CLOCK = "sm_clock_sample_mhz"
    MEMORY_CLOCK = "memory_clock_sample_mhz"


@dataclass(frozen=True)
class Sample:
    """One sample of a ring."""

    time_us: int  # as of `PowerSample`
    value: float  # in the unit of the ring's name


@dataclass(frozen=True)
class Utilization:
    """Share of the last sensor period in which anything ran, and in which memory was read or written."""

    gpu_percent: int
    memory_percent: int | None  # None: unknown


GPU_IDLE = 0x0000000000000001
SW_POWER_CAP = 0x0000000000000004

THROTTLE_REASONS: dict[int, str] = {
    GPU_IDLE: "gpu_idle",
    0x0000000000000002: "applications_clocks_setting",
    SW_POWER_CAP: "sw_power_cap",
    0x0000000000000008: "hw_slowdown",
    0x0000000000000010: "sync_boost",
    0x0000000000000020: "sw_thermal_slowdown",
    0x0000000000000040: "hw_thermal_slowdown",
    0x0000000000000080: "hw_power_brake_slowdown",
    0x0000000000000100: "display_clock_setting",
}
"""Bits of NVML's clocks-event (throttle) reasons mask."""


def throttle_reason_names(mask: int) -> list[str]:
    """Return the names of the bits set in a mask; an unknown bit is named by its value."""
    return [
        THROTTLE_REASONS.get(1 << bit, f"reason_0x{1 << bit:x}") for bit in range(mask.bit_length()) if mask >> bit & 1
    ]


class Gpu(abc.ABC):
    """One GPU. A reading raises `NotSupportedError` where the sensor is missing, `GpuLostError` if the GPU is gone."""

    vendor: ClassVar[str]
    """Name of its `Vendor`, which selects the bench."""

    @property
    @abc.abstractmethod
    def identity(self) -> GpuIdentity:
        """Which card this is."""

    @abc.abstractmethod
    def index(self) -> int:
        """Return its number as the vendor's tools count, here and now: in a job it may differ from that outside."""

    @property
    def installed(self) -> InstalledGpu:
        """Return the data by which another process finds it."""
        return InstalledGpu(self.vendor, self.identity.uuid, self.identity.name)

    # sensors
    @abc.abstractmethod
    def power_average_w(self) -> float:
        """Return the board power averaged by the driver over its window, in W."""

    @abc.abstractmethod
    def power_instant_w(self) -> float:
        """Return the board power at the sensor's last update, in W."""

    @abc.abstractmethod
    def energy_counter_j(self) -> float:
        """Return the energy since the driver was loaded, in J."""

    @abc.abstractmethod
    def power_samples(self, since_us: int) -> Sequence[PowerSample]:
        """Return samples of the driver's ring with a time stamp after `since_us`, oldest first."""

    def samples(self, ring: Ring, since_us: int) -> Sequence[Sample]:
        """Return samples of another ring with a time stamp after `since_us`, oldest first; few GPUs have all rings."""
        raise NotSupportedError(f"{self.identity.name}: has no ring buffer of {ring} (samples since {since_us} µs).")

    @abc.abstractmethod
    def sm_clock_mhz(self) -> int:
        """Return the current SM clock in MHz."""

    @abc.abstractmethod
    def memory_clock_mhz(self) -> int:
        """Return the current memory clock in MHz."""

    @abc.abstractmethod
    def throttle_reasons(self) -> int:
        """Return the bit mask of reasons why the clock is not higher; see `throttle_reason_names`."""

    @abc.abstractmethod
    def temperature_c(self) -> float:
        """Return the core temperature in °C."""

    @abc.abstractmethod
    def performance_state(self) -> int:
        """Return the performance state, from 0 (highest) to 15."""

    @abc.abstractmethod
    def utilization(self) -> Utilization:
        """Return the utilisation over the last sensor period."""

    @abc.abstractmethod
    def memory_used_bytes(self) -> int:
        """Return the device memory in use by all processes, in bytes."""

    @abc.abstractmethod
    def pcie_tx_kib_s(self) -> int:
        """Return the PCIe traffic from the GPU in KiB/s (one reading takes about 20 ms)."""

    @abc.abstractmethod
    def pcie_rx_kib_s(self) -> int:
        """Return the PCIe traffic to the GPU in KiB/s (one reading takes about 20 ms)."""

    def memory_temperature_c(self) -> float:
        """Return the temperature of the memory in °C, where it has a sensor."""
        raise NotSupportedError(f"{self.identity.name}: has no sensor of the memory's temperature.")

    def fan_speed_percent(self) -> int:
        """Return the fan speed in percent of its highest; few server cards have a fan."""
        raise NotSupportedError(f"{self.identity.name}: has no fan.")

    def computing_processes(self) -> list[int]:
        """Return the numbers of the processes that hold a context on it, as far as this one may see them."""
        raise NotSupportedError(f"{self.identity.name}: does not report which processes compute on it.")

    @abc.abstractmethod
    def power_limit_w(self) -> float:
        """Return the enforced power limit in W."""

    # what could be set
    @abc.abstractmethod
    def supported_memory_clocks_mhz(self) -> list[int]:
        """Return the memory clocks that can be locked, ascending, in MHz."""

    @abc.abstractmethod
    def supported_sm_clocks_mhz(self, memory_clock_mhz: int | None = None) -> list[int]:
        """Return SM clocks that can be locked at a memory clock (None: the highest), ascending, in MHz."""

    @abc.abstractmethod
    def power_limit_range_w(self) -> tuple[float, float]:
        """Return the lowest and highest power limit in W."""

    @abc.abstractmethod
    def default_power_limit_w(self) -> float:
        """Return the power limit that the card has when nobody sets one, in W."""

    @abc.abstractmethod
    def persistence_mode(self) -> bool:
        """Return whether the driver stays loaded without a client (without it, locks are lost with the last client)."""

    # settings: each raises NoPermissionError without the privilege
    @abc.abstractmethod
    def lock_sm_clock(self, mhz: int) -> None:
        """Lock the SM clock at exactly `mhz`."""

    @abc.abstractmethod
    def reset_sm_clock(self) -> None:
        """Give the SM clock back to the driver."""

    @abc.abstractmethod
    def lock_memory_clock(self, mhz: int) -> None:
        """Lock the memory clock at exactly `mhz`."""

    @abc.abstractmethod
    def reset_memory_clock(self) -> None:
        """Give the memory clock back to the driver."""

    @abc.abstractmethod
    def set_power_limit(self, watts: float) -> None:
        """Set the power limit in W."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the driver."""


@dataclass(frozen=True)
class InstalledGpu:
    """A GPU that a vendor's driver lists and this process may open."""

    vendor: str
    uuid: str
    name: str
    serial: str = field(default="", compare=False)


class Vendor(abc.ABC):
    """Find and open the GPUs of one vendor. `gpu.registry` calls all vendors."""

    name: ClassVar[str]

    @abc.abstractmethod
    def claims(self, device: str) -> bool:
        """Return whether `device`, as a config writes it, is one of this vendor's."""

    @abc.abstractmethod
    def installed(self) -> list[InstalledGpu]:
        """Return GPUs of this machine that this process may open; raises `GpuNotFoundError` if no driver answers."""

    @abc.abstractmethod
    def lost(self) -> int:
        """Return how many GPUs fell off the bus."""

    @abc.abstractmethod
    def visible(self, environ: Mapping[str, str]) -> list[InstalledGpu]:
        """GPUs that a process with these environment variables may compute on, in the order in which it counts them."""

    @abc.abstractmethod
    def open(self, uuid: str) -> Gpu:
        """Open one of `installed`."""

    @abc.abstractmethod
    def open_configured(self, device: str, *, seed: int, key: str, environ: Mapping[str, str]) -> Gpu:
        """Open what a config asks for, in the process that computes on it; see `registry.open_gpu`."""

    @abc.abstractmethod
    def open_model(self, device: str, *, seed: int) -> Gpu | None:
        """Open any GPU of the model `device`, to see what it supports; None if there is none here."""
