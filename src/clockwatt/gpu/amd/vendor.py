"""AMD GPUs through amdsmi, the Python interface that comes with ROCm; never run on a GPU by the project."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

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

_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""HIP reads the last where the second is missing."""
_UNKNOWN = {"N/A", 0xFFFF, 0xFFFFFFFF}
_WORDS = ("amd ", "instinct", "radeon")


@functools.cache
def _amdsmi() -> Any:
    """Return the library; None where it, or the driver's part of it, is not installed."""
    try:
        return importlib.import_module("amdsmi")
    except (ImportError, OSError, KeyError):  # the last two without libamd_smi.so
        return None


class AmdGpu(SensorsOnlyGpu):
    """An AMD GPU.

    Parameters
    ----------
    library
        amdsmi.
    handle
        Of the GPU.
    number
        Its place among the handles.
    """

    vendor = "amd"

    def __init__(self, library: Any, handle: Any, number: int) -> None:
        self._library, self._handle, self._number = library, handle, number
        about = self._ask("identity", "amdsmi_get_gpu_asic_info")
        driver = self._ask("driver", "amdsmi_get_gpu_driver_info")
        self._identity = GpuIdentity(
            name=about["market_name"], uuid=self._ask("UUID", "amdsmi_get_gpu_device_uuid"),
            driver_version=driver["driver_version"], cuda_version=None, virtual=False,
        )  # fmt: skip

    @property
    def identity(self) -> GpuIdentity:
        """See `Gpu`."""
        return self._identity

    def index(self) -> int:
        """See `Gpu`; as `amd-smi list` counts."""
        return self._number

    def power_instant_w(self) -> float:
        """See `Gpu`; MI300 and newer."""
        return self._number_of("power", "amdsmi_get_power_info", "current_socket_power")

    def power_average_w(self) -> float:
        """See `Gpu`; MI200 and older, and Radeon."""
        return self._number_of("average power", "amdsmi_get_power_info", "average_socket_power")

    def energy_counter_j(self) -> float:
        """See `Gpu`."""
        microjoules = self._number_of("energy counter", "amdsmi_get_energy_count", "counter_resolution")
        return 1e-6 * microjoules * self._number_of("energy counter", "amdsmi_get_energy_count", "energy_accumulator")

    def sm_clock_mhz(self) -> int:
        """See `Gpu`."""
        return int(self._number_of("clock", "amdsmi_get_clock_info", "clk", self._library.AmdSmiClkType.GFX))

    def memory_clock_mhz(self) -> int:
        """See `Gpu`."""
        return int(self._number_of("memory clock", "amdsmi_get_clock_info", "clk", self._library.AmdSmiClkType.MEM))

    def temperature_c(self) -> float:
        """See `Gpu`; of the hottest place, as data center cards have no other."""
        kind, metric = self._library.AmdSmiTemperatureType.HOTSPOT, self._library.AmdSmiTemperatureMetric.CURRENT
        return float(self._ask("temperature", "amdsmi_get_temp_metric", kind, metric))

    def utilization(self) -> Utilization:
        """See `Gpu`."""
        activity = self._ask("utilisation", "amdsmi_get_gpu_activity")
        if activity["gfx_activity"] in _UNKNOWN:
            raise NotSupportedError(f"{self._identity.name}: utilisation: not known to its driver.")
        memory = activity["umc_activity"]
        return Utilization(int(activity["gfx_activity"]), None if memory in _UNKNOWN else int(memory))

    def memory_used_bytes(self) -> int:
        """See `Gpu`."""
        return int(self._number_of("memory in use", "amdsmi_get_gpu_vram_usage", "vram_used")) * 2**20

    def power_limit_w(self) -> float:
        """See `Gpu`."""
        return 1e-6 * self._number_of("power limit", "amdsmi_get_power_cap_info", "power_cap")

    def _number_of(self, what: str, function: str, key: str, *asked: Any) -> float:
        value = self._ask(what, function, *asked)[key]
        if value in _UNKNOWN:
            raise NotSupportedError(f"{self._identity.name}: {what}: not known to its driver.")
        return float(value)

    def _ask(self, what: str, function: str, *asked: Any) -> Any:
        with _typed_errors(self._library, f"AMD GPU {self._number}: {what}"):
            return getattr(self._library, function)(self._handle, *asked)


@contextlib.contextmanager
def _typed_errors(library: Any, subject: str) -> Iterator[None]:
    try:
        yield
    except library.AmdSmiLibraryException as error:
        status = error.get_error_info(detailed=False)
        kind = NotSupportedError if "NOT_SUPPORTED" in status or "NOT_YET_IMPLEMENTED" in status else GpuError
        raise kind(f"{subject}: amdsmi says {status}.") from error


class AmdVendor(Vendor):
    """The GPUs that amdsmi lists. `clockwatt record` reads them; a campaign cannot measure them.

    Parameters
    ----------
    library
        Returns amdsmi, or None where it is not installed.
    """

    name = AmdGpu.vendor

    def __init__(self, library: Callable[[], Any] = _amdsmi) -> None:
        self._library = library

    def claims(self, device: str) -> bool:
        """See `Vendor.claims`."""
        return any(word in device.casefold() for word in _WORDS)

    def installed(self) -> list[InstalledGpu]:
        """See `Vendor.installed`; without a driver there is none."""
        return [gpu.installed for gpu in self._gpus()]

    def lost(self) -> int:
        """See `Vendor.lost`; amdsmi does not tell."""
        return 0

    def visible(self, environ: Mapping[str, str]) -> list[InstalledGpu]:
        """See `Vendor.visible`; by indices, in amdsmi's order."""
        found = self.installed()
        for variable in _VARIABLES[: 2 if _VARIABLES[1] in environ else 3] if found else ():
            if (chosen := environ.get(variable)) is None:
                continue
            numbers = [part.strip() for part in chosen.split(",") if part.strip()]
            if not all(number.isdecimal() and int(number) < len(found) for number in numbers):
                raise GpuNotFoundError(
                    f"{variable}={chosen}: names no AMD GPU here. Use indices as `amd-smi list` has."
                )
            found = [found[int(number)] for number in numbers]
        return found

    def open(self, uuid: str) -> Gpu:
        """See `Vendor.open`."""
        for gpu in self._gpus():
            if gpu.identity.uuid == uuid:
                return gpu
        raise GpuNotFoundError(f"{uuid}: no such AMD GPU. `amd-smi list` shows those that are here.")

    def open_configured(self, device: str, *, seed: int, key: str, environ: Mapping[str, str]) -> Gpu:
        """See `Vendor.open_configured`; refused, since HIP does not take amdsmi's UUIDs."""
        raise NotSupportedError(f"{key}: {device!r}: a campaign cannot measure AMD GPUs. Use `clockwatt record`.")

    def open_model(self, device: str, *, seed: int) -> Gpu | None:
        """See `Vendor.open_model`."""
        return next((gpu for gpu in self._gpus() if gpu.identity.name.casefold() == device.casefold()), None)

    def _gpus(self) -> list[AmdGpu]:
        if (library := self._library()) is None:
            return []
        try:
            with _typed_errors(library, "AMD GPUs"):
                library.amdsmi_init()
                handles = library.amdsmi_get_processor_handles()
        except GpuError:  # no driver answers
            return []
        return [AmdGpu(library, handle, number) for number, handle in enumerate(handles)]
