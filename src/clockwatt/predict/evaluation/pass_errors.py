"""How the errors of its operations add up in a pass of a network.

Errors of different operations are neither independent, so that they would average out, nor one and the same. With `a`
the root of the sum of squares of each operation's share times its own error, and `b` their sum, the variance of the
pass is (1 − r)·a² + r·b² with one correlation `r`, which networks left out tell. Beside it stand what composing adds,
what gaps between short kernels add, and what cards and hosts differ by. How far a new network may be off for its scale
is told by networks left out, too.
All errors here are standard deviations of logarithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.predict.evaluation.intervals import NORMAL_90, Interval
from clockwatt.predict.models.cost_predictor import TARGETS
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_HOST_CORRECTED,
)
from clockwatt.schema.records import INFERENCE, TRAINING

Floats = NDArray[np.float64]

DEVICE, HOST, DYNAMIC = TIME_DEVICE_CORRECTED, TIME_HOST_CORRECTED, ENERGY_DYNAMIC_CORRECTED
ADDED = (DEVICE, HOST, DYNAMIC)
"""Costs that a pass is the sum of."""
ERROR_OF = {DEVICE: "error_time_device", HOST: "error_time_host", DYNAMIC: "error_energy_dynamic"}
"""Columns of the relative error that is due of each, with one standard deviation, where it is predicted."""

LOOKED_UP_ERROR = 0.02
"""Of an operation that was measured: another card, another hour."""
CARD_ENERGY = 0.04
"""Cards of one model: the same passes drew 6 % more on one of two H200."""
CARD_TIME = 0.02
"""Likewise: the same passes took 1.5 % more device time on one of two H200 in the median of 14, 7 % at most."""
GAP_S = {INFERENCE: 1e-7, TRAINING: 5e-7}
"""What the gaps in a call's place of a pass take more or less than between repetitions of it, which is all that was
measured; in training a call is several kernels. Passes of kernels of 2 to 3 µs came out 2 to 16 % too long though all
of their operations had been measured, training passes of few rows up to 9 % too short (`benchmarks/README.md`)."""

_LEAST_FACTOR = 0.1  # of an interval whose lower end is zero or nearly
ASSUMED_CORRELATION = 0.25
ASSUMED_COMPOSITION = 0.03
_SUM_MISSES = 0.1
"""Sums of back-to-back times missed passes by -22 to +15 %: less where the host is behind, more at the power limit."""
NORMAL = Interval(float(np.exp(-NORMAL_90)), float(np.exp(NORMAL_90)), "operations")


@dataclass(frozen=True)
class Added:
    """What the errors of its operations come to in a pass, for one cost.

    Attributes
    ----------
    independent, together
        Error of the sum if those of operations are independent, and if they are one; `a` and `b` above.
    gaps
        Error of the sum for what lies between operations.
    """

    independent: float
    together: float
    gaps: float = 0.0

    @classmethod
    def of(cls, costs: Floats, errors: Floats) -> Added:
        """From each operation's cost in all of its calls, and its error; shape (operations,)."""
        total = float(costs.sum())
        if not total > 0:
            return cls(0.0, 0.0)
        parts = costs * errors / total
        return cls(float(np.sqrt(np.sum(parts**2))), float(parts.sum()))

    def error(self, correlation: float) -> float:
        """Error of the sum."""
        squares = (1 - correlation) * self.independent**2 + correlation * self.together**2
        return float(np.sqrt(squares + self.gaps**2))


def added_errors(
    mean: Floats, factors: Floats, calls: Floats, *, gap_s: float = 0.0, energy: bool = True
) -> dict[str, Added]:
    """What the errors of operations come to in a pass, for each of `ADDED` whose errors are known.

    Parameters
    ----------
    mean, factors
        Costs of the operations and the factors to the ends of their 90 % intervals, as `costs.interface.Costs` has
        them; shape (operations, targets) and (operations, targets, 2).
    calls
        How often each is called; shape (operations,).
    gap_s
        Of `GAP_S`, where the operations are a network's pass.
    energy
        Whether every operation has an energy.
    """
    found = {}
    for target in ADDED:
        column = TARGETS.index(target)
        cost = mean[:, column] * calls
        lower, upper = np.log(np.maximum(factors[:, column], _LEAST_FACTOR)).T
        error = (upper - lower) / (2 * NORMAL_90)
        matters = cost > 0
        if np.isfinite(error[matters]).all() and (target != DYNAMIC or energy):
            found[target] = Added.of(cost[matters], error[matters])
            if target == DEVICE and matters.any():
                found[target] = replace(found[target], gaps=gap_s * float(calls[matters].sum() / cost[matters].sum()))
    return found


@dataclass(frozen=True)
class PassErrors:
    """How errors of operations carry over to passes of a GPU.

    Attributes
    ----------
    correlation
        Between the errors of two operations of a network.
    composition_time, composition_energy
        Error of networks composed from measured operations.
    time, energy
        Intervals for a pass whose error is 1: as networks left out tell, and no narrower than errors of operations.
    """

    correlation: float = ASSUMED_CORRELATION
    composition_time: float = ASSUMED_COMPOSITION
    composition_energy: float = ASSUMED_COMPOSITION
    time: Interval = NORMAL
    energy: Interval = NORMAL

    def ends(self, expected: Any, added: Mapping[str, Added]) -> dict[str, tuple[float, float]]:
        """Lower and upper ends of `time_s`, `device_s`, `host_s`, `energy_j` and `power_w` of a pass on a known host.

        Parameters
        ----------
        expected
            `pipeline.Composition`.
        added
            Of each of `ADDED`.
        """
        device, host = self._errors(added)
        found = {
            "device_s": self.time.around(expected.device_s, device),
            "host_s": self.time.around(expected.host_s, host),
        }
        longer = expected.time_s / max(expected.device_s, expected.host_s, 1e-12)  # at the power limit
        low, high = (
            longer * max(device_end, host_end)
            for device_end, host_end in zip(found["device_s"], found["host_s"], strict=True)
        )
        found = {"time_s": (low, high)} | found
        if expected.energy_j is not None and expected.energy_j > 0 and DYNAMIC in added:
            energy = self._energy_error(expected, added, device, host)
            found["energy_j"] = self.energy.around(expected.energy_j, energy)
            found["power_w"] = self.energy.around(expected.power_w, energy)
        return found

    def device_half_width(self, added: Mapping[str, Added]) -> float:
        """Half the 90 % interval of the device time of a pass, relative to it."""
        lower, upper = self.time.factors(self._errors({HOST: Added(0.0, 0.0), **added})[0])
        return float(upper - lower) / 2

    def time_error(self, expected: Any, added: Mapping[str, Added]) -> float:
        """Error of the time of a pass: that of what paces it."""
        device, host = self._errors(added)
        return device if expected.device_s >= expected.host_s else host

    def energy_error(self, expected: Any, added: Mapping[str, Added]) -> float:
        """Error of the energy of a pass."""
        return self._energy_error(expected, added, *self._errors(added))

    def _errors(self, added: Mapping[str, Added]) -> tuple[float, float]:
        of_operations = added[DEVICE].error(self.correlation)
        device = np.sqrt(of_operations**2 + self.composition_time**2 + CARD_TIME**2)
        host = np.hypot(added[HOST].error(self.correlation), self.composition_time)
        return float(device), float(host)

    def _energy_error(self, expected: Any, added: Mapping[str, Added], device: float, host: float) -> float:
        idle = 1 - min(max(expected.energy_dynamic_j / expected.energy_j, 0.0), 1.0)
        paced = device if expected.device_s >= expected.host_s else host
        parts = (
            (1 - idle) * added[DYNAMIC].error(self.correlation), idle * paced, self.composition_energy, CARD_ENERGY
        )  # fmt: skip
        return float(np.sqrt(np.sum(np.square(parts))))


def ends_of_sum(
    expected: Any, mean: Floats, factors: Floats, calls: Floats, *, is_network: bool
) -> dict[str, tuple[float, float]]:
    """Lower and upper ends of `time_s`, `energy_j` and `power_w` of a sum of back-to-back times and their energies.

    Parameters
    ----------
    expected
        `pipeline.Composition`.
    mean, factors, calls
        As in `added_errors`.
    is_network
        Whether it is a network's pass, which such a sum misses, and no list of operations.
    """
    lower, upper = np.moveaxis(np.log(np.maximum(factors, _LEAST_FACTOR)), 2, 0)
    errors = (upper - lower) / (2 * NORMAL_90)
    time, power = (TARGETS.index(name) for name in (BACK_TO_BACK, POWER_CORRECTED))
    seconds = mean[:, time] * calls
    joules = seconds * mean[:, power]

    def added(costs: Floats, target: int) -> float:
        matters = costs > 0
        return Added.of(costs[matters], errors[matters, target]).error(ASSUMED_CORRELATION)

    of_time = float(np.hypot(added(seconds, time), _SUM_MISSES if is_network else 0.0))
    of_power = float(np.hypot(added(joules, power), CARD_ENERGY))
    found = {}
    for name, error in (("time_s", of_time), ("energy_j", np.hypot(of_time, of_power)), ("power_w", of_power)):
        value = getattr(expected, name)
        if value is not None and np.isfinite(error):
            found[name] = NORMAL.around(value, float(error))
    return found
