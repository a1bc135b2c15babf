"""Ways of setting an operating point. Each applies and releases all of it: callers need not know which it is."""

from __future__ import annotations

import abc
from collections.abc import Callable

from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.gpu.interface import Gpu, GpuError, NoPermissionError


class ControlError(GpuError):
    """An operating point cannot be set in the configured way."""


class ReleaseError(GpuError):
    """A GPU was left as it should not be; the message says how to put it right."""


class Method(abc.ABC):
    """One way of setting operating points.

    Parameters
    ----------
    gpu
        The GPU to set.
    control
        The campaign's settings of the method.
    """

    def __init__(self, gpu: Gpu, control: ControlConfig) -> None:
        self._gpu = gpu
        self._control = control

    @property
    def stays_set(self) -> bool:
        """Whether what is applied stays when this process ends without a release."""
        return False

    @abc.abstractmethod
    def apply(self, point: OperatingPoint) -> None:
        """Ask for an operating point that the GPU supports.

        Raises
        ------
        GpuError
            If it is refused. What was set before that is taken back by `release`.
        """

    @abc.abstractmethod
    def release(self) -> None:
        """Take back whatever `apply` set, as far as that is possible; a second call does nothing.

        Raises
        ------
        ReleaseError
            Naming what is still set and how to reset it.
        """


class NvmlMethod(Method):
    """Sets clocks directly through NVML, as root or on a virtual GPU."""

    def __init__(self, gpu: Gpu, control: ControlConfig) -> None:
        super().__init__(gpu, control)
        self._undo: list[tuple[str, Callable[[], None]]] = []

    @property
    def stays_set(self) -> bool:
        """See `Method`."""
        return True

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


class NoMethod(Method):
    """Sets nothing: only the default operating point can be had."""

    def apply(self, point: OperatingPoint) -> None:
        """See `Method`."""
        if not point.is_default:
            raise ControlError(
                f"control.method none sets nothing, so {point} cannot be had: choose another method, or point default."
            )

    def release(self) -> None:
        """Nothing was set."""
