"""Refusing what a GPU cannot be set to, with the nearest that it can."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from clockwatt.gpu.interface import NotSupportedError


def check_clock(gpu_name: str, clock: str, mhz: int, supported: Sequence[int]) -> None:
    """Check that a clock can be locked.

    Parameters
    ----------
    gpu_name
        Named in the error.
    clock
        `SM` or `memory`.
    mhz
        What is asked for.
    supported
        What can be locked, ascending, in MHz.

    Raises
    ------
    NotSupportedError
        Naming the nearest supported clocks.
    """
    if mhz in supported:
        return
    if not supported:
        raise NotSupportedError(
            f"{gpu_name}: the {clock} clock cannot be locked: its driver lists no supported clocks."
        )
    place = bisect.bisect(supported, mhz)
    nearest = " and ".join(str(value) for value in supported[max(0, place - 1) : place + 1])
    raise NotSupportedError(
        f"{gpu_name}: {clock} clock {mhz} MHz is not supported. Nearest: {nearest} MHz; "
        f"it has {len(supported)} from {supported[0]} to {supported[-1]} MHz, "
        "all shown by `nvidia-smi -q -d SUPPORTED_CLOCKS`."
    )


def check_power_limit(gpu_name: str, watts: float, limits_w: tuple[float, float]) -> None:
    """Check that a power limit in W lies within the card's range.

    Raises
    ------
    NotSupportedError
        Naming the range.
    """
    lowest, highest = limits_w
    if not lowest <= watts <= highest:
        raise NotSupportedError(f"{gpu_name}: power limit {watts:g} W is outside {lowest:g} to {highest:g} W.")
