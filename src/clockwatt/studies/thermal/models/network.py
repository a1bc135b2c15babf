"""A thermal RC network of one GPU: where its heat goes, in K/W and s, and what its temperature does under a load.

The network is in Foster's form. Each of its one or two modes is a resistance R and a capacity C in parallel, which heat
flows through one after the other: `τ dx/dt = R·P - x` with `τ = R·C`, and the temperature is ambient plus all x. The
power of neighbouring GPUs warms it by a mode of its own: `τ dx/dt = Σ Rⱼ·Pⱼ - x`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from clockwatt.studies.thermal.inputs import HOLD_S, PAST_LOADS_S, Ints, past_loads
from clockwatt.studies.thermal.traces import Array, Trace

WHOLE_DEGREES_K2 = 1 / 12
"""Variance of the error of rounding to whole degrees."""

_STAYS = tuple(float(past == HOLD_S) for past in PAST_LOADS_S)
_MODEL_ERROR_K2 = 0.01
_AMBIENT_K2 = 9.0
_STATE_K2 = 25.0
_GAINS_SETTLED = 1e-6


@dataclass(frozen=True)
class Mode:
    """A resistance and a capacity in parallel."""

    resistance_k_per_w: float
    time_constant_s: float

    @property
    def capacity_j_per_k(self) -> float:
        """Heat that warms it by 1 K."""
        return self.time_constant_s / self.resistance_k_per_w


@dataclass(frozen=True)
class Network:
    """Fitted constants.

    Attributes
    ----------
    ambient_c
        Temperature without any heat.
    modes
        The GPU's own, the quickest first.
    neighbours_k_per_w, neighbours_time_constant_s
        How much each neighbour, by UUID, warms it, and how slowly.
    rms_k
        Root mean square of the residuals of the fit.
    drift_k_per_root_s
        How far the states stray from the model: the random walk that the filter allows for.
    idle_w
        Power of the idle GPU; None if no record shows it.
    load_weights
        By horizon in steps: weight of the mean power over the last 1, 10, 60 and 300 s in the forecast of the load.
        They add up to 1, so that a steady load stays as it is.
    intervals
        95 % intervals of constants, by name; empty where there were too few runs.
    """

    ambient_c: float
    modes: tuple[Mode, ...]
    neighbours_k_per_w: dict[str, float] = field(default_factory=dict)
    neighbours_time_constant_s: float = 60.0
    rms_k: float = 0.0
    drift_k_per_root_s: float = 0.01
    idle_w: float | None = None
    load_weights: dict[int, tuple[float, ...]] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def resistance_k_per_w(self) -> float:
        """Thermal resistance from the chip to ambient."""
        return sum(mode.resistance_k_per_w for mode in self.modes)

    def constants(self) -> dict[str, float]:
        """Return all fitted constants by name, with units."""
        found = {"ambient_c": self.ambient_c, "resistance_k_per_w": self.resistance_k_per_w}
        for number, mode in enumerate(self.modes, 1):
            found[f"mode{number}_resistance_k_per_w"] = mode.resistance_k_per_w
            found[f"mode{number}_time_constant_s"] = mode.time_constant_s
            found[f"mode{number}_capacity_j_per_k"] = mode.capacity_j_per_k
        return found | {f"neighbour_k_per_w:{uuid}": value for uuid, value in self.neighbours_k_per_w.items()}

    def settles_at_c(self, power_w: float, neighbours_w: dict[str, float]) -> float:
        """Return the temperature that a load ends at."""
        return self.ambient_c + self.resistance_k_per_w * power_w + self.neighbours_heat_k(neighbours_w)

    def neighbours_heat_k(self, neighbours_w: dict[str, float]) -> float:
        """Return the steady-state rise from the neighbours' power."""
        return sum(value * neighbours_w.get(uuid, 0.0) for uuid, value in self.neighbours_k_per_w.items())

    # on a trace
    def states(self, trace: Trace) -> Array:
        """Return the Kalman filter's states from temperature and power up to each time; shape (steps, modes + 2).

        In K: own modes, the neighbours' heat, and last, in °C, ambient. Readings in whole degrees are averaged, and
        ambient may drift.
        """
        kept, added, power, heat = self._inputs(trace)
        count = len(self.modes)
        state = np.array([mode.resistance_k_per_w * power[0] for mode in self.modes] + [heat[0], self.ambient_c])
        gains = _gains(kept, self.drift_k_per_root_s * math.sqrt(trace.step_s), len(trace))
        states = np.empty((len(trace), count + 2))
        for step, reading in enumerate(trace.temperature_c):
            if step:
                state = kept * state
                state[:count] += added * power[step]
                state[count] += (1 - kept[count]) * heat[step]
            state = state + gains[min(step, len(gains) - 1)] * (reading - state.sum())
            states[step] = state
        return states

    def forecast(self, trace: Trace, origins: Ints, steps: tuple[int, ...], *, known: bool) -> Array:
        """Return the temperatures in °C so many steps after each origin; shape (origins, horizons).

        Parameters
        ----------
        trace, origins, steps
            Trace to forecast, origins of the forecasts, and length in steps.
        known
            Whether the load to come is that of the trace (NaN beyond its end); else it is expected from that before the
            origin, see `load_weights`.
        """
        states = self.states(trace)[origins]
        kept, _, power, heat = self._inputs(trace)
        resistances = np.array([mode.resistance_k_per_w for mode in self.modes])
        count = len(resistances)
        past, past_heat = past_loads(power, trace.step_s)[origins], past_loads(heat, trace.step_s)[origins]
        found = np.empty((len(origins), len(steps)))
        for column, ahead in enumerate(steps):
            decay = kept**ahead
            later = (states * decay).sum(axis=1)
            if known:
                later += taken_up(power, origins, ahead, kept[:count]) @ resistances
                later += taken_up(heat, origins, ahead, kept[count : count + 1])[:, 0]
            else:
                weights = self._weights(ahead)
                later += ((1 - decay[:count]) * resistances).sum() * (past @ weights)
                later += (1 - decay[count]) * (past_heat @ weights)
            found[:, column] = later
        return found

    def expected_load_w(self, trace: Trace, ahead: int) -> float:
        """Return the mean power in W that `forecast` expects over so many steps after the end of a trace."""
        power = self._inputs(trace)[2]
        return float(past_loads(power, trace.step_s)[-1] @ self._weights(ahead))

    def path(self, state: Array, power_w: float, neighbours_w: dict[str, float], times_s: Array) -> Array:
        """Return the temperature in °C at some times from now on under a constant load; shape of `times_s`."""
        taus = np.array([mode.time_constant_s for mode in self.modes] + [self.neighbours_time_constant_s])
        ends = [mode.resistance_k_per_w * power_w for mode in self.modes] + [self.neighbours_heat_k(neighbours_w)]
        decay = np.exp(-np.asarray(times_s, float)[..., None] / taus)
        return np.asarray(state[-1] + (decay * state[:-1] + (1 - decay) * np.array(ends)).sum(axis=-1))

    def _weights(self, ahead: int) -> Array:
        """Return the weights of past loads for the fitted horizon nearest to this one."""
        if not self.load_weights:
            return np.array(_STAYS)
        nearest = min(self.load_weights, key=lambda steps: abs(math.log(steps / ahead)))
        return np.array(self.load_weights[nearest])

    # stored
    def to_json(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, described: dict[str, Any]) -> Network:
        """Read the output of `to_json`.

        Raises
        ------
        ValueError, KeyError, TypeError
            If it is something else, or a constant is not possible.
        """
        network = TypeAdapter(cls).validate_python(described)
        modes = network.modes
        taus = [mode.time_constant_s for mode in modes] + [network.neighbours_time_constant_s]
        if any(len(weights) != len(PAST_LOADS_S) for weights in network.load_weights.values()):
            raise ValueError("weights of past loads are of another number")
        if not modes or not all(tau > 0 and math.isfinite(tau) for tau in taus):
            raise ValueError("a time constant is not above 0")
        if not all(mode.resistance_k_per_w > 0 for mode in modes) or not math.isfinite(network.resistance_k_per_w):
            raise ValueError("a thermal resistance is not above 0")
        return network

    def _inputs(self, trace: Trace) -> tuple[Array, Array, Array, Array]:
        """Share of each state that a step keeps, what a watt adds to own modes, own power, the neighbours' heat."""
        taus = [mode.time_constant_s for mode in self.modes] + [self.neighbours_time_constant_s, math.inf]
        kept = np.exp(-trace.step_s / np.array(taus))
        added = (1 - kept[: len(self.modes)]) * np.array([mode.resistance_k_per_w for mode in self.modes])
        weights = np.array([self.neighbours_k_per_w.get(uuid, 0.0) for uuid in trace.neighbours])
        heat = trace.neighbours_w @ weights if len(weights) else np.zeros(len(trace))
        return kept, added, trace.power_w, np.asarray(heat, float)


def taken_up(watts: Array, origins: Ints, ahead: int, kept: Array) -> Array:
    """Return the power taken up by modes with these decay shares after each origin; shape (origins, modes)."""
    found = np.full((len(origins), len(kept)), np.nan)
    inside = origins + ahead < len(watts)
    for column, share in enumerate(kept):
        weights = (1 - share) * share ** np.arange(ahead)  # the last step counts most
        # a window is the ahead values that begin one step after its origin
        sums = np.convolve(watts, weights, mode="valid") if len(watts) >= ahead else np.zeros(0)
        found[inside, column] = sums[origins[inside] + 1]
    return found


def _gains(kept: Array, drift_k: float, steps: int) -> NDArray[np.float64]:
    """Return the Kalman gains of the first steps, until they no longer change; shape (at most steps, states)."""
    size = len(kept)
    covariance = np.diag([_STATE_K2] * (size - 2) + [1.0, _AMBIENT_K2])
    moved = np.diag(kept)
    noise = drift_k**2 * np.eye(size)
    seen = np.ones(size)
    gains: list[Array] = []
    for step in range(steps):
        if step:
            covariance = moved @ covariance @ moved + noise
        spread = covariance @ seen
        gain = spread / (seen @ spread + WHOLE_DEGREES_K2 + _MODEL_ERROR_K2)
        covariance = covariance - np.outer(gain, spread)
        gains.append(gain)
        if step > 60 and np.abs(gain - gains[-2]).max() < _GAINS_SETTLED:
            break
    return np.array(gains)
