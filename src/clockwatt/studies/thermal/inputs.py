"""Inputs of forecasts: sensors, the known part of the coming load, and features of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from clockwatt.studies.thermal.traces import Array, Trace

Inputs = Literal["temperature", "power", "sensors"]
Load = Literal["history", "known"]

INPUTS: dict[str, str] = {
    "temperature": "the GPU's own temperature",
    "power": "the GPU's own temperature and power",
    "sensors": "all sensors: also clocks, use, memory, fan, neighbouring GPUs, host",
}
LOADS: dict[str, str] = {
    "history": "history only; a steady load stays as it is",
    "known": "history, and the power to come (of the GPU, and of its neighbours)",
}
HORIZONS_S = (1.0, 10.0, 30.0, 60.0, 300.0)
HOLD_S = 10.0
"""The load of now, in words, is the mean power over this long."""

PAST_LOADS_S = (1.0, HOLD_S, 60.0, 300.0)
"""Inputs from history that predict the load to come: mean power over these times."""

TIME_CONSTANTS_S = (5.0, 15.0, 60.0, 200.0)
"""Time constants, in s, of the low-pass filters of power that are features."""

_PAST_S = (10.0, 60.0)
Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Task:
    """What is to be forecast, from what.

    Attributes
    ----------
    inputs
        Which sensors: see `INPUTS`.
    load
        What is known of the load to come: see `LOADS`.
    horizons_s
        How far ahead.
    step_s
        The step of the grid; a horizon is a whole number of steps.
    """

    inputs: Inputs = "sensors"
    load: Load = "history"
    horizons_s: tuple[float, ...] = HORIZONS_S
    step_s: float = 1.0

    @property
    def steps(self) -> tuple[int, ...]:
        """Horizons in steps of the grid."""
        return tuple(max(1, round(horizon / self.step_s)) for horizon in self.horizons_s)

    def seen(self, trace: Trace) -> Trace:
        """Return the trace as far as its neighbours are among the inputs."""
        return trace if self.inputs == "sensors" else trace.alone()


def decayed(values: Array, time_constant_s: float, step_s: float, *, start: Array | float | None = None) -> Array:
    """Return the values through a first-order low-pass: what a thermal mode of this time constant keeps of them.

    Parameters
    ----------
    values
        Means over the step that ends at each time; shape (steps,) or (steps, columns).
    time_constant_s, step_s
        Time constant of the filter and step of the grid, in s.
    start
        What it holds at the first time; the first value if None.

    Returns
    -------
    Array of the shape of `values`.
    """
    if len(values) == 0:
        return np.asarray(values, float)
    kept = float(np.exp(-step_s / time_constant_s))
    before = np.asarray(values[0] if start is None else np.broadcast_to(start, values[0].shape), float)
    rest = np.asarray(values[1:], float)
    followed, _ = lfilter([1 - kept], [1, -kept], rest, axis=0, zi=kept * before[None, ...])
    return np.concatenate([before[None, ...], followed])


def mean_over(values: Array, window: int) -> Array:
    """Return the mean over the last `window` values at each time, fewer at the beginning; shape as `values`."""
    sums = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    counts = (ends - starts).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray((sums[ends] - sums[starts]) / counts, float)


def past_loads(power_w: Array, step_s: float) -> Array:
    """Return the mean power over the last 1, 10, 60 and 300 s at each time; shape (steps, 4)."""
    return np.stack([mean_over(power_w, max(1, round(past / step_s))) for past in PAST_LOADS_S], axis=1)


def history_features(trace: Trace, inputs: Inputs) -> dict[str, Array]:
    """Return features of the past at each time, by name; shape (steps,) each, NaN where a sensor was not read."""
    step_s, power = trace.step_s, trace.power_w
    now = trace.temperature_c
    features = {"temperature_c": now}
    features |= {f"temperature_rise_{past:g}s_k": now - decayed(now, past, step_s) for past in _PAST_S}
    if inputs == "temperature":
        return features
    past = past_loads(power, step_s)
    features |= {f"power_mean_{window:g}s_w": past[:, column] for column, window in enumerate(PAST_LOADS_S)}
    features |= {f"power_{tau:g}s_w": decayed(power, tau, step_s) for tau in TIME_CONSTANTS_S}
    if inputs == "power":
        return features
    window = max(1, round(HOLD_S / step_s))
    features |= {name: _mean_of_known(values, window) for name, values in trace.sensors.items()}
    if trace.neighbours:
        together = trace.neighbours_w.sum(axis=1)
        features["neighbours_power_held_w"] = mean_over(together, window)
        features["neighbours_power_60s_w"] = decayed(together, 60.0, step_s)
        features["neighbours_temperature_c"] = trace.neighbours_c.mean(axis=1)
    return features


def coming_features(trace: Trace, inputs: Inputs, origins: Ints, steps: int) -> dict[str, Array]:
    """Return features of the known load until `steps` later, by name; shape (origins,) each.

    Each is what a thermal mode of some time constant takes up between now and then, in W.
    """
    sources = {"power": trace.power_w}
    if inputs == "sensors" and trace.neighbours:
        sources["neighbours_power"] = trace.neighbours_w.sum(axis=1)
    later = origins + steps
    found = {}
    for name, watts in sources.items():
        for tau in TIME_CONSTANTS_S:
            followed = decayed(watts, tau, trace.step_s)
            taken = followed[later] - np.exp(-steps * trace.step_s / tau) * followed[origins]
            found[f"coming_{name}_{tau:g}s_w"] = taken
        total = np.cumsum(watts)
        found[f"coming_{name}_w"] = (total[later] - total[origins]) / steps
    return found


def is_changing(trace: Trace) -> NDArray[np.bool_]:
    """Whether the load changed over the last minute: its power by more than a fifth of its mean; shape (steps,)."""
    window = max(2, round(60.0 / trace.step_s))
    mean = mean_over(trace.power_w, window)
    spread = np.sqrt(np.maximum(mean_over(trace.power_w**2, window) - mean**2, 0.0))
    return np.asarray(spread > 0.2 * mean)


def _mean_of_known(values: Array, window: int) -> Array:
    known = np.isfinite(values)
    share = mean_over(known.astype(float), window)
    total = mean_over(np.where(known, values, 0.0), window)
    return np.asarray(np.divide(total, share, out=np.full(len(values), np.nan), where=share > 1e-9))
