"""What a GPU's telemetry says about one run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from clockwatt import signals
from clockwatt.gpu.interface import GPU_IDLE, throttle_reason_names

POWER_SOURCES = ("power_sample_w", "power_instant_w", "power_average_w")
"""Readings of power, the best first: the driver's ring has the most, and an average of 1 s blurs what is shorter."""

LONGEST_GAP_S = 1.0
"""Readings of power further apart than this leave a gap, as of a logger or a driver that stood still."""

_LEAST_READINGS = 5
_CONTEXT_BYTES = 64 * 2**20
"""Memory in use grows by more than this when a program makes a context."""

_LEAST_IDLE_S = 1.0


def power_source(frame: pd.DataFrame, end_s: float) -> str | None:
    """Return the column of the best readings of power that a GPU gave for the whole run; None if there are none."""
    for name in POWER_SOURCES:
        power = readings(frame, name)
        if len(power) >= _LEAST_READINGS and _energy_j(power, 0.0, end_s) >= 0:
            return name
    return next((name for name in POWER_SOURCES if frame[name].notna().sum() >= _LEAST_READINGS), None)


def power_readings(frame: pd.DataFrame, end_s: float) -> pd.Series[float]:
    """Return the best readings of power in W by time in s; empty if there are none."""
    source = power_source(frame, end_s)
    if source is None:
        return pd.Series(np.zeros(0), index=pd.Index(np.zeros(0), name="time_s"))
    return readings(frame, source)


def readings(frame: pd.DataFrame, column: str) -> pd.Series[float]:
    """Return the readings of a sensor by time in s, without the rows that have none."""
    there = frame[frame[column].notna()]
    index = pd.Index(there["time_s"].to_numpy(float), name="time_s")
    return pd.Series(there[column].to_numpy(float), index=index)


def of_gpu(frame: pd.DataFrame, end_s: float, contexts: int | None) -> dict[str, Any]:
    """Return energy, power and other quantities of a GPU during a run.

    Parameters
    ----------
    frame
        Its telemetry, with `time_s` since the program's start; before that the GPU idled.
    end_s
        When the program ended.
    contexts
        How many processes computed on it then; None if unknown.
    """
    during = frame[frame["time_s"].between(0, end_s)]
    power, counter = power_readings(frame, end_s), readings(frame, "energy_counter_j")
    integrated = known(_energy_j(power, 0.0, end_s))
    counted = known(signals.counted_energy_j(counter.index, counter, 0.0, end_s))
    at_work = power[(power.index >= 0) & (power.index <= end_s)]
    idle_from_s = float(power.index[0]) if len(power) else 0.0
    idle = known(_energy_j(power, idle_from_s, 0.0))
    reasons = during["throttle_reasons"].dropna().astype("int64")
    loaded = during.loc[reasons.index[(reasons & GPU_IDLE) == 0], "sm_clock_mhz"].dropna()
    temperature = during["temperature_c"].dropna()
    return {
        "time_s": end_s,
        "energy_counter_j": counted,
        "energy_integrated_j": integrated,
        "energy_difference": integrated / counted - 1 if integrated is not None and counted else None,
        "integrated_from": power_source(frame, end_s),
        "power_mean_w": integrated / end_s if integrated is not None and end_s > 0 else None,
        "power_max_w": known(at_work.max()),
        "power_limit_w": known(during["power_limit_w"].min()),
        "power_idle_before_w": idle / -idle_from_s if idle is not None and idle_from_s < 0 else None,
        "contexts_before": contexts,
        "power_idle_with_context_w": _idle_with_context_w(frame, power, end_s),
        "temperature_start_c": known(temperature.iloc[0]) if len(temperature) else None,
        "temperature_mean_c": known(temperature.mean()),
        "temperature_max_c": known(temperature.max()),
        "memory_temperature_max_c": known(during["memory_temperature_c"].max()),
        "sm_clock_min_mhz": known(during["sm_clock_mhz"].min()),
        "sm_clock_median_mhz": known(during["sm_clock_mhz"].median()),
        "sm_clock_max_mhz": known(during["sm_clock_mhz"].max()),
        "sm_clock_loaded_mhz": known(loaded.median()),
        "memory_clock_median_mhz": known(during["memory_clock_mhz"].median()),
        "throttled_share": _throttled(reasons),
        "gpu_utilization_percent": known(during["gpu_utilization_percent"].mean()),
        "memory_utilization_percent": known(during["memory_utilization_percent"].mean()),
        "memory_used_max_bytes": known(during["memory_used_bytes"].max()),
        "readings": int(during["lane"].count()),
    }


def _energy_j(power: pd.Series[float], start_s: ArrayLike, end_s: ArrayLike) -> NDArray[np.float64]:
    return signals.integrated_energy_j(power.index, power, start_s, end_s, longest_gap_s=LONGEST_GAP_S)


def known(value: Any) -> float | None:
    """Return a number for JSON; None for what is not known (NaN, NA)."""
    number = math.nan if value is None or value is pd.NA else float(value)
    return number if math.isfinite(number) else None


def _throttled(reasons: pd.Series[int]) -> dict[str, float] | None:
    """Return the share of the readings that name each reason, idling left out; None if none was read."""
    if reasons.empty:
        return None
    shares: dict[str, float] = {}
    for mask, count in reasons.value_counts().items():
        for name in throttle_reason_names(int(str(mask)) & ~GPU_IDLE):
            shares[name] = shares.get(name, 0.0) + count / len(reasons)
    return shares


def _idle_with_context_w(frame: pd.DataFrame, power: pd.Series[float], end_s: float) -> float | None:
    """Return the mean power between readings without work while the program holds a context; None if too short."""
    slow = frame[frame["gpu_utilization_percent"].notna() & frame["memory_used_bytes"].notna()]
    before = slow.loc[slow["time_s"] < 0, "memory_used_bytes"]
    if before.empty or len(power) < _LEAST_READINGS:
        return None
    idle = (slow["gpu_utilization_percent"] == 0) & (slow["memory_used_bytes"] > before.min() + _CONTEXT_BYTES)
    idle &= slow["time_s"].between(0, end_s)
    times, is_idle = slow["time_s"].to_numpy(), idle.to_numpy()
    pairs = is_idle[:-1] & is_idle[1:]
    starts, ends = times[:-1][pairs], times[1:][pairs]
    if (total_s := float((ends - starts).sum())) < _LEAST_IDLE_S:
        return None
    return known(np.sum(_energy_j(power, starts, ends)) / total_s)
