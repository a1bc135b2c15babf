"""Setting clocks directly through NVML."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.control.methods import Advice, Method, ReleaseError
from clockwatt.gpu.interface import Gpu, GpuError, NoPermissionError, NotSupportedError
from clockwatt.gpu.registry import installed_gpus


class NvmlMethod(Method):
    """Sets clocks directly through NVML, as root or on a virtual GPU."""

    locks_by_hand = resets_by_hand = True

    def __init__(self, gpu: Gpu, control: ControlConfig) -> None:
        super().__init__(gpu, control)
        self._undo: list[tuple[str, Callable[[], None]]] = []

    @property
    def stays_set(self) -> bool:
        """See `Method`."""
        return True

    @classmethod
    def advice(cls) -> Advice:
        """See `Method`."""
        if not _any_gpu():
            return Advice(False, "needs a GPU")
        if os.geteuid() != 0:
            return Advice(False, "only root may set clocks", "use another method")
        return Advice(True, "works: you are root")

    def apply(self, point: OperatingPoint) -> None:
        """See `Method`."""
        gpu, uuid = self._gpu, self._gpu.identity.uuid
        try:
            if point.memory_clock_mhz is not None:
                gpu.lock_memory_clock(point.memory_clock_mhz)
                self._undo.append((f"nvidia-smi -i {uuid} --reset-memory-clocks", gpu.reset_memory_clock))
            if point.sm_clock_mhz is not None:
                gpu.lock_sm_clock(point.sm_clock_mhz)
                self._undo.append((f"nvidia-smi -i {uuid} --reset-gpu-clocks", gpu.reset_sm_clock))
            if point.power_limit_w is not None:
                before_w = gpu.power_limit_w()
                gpu.set_power_limit(point.power_limit_w)
                undo = (f"nvidia-smi -i {uuid} --power-limit={before_w:g}", lambda: gpu.set_power_limit(before_w))
                self._undo.append(undo)
        except NoPermissionError as error:
            raise NoPermissionError(
                f"{error} control.method nvml sets {point} itself, which only root may do: run as root on a machine "
                "of your own, choose another method (`clockwatt doctor` says which work here), or measure the GPU as "
                "it is (clocks_mhz, memory_clocks_mhz and power_limits_w: default)."
            ) from error

    def release(self) -> None:
        """See `Method`."""
        failures = []
        while self._undo:
            command, undo = self._undo.pop()
            try:
                undo()
            except GpuError as error:
                failures.append(f"{error} To be reset by an administrator: `{command}`")
        if failures:
            raise ReleaseError("THE GPU IS NOT AS IT WAS. " + " ".join(failures))

    def reset(self) -> str:
        """See `Method`."""
        self._gpu.reset_sm_clock()
        with contextlib.suppress(NotSupportedError):  # a card whose memory clock cannot be locked
            self._gpu.reset_memory_clock()
        self._gpu.set_power_limit(self._gpu.default_power_limit_w())
        return "clocks and power limit are the driver's again"


METHOD = NvmlMethod


def _any_gpu() -> bool:
    try:
        return bool(installed_gpus())
    except GpuError:
        return False
