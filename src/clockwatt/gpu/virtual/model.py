"""Model of a virtual card: time by a roofline, power by voltage and frequency, heat by one resistance.

None of this is a measurement. The numbers are round and plausible, so that a laptop can run the whole workflow. Those
of the A30 and the RTX 2080 Ti are fitted to networks that a thesis measured (`specs.VirtualFit`).
The shape follows the literature: dynamic power goes with V²f, leakage rises with temperature (Leng et al., GPUWattch,
ISCA 2013), time is bounded by arithmetic and by memory traffic (Williams et al., Roofline, CACM 2009).
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from clockwatt.gpu.specs import GpuSpec

AMBIENT_C = 30.0
THERMAL_TIME_CONSTANT_S = 12.0
TEMPERATURE_RISE_AT_DEFAULT_LIMIT_K = 45.0
LEAKAGE_PER_K = 0.0008
"""Leakage as a share of the default power limit, per K above ambient."""

FLAT_VOLTAGE_BELOW = 0.45
LOWEST_VOLTAGE = 0.7
"""Voltage relative to that at boost clock: flat up to a share of the boost clock, linear above."""

EFFICIENCY_JITTER = 0.03
ROOFLINE_NORM = 3.0
"""Exponent p of the p-norm that combines arithmetic and memory time."""

BANDWIDTH_FULL_ABOVE = 0.4
"""Share of the boost clock from which on the SMs can saturate the memory."""

FLOOR_FIXED_S = 1.5e-6
FLOOR_AT_BOOST_S = 1.0e-6
"""A kernel's launch and drain: a part in memory time, a part in SM cycles."""

IDLE_FIXED, IDLE_MEMORY, IDLE_CLOCK = 0.8, 0.2, 0.3
"""Idle power, relative to the specified one: fixed, with the memory clock, and with V²f of an SM clock held up."""

NEIGHBOUR_SLOWDOWN = 0.001
"""Longer times for each busy card of the same node."""


@dataclass(frozen=True)
class Work:
    """Work of one call on the device."""

    flops: int
    bytes_moved: int
    dtype: str
    tf32: bool
    matrix: bool  # runs on the matrix units: matrix products, convolutions, attention
    backward: bool = field(default=False, repr=False)  # forward and backward pass


@dataclass(frozen=True)
class Mixture:
    """Work of different kinds in turn, as a network's pass: each with its number of calls."""

    parts: tuple[tuple[Work, int], ...]


Load = Work | Mixture


@dataclass(frozen=True)
class Activity:
    """Activity of the device in one call at an operating point."""

    time_s: float
    arithmetic: float  # share of the time in which the arithmetic units are busy
    memory: float  # share of the peak bandwidth that is used


class CardModel:
    """One card of a model: computes the time and power of work.

    Parameters
    ----------
    spec
        Public specifications.
    seed
        The seed of the campaign; another seed gives other operation efficiencies and other cards.
    card
        Which card of this model; cards differ by about 1 % in time and 3 % in power.
    """

    def __init__(self, spec: GpuSpec, *, seed: int, card: int) -> None:
        self.spec = spec
        self._seed = f"{spec.name}/{seed}"
        self._at_highest_clocks = functools.lru_cache(maxsize=1024)(self._bounds)
        self._highest_clock_mhz = functools.lru_cache(maxsize=1024)(self._clock_within_limit)  # asked at each change
        self.supported_sm_clocks_mhz: Sequence[int] = spec.supported_sm_clocks_mhz
        self.time_factor = 1 + 0.01 * self._normal("time", card)
        self.power_factor = 1 + 0.03 * self._normal("power", card)
        self.leakage_w_per_k = LEAKAGE_PER_K * spec.power_w.default
        self.thermal_resistance_k_per_w = TEMPERATURE_RISE_AT_DEFAULT_LIMIT_K / spec.power_w.default
        self._dynamic_w = (spec.power_w.default - spec.power_w.idle) * self.power_factor

    def activity(self, work: Load, sm_clock_mhz: float, memory_clock_mhz: float) -> Activity:
        """Return the activity of one call (mixture: one pass) at a pair of clocks; time never rises with a clock."""
        if isinstance(work, Mixture):
            timed = [(count, self.activity(part, sm_clock_mhz, memory_clock_mhz)) for part, count in work.parts]
            time_s = sum(count * part.time_s for count, part in timed)
            arithmetic = sum(count * part.time_s * part.arithmetic for count, part in timed) / time_s
            memory_use = sum(count * part.time_s * part.memory for count, part in timed) / time_s
            return Activity(time_s, arithmetic, memory_use)
        sm = sm_clock_mhz / self.spec.boost_clock_mhz
        memory = memory_clock_mhz / self.spec.memory_clocks_mhz[-1]
        arithmetic_s, memory_s, jitter = self._at_highest_clocks(work)
        arithmetic_s /= sm
        reached_s = memory_s / (memory * min(1.0, sm / BANDWIDTH_FULL_ABOVE))
        floor_s = FLOOR_FIXED_S + FLOOR_AT_BOOST_S / sm
        bound_s = (arithmetic_s**ROOFLINE_NORM + reached_s**ROOFLINE_NORM) ** (1 / ROOFLINE_NORM)
        time_s = (floor_s + bound_s) * jitter * self.time_factor
        return Activity(time_s, min(1.0, arithmetic_s / time_s), min(1.0, memory_s / time_s))

    def power_w(self, work: Load | None, busy: float, sm_clock_mhz: float, memory_clock_mhz: float) -> float:
        """Return the board power at ambient temperature in W; leakage comes on top (see `leakage_w_per_k`).

        Parameters
        ----------
        work
            What runs back to back; None for an idle device with its context alive.
        busy
            Share of the time in which the device is busy.
        sm_clock_mhz, memory_clock_mhz
            What the clocks are.
        """
        idle_w = self._idle_w(sm_clock_mhz, memory_clock_mhz)
        if work is None:
            return idle_w
        if isinstance(work, Mixture):
            timed = [
                (count * self.activity(part, sm_clock_mhz, memory_clock_mhz).time_s, part) for part, count in work.parts
            ]
            energy_j = sum(time_s * self.power_w(part, busy, sm_clock_mhz, memory_clock_mhz) for time_s, part in timed)
            return energy_j / sum(time_s for time_s, _ in timed)
        activity = self.activity(work, sm_clock_mhz, memory_clock_mhz)
        fit = self.spec.virtual
        of_matrix = fit.matrix_units_power if self._on_matrix_units(work) else fit.matrix_power
        arithmetic_power = of_matrix if work.matrix else fit.vector_power
        on_sm = self._v2f(sm_clock_mhz) * (fit.issue_power + arithmetic_power * activity.arithmetic)
        dynamic_w = self._dynamic_w * (fit.backward_power if work.backward else 1.0)
        return idle_w + busy * dynamic_w * (on_sm + fit.memory_power * activity.memory)

    def clock_within_limit(
        self, work: Load | None, asked_sm_clock_mhz: int, memory_clock_mhz: int, limit_w: float, *, busy: float = 1.0
    ) -> int:
        """Highest supported SM clock up to the asked one at which so busy work stays within a power limit, in MHz.

        Decided for the temperature that the limit itself would give, so the answer depends on no history and the power
        never exceeds the limit; the lowest clock is given where none is low enough.
        """
        if work is None:
            return asked_sm_clock_mhz
        return self._highest_clock_mhz(work, asked_sm_clock_mhz, memory_clock_mhz, limit_w, busy)

    def _clock_within_limit(
        self, work: Load, asked_sm_clock_mhz: int, memory_clock_mhz: int, limit_w: float, busy: float
    ) -> int:
        allowed_w = limit_w * (1 - self.leakage_w_per_k * self.thermal_resistance_k_per_w)
        candidates = self.supported_sm_clocks_mhz[: bisect.bisect(self.supported_sm_clocks_mhz, asked_sm_clock_mhz)]
        first_above = bisect.bisect_right(
            candidates, allowed_w, key=lambda mhz: self.power_w(work, busy, mhz, memory_clock_mhz)
        )
        return candidates[max(0, first_above - 1)]

    def _idle_w(self, sm_clock_mhz: float, memory_clock_mhz: float) -> float:
        memory = memory_clock_mhz / self.spec.memory_clocks_mhz[-1]
        relative = IDLE_FIXED + IDLE_MEMORY * memory + IDLE_CLOCK * self._v2f(sm_clock_mhz)
        return self.spec.power_w.idle * self.power_factor * relative

    def _v2f(self, sm_clock_mhz: float) -> float:
        """Return V²f relative to its value at boost clock."""
        share = sm_clock_mhz / self.spec.boost_clock_mhz
        slope = (1 - LOWEST_VOLTAGE) / (1 - FLAT_VOLTAGE_BELOW)
        voltage = LOWEST_VOLTAGE + slope * max(0.0, share - FLAT_VOLTAGE_BELOW)
        return voltage**2 * share

    def _bounds(self, work: Work) -> tuple[float, float, float]:
        """Seconds of arithmetic and of memory traffic at the highest clocks, and the operation's own factor of time."""
        fit, on_matrix_units = self.spec.virtual, self._on_matrix_units(work)
        peak = self.spec.peak_flops(work.dtype, tf32=work.tf32, matrix=work.matrix)
        arithmetic = fit.matrix_units if on_matrix_units else fit.ordinary_units
        memory = fit.memory_of_matrix if work.matrix else fit.memory
        if work.matrix and work.bytes_moved:
            half = fit.half_intensity_matrix_units if on_matrix_units else fit.half_intensity
            arithmetic /= 1 + half * work.bytes_moved / max(1, work.flops)
        if work.backward:
            arithmetic, memory = arithmetic * fit.backward_arithmetic, memory * fit.backward_memory
        kind = (self._seed, work.dtype, work.tf32, work.matrix)
        arithmetic = min(1.0, arithmetic * _landscape(work, fit.spread, *kind, "arithmetic"))
        memory = min(1.0, memory * _landscape(work, fit.spread, *kind, "memory"))
        jitter = 1 + EFFICIENCY_JITTER * (2 * hashed(self._seed, work) - 1)
        return work.flops / (peak * arithmetic), work.bytes_moved / (self.spec.bandwidth_bytes_s * memory), jitter

    def _on_matrix_units(self, work: Work) -> bool:
        return self.spec.peak_flops(work.dtype, tf32=work.tf32, matrix=work.matrix) > self.spec.fp32_flops

    def _normal(self, *parts: object) -> float:
        """Return a standard normal number, cut off at two deviations, that only the arguments and the seed decide."""
        uniform = [hashed(self._seed, i, *parts) for i in range(12)]
        return max(-2.0, min(2.0, sum(uniform) - 6))


def contended(busy: Sequence[float], neighbours: int) -> float:
    """Return the factor of a program's time beside others.

    Programs on one card take turns: together they keep it busy for the sum of their shares, which is 1 at most.

    Parameters
    ----------
    busy
        Share of the time in which each program on the card, itself included, keeps the device busy when alone.
    neighbours
        Number of other cards of the node at work.
    """
    return max(1.0, sum(busy)) * (1 + NEIGHBOUR_SLOWDOWN * neighbours)


def hashed(*parts: object) -> float:
    """Return a number in [0, 1) that only the arguments decide, on every machine."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def _landscape(work: Work, spread: float, *kind: object) -> float:
    """Return a smooth random function of the logarithms of FLOPs and bytes around 1: what a predictor can learn."""
    x, y = math.log2(work.flops + 1), math.log2(work.bytes_moved + 1)
    waves = 0.0
    for i in range(3):
        along_x, along_y, phase = (hashed(*kind, i, axis) for axis in "xyp")
        waves += math.sin((along_x - 0.5) * x + (along_y - 0.5) * y + 2 * math.pi * phase)
    return math.exp(spread * waves / math.sqrt(1.5))
