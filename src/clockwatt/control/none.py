"""Setting nothing."""

from __future__ import annotations

from clockwatt.config import OperatingPoint
from clockwatt.control.methods import Advice, ControlError, Method


class NoMethod(Method):
    """Sets nothing: only the default operating point can be had."""

    @classmethod
    def advice(cls) -> Advice:
        """See `Method`."""
        return Advice(True, "works; measures only at default")

    def apply(self, point: OperatingPoint) -> None:
        """See `Method`."""
        if not point.is_default:
            raise ControlError(
                f"control.method none sets nothing, not {point}. Choose another method, or point default."
            )

    def release(self) -> None:
        """Do nothing, since nothing was set."""


METHOD = NoMethod
