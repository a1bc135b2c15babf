"""Whether a GPU runs at what was asked of it: NVML's success only means accepted."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.gpu.interface import Gpu, GpuError, throttle_reason_names

READINGS = 5
PERIOD_S = 0.05


class ClockMismatchError(GpuError):
    """A clock did not reach what was asked for."""


@dataclass(frozen=True)
class Verification:
    """Readings under load."""

    reached: bool
    sm_clocks_mhz: list[int]  # the last readings, oldest first
    memory_clocks_mhz: list[int]
    throttle_reasons: list[str]  # in any of these readings
    waited_s: float


@dataclass(frozen=True)
class _Reading:
    sm_clock_mhz: int
    memory_clock_mhz: int
    throttle_reasons: int


def verify(
    gpu: Gpu, point: OperatingPoint, control: ControlConfig, *, wait: Callable[[float], None], readings: int = READINGS
) -> Verification:
    """Wait until the clocks have been at their targets in several consecutive readings.

    The caller keeps the GPU under load meanwhile: idle, it shows other clocks. At the default point any clock will do.

    Parameters
    ----------
    gpu
        A GPU that was set to `point`.
    point
        What was asked of it.
    control
        Time-out, and whether a mismatch is an error.
    wait
        Lets so many seconds pass under load: `time.sleep`, or a virtual GPU's `advance`.
    readings
        How many consecutive readings must be on target.

    Returns
    -------
    Verification
        Also of a clock that was not reached, if `control.on_mismatch` is `flag` and the method is not `slurm`.

    Raises
    ------
    ClockMismatchError
        If a clock was not reached in `control.settle_timeout_s` and `control.on_mismatch` is `error`, or the method is
        `slurm`, which rounds clocks and may be ignored by the driver: its clocks count only if they are seen.
    """
    on_target = _target(gpu, point, exact=not _may_be_flagged(control))
    seen: deque[_Reading] = deque(maxlen=readings)
    rounds = 0
    reached = False
    while not reached and (rounds < readings or rounds * PERIOD_S < control.settle_timeout_s):
        wait(PERIOD_S)
        rounds += 1
        seen.append(_Reading(gpu.sm_clock_mhz(), gpu.memory_clock_mhz(), gpu.throttle_reasons()))
        reached = len(seen) == readings and all(map(on_target, seen))
    mask = 0
    for reading in seen:
        mask |= reading.throttle_reasons
    verification = Verification(
        reached=reached,
        sm_clocks_mhz=[reading.sm_clock_mhz for reading in seen],
        memory_clocks_mhz=[reading.memory_clock_mhz for reading in seen],
        throttle_reasons=throttle_reason_names(mask),
        waited_s=rounds * PERIOD_S,
    )
    if not reached and (control.on_mismatch == "error" or not _may_be_flagged(control)):
        raise ClockMismatchError(_complaint(gpu, point, verification, control))
    return verification


def _may_be_flagged(control: ControlConfig) -> bool:
    return control.method != "slurm"


def _target(gpu: Gpu, point: OperatingPoint, *, exact: bool) -> Callable[[_Reading], bool]:
    """Whether a reading is what was asked for: within a step of the SM clock, nearer than any other memory clock.

    Where it is to be `exact`, it is nearer than any other SM clock as well.
    """
    sm_mhz, memory_mhz = point.sm_clock_mhz, point.memory_clock_mhz
    sm_step = _step(sm_mhz, gpu.supported_sm_clocks_mhz(memory_mhz)) if sm_mhz is not None else 0
    sm_step = (sm_step - 1) // 2 if exact else sm_step
    memory_step = _step(memory_mhz, gpu.supported_memory_clocks_mhz()) // 2 if memory_mhz is not None else 0

    def on_target(reading: _Reading) -> bool:
        sm_is_right = sm_mhz is None or abs(reading.sm_clock_mhz - sm_mhz) <= sm_step
        memory_is_right = memory_mhz is None or abs(reading.memory_clock_mhz - memory_mhz) <= memory_step
        return sm_is_right and memory_is_right

    return on_target


def _step(mhz: int, supported: Sequence[int]) -> int:
    """Return the distance to the nearest other clock."""
    place = bisect.bisect_left(supported, mhz)
    others = [*supported[max(0, place - 1) : place], *supported[place + 1 : place + 2]]
    return min((abs(other - mhz) for other in others), default=0)


def _complaint(gpu: Gpu, point: OperatingPoint, seen: Verification, control: ControlConfig) -> str:
    low, high = min(seen.sm_clocks_mhz), max(seen.sm_clocks_mhz)
    reasons = ", ".join(seen.throttle_reasons) or "none"
    fix = "or let such rows be flagged (control.on_mismatch: flag)."
    if not _may_be_flagged(control):
        fix = "or use another control.method: Slurm sets application clocks, which new drivers ignore."
    return (
        f"{gpu.identity.name} ({gpu.identity.uuid}): {point} was set, but after {seen.waited_s:g} s "
        f"under load the SM clock is {low} to {high} MHz, the memory clock {seen.memory_clocks_mhz[-1]} MHz "
        f"(throttle reasons: {reasons}). Choose a clock that the power limit allows, raise control.settle_timeout_s, "
        f"{fix}"
    )
