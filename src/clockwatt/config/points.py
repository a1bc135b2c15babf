"""Operating points of a GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

from clockwatt.errors import ConfigError

DEFAULT_POINT = "default"
POINT_PATTERN = r"default|sm\d+(-mem\d+)?(-pl\d+)?|mem\d+(-pl\d+)?|pl\d+"


@dataclass(frozen=True, order=True)
class OperatingPoint:
    """What is asked of a GPU; None leaves a setting as it is."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_limit_w: int | None = None

    def __str__(self) -> str:
        parts = [
            f"{prefix}{value}"
            for prefix, value in (("sm", self.sm_clock_mhz), ("mem", self.memory_clock_mhz), ("pl", self.power_limit_w))
            if value is not None
        ]
        return "-".join(parts) or DEFAULT_POINT

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a point as it stands in paths: `default`, `sm1440`, `sm1440-mem5001`, `pl150`.

        Raises
        ------
        ConfigError
            If `text` is no operating point.
        """
        if not isinstance(text, str) or not re.fullmatch(POINT_PATTERN, text):
            raise ConfigError(
                f"{text!r} is no operating point: write default, sm1440, sm1440-mem5001, pl150 or sm1440-mem5001-pl150."
            )
        settings = dict(re.findall(r"(sm|mem|pl)(\d+)", text))
        return cls(*(int(settings[prefix]) if prefix in settings else None for prefix in ("sm", "mem", "pl")))

    @property
    def order(self) -> tuple[int, int, int]:
        """To sort operating points by their settings, the default first."""
        return self.sm_clock_mhz or 0, self.memory_clock_mhz or 0, self.power_limit_w or 0

    @property
    def is_default(self) -> bool:
        """Whether nothing is asked of the GPU."""
        return self == OperatingPoint()

    @property
    def settings(self) -> dict[str, int]:
        """Return the requested settings by name."""
        return {name: value for name in POINT_SETTINGS if (value := getattr(self, name)) is not None}


POINT_SETTINGS = tuple(field.name for field in fields(OperatingPoint))


def reference_point(points: Iterable[str]) -> str | None:
    """Return the point that others are compared with: `default`, else the highest clock; None without any point."""

    def order(point: str) -> tuple[float, float, float]:
        asked = OperatingPoint.parse(point)
        return asked.sm_clock_mhz or 0, asked.memory_clock_mhz or math.inf, asked.power_limit_w or math.inf

    known = list(points)
    return DEFAULT_POINT if DEFAULT_POINT in known else max(known, key=order, default=None)
