"""Interface of the methods that set operating points. Each applies and releases a whole point."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.gpu.interface import Gpu, GpuError


class ControlError(GpuError):
    """An operating point cannot be set in the configured way."""


class ReleaseError(GpuError):
    """A GPU was left as it should not be; the message says how to put it right."""


@dataclass(frozen=True)
class Advice:
    """Whether a method can be used here."""

    works: bool
    reason: str
    fix: str = ""


class Method(abc.ABC):
    """One way of setting operating points.

    Parameters
    ----------
    gpu
        The GPU to set.
    control
        The campaign's settings of the method.

    Attributes
    ----------
    locks_by_hand, resets_by_hand
        Whether `clockwatt clocks lock` and `reset` can do it so.
    """

    locks_by_hand: ClassVar[bool] = False
    resets_by_hand: ClassVar[bool] = False

    def __init__(self, gpu: Gpu, control: ControlConfig) -> None:
        self._gpu = gpu
        self._control = control

    @property
    def stays_set(self) -> bool:
        """Whether what is applied stays when this process ends without a release."""
        return False

    @classmethod
    @abc.abstractmethod
    def advice(cls) -> Advice:
        """Return whether it can be used here, and if not, why. Nothing is set to find out."""

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

    def reset(self) -> str:
        """Give clocks and power limit back by hand, whoever set them; where `resets_by_hand`.

        Returns
        -------
        str
            What was done.

        Raises
        ------
        GpuError
            If the user may not set it, or this way resets nothing by hand.
        """
        raise ControlError(f"control.method {self._control.method} resets nothing by hand.")
