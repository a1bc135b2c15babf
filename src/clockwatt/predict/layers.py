"""Time, energy, power and memory of each module of a network: a pass's answer shared out among its calls."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.errors import RequestError
from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import OperationCosts
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema.costs import BACK_TO_BACK, TIME_DEVICE_CORRECTED
from clockwatt.schema.records import FORWARD, LOSS, MEMORY_KINDS, OPTIMIZER, WORKSPACE

_HOST, _DEVICE = TARGETS.index("time_host_corrected_s"), TARGETS.index(TIME_DEVICE_CORRECTED)
_EAGER, _DYNAMIC = TARGETS.index(BACK_TO_BACK), TARGETS.index("energy_dynamic_corrected_j")
_SHARED = 0.25
"""Share of the variance of operations' errors that all of them have in common."""
MEMORY = tuple(kind for kind in MEMORY_KINDS if kind != WORKSPACE)
COLUMNS = (
    *("calls", "flops", "time_s", "time_s_low", "time_s_high", "forward_s", "backward_s", "energy_j", "energy_j_low"),
    *("energy_j_high", "power_w", "memory_bytes"),
)
"""Columns that every table of layers has."""


def layers(answer: Answer, forward: Answer | None = None, depth: int | None = None) -> pd.DataFrame:
    """Share a pass's time and energy among its modules.

    A call belongs to the innermost module that makes it. Time is shared by the calls' device times, in a host-bound
    pass by their host times; energy by the calls' dynamic energy, and idle power by time. The sums are the answer's.

    Parameters
    ----------
    answer
        Of the pass, with its memory if that is to be shared too.
    forward
        Of a training pass, the answer of inference: its shares are the forward parts.
    depth
        Modules below so many levels are part of the one that holds them; None for all levels.

    Returns
    -------
    pandas.DataFrame
        Indexed by `module`, the path of a module, in the order of the first calls; `(loss)` and `(optimizer)` have rows
        of their own. `COLUMNS`: times in s, energy in J, power in W; `memory_bytes`, what of the peak belongs to the
        module: its parameters, gradients, optimizer state and tensors kept. Null where something is not known.

    Raises
    ------
    RequestError
        If the answer is about no network.
    """
    if not isinstance(answer.detail, OperationCosts) or not answer.detail.traced.is_network:
        raise RequestError("layers are those of a network: give one in place of {operations}.")
    table = _shares(answer, answer.detail, depth)
    if forward is None:
        table["forward_s"], table["backward_s"] = table["time_s"], 0.0
    else:
        assert isinstance(forward.detail, OperationCosts)
        of_forward = _shares(forward, forward.detail, depth)["time_s"].reindex(table.index).fillna(0.0)
        steps = table.index == f"({OPTIMIZER})"
        table["forward_s"] = np.where(steps, 0.0, np.minimum(of_forward, table["time_s"]))
        table["backward_s"] = np.where(steps, 0.0, table["time_s"] - table["forward_s"])
    table["memory_bytes"] = _memory(answer, table.index, depth)
    return table[list(COLUMNS)]


def _shares(answer: Answer, detail: OperationCosts, depth: int | None) -> pd.DataFrame:
    traced, costs = detail.traced, detail.costs
    positions, calls = traced.composer.positions, traced.calls
    host_bound = answer.host is not None and answer.host.paced_by == "host"
    times = _times(costs.mean, host_bound=host_bound)
    dynamic = np.nan_to_num(costs.mean[:, _DYNAMIC])
    names = (_named(path, phase, depth) for path, phase in zip(calls["module_path"], calls["phase"], strict=True))
    frame = pd.DataFrame({
        "module": list(names),
        "operation": positions,
        "flops": traced.operations["flops"].to_numpy(float)[positions],
        "time_s": times[positions],
        "device_s": np.nan_to_num(costs.mean[:, _DEVICE])[positions],
        "dynamic_j": dynamic[positions],
    })  # fmt: skip
    grouped = frame.groupby("module", sort=False)
    table = grouped[["flops", "time_s", "device_s", "dynamic_j"]].sum()
    table["calls"] = grouped.size()
    column = _HOST if host_bound else _DEVICE
    low, high = (_widths(frame, times, costs.factors[:, column, side], table.index) for side in (0, 1))
    scale = answer.time_s / (table["time_s"].sum() or 1.0)
    table["time_s_low"] = np.maximum(0.0, scale * (table["time_s"] - low))
    table["time_s_high"] = scale * (table["time_s"] + high)
    table["time_s"] *= scale
    return _with_energy(table, frame, answer, dynamic, costs.factors[:, _DYNAMIC])


def _with_energy(
    table: pd.DataFrame, frame: pd.DataFrame, answer: Answer, dynamic: NDArray[np.float64], factors: NDArray[np.float64]
) -> pd.DataFrame:
    """Add energy and power: dynamic energy as the calls', and idle power over the time.

    In a host-bound pass a module's kernels may run for longer than its share of the time: power is then that of the
    kernels.
    """
    expected = answer.expected
    if answer.energy_j is None or expected.energy_dynamic_j is None:
        unknown = dict.fromkeys(("energy_j", "energy_j_low", "energy_j_high", "power_w"), np.nan)
        return table.assign(**unknown)
    scale = min(expected.energy_dynamic_j, answer.energy_j) / (table["dynamic_j"].sum() or 1.0)
    idle_w = max(0.0, answer.energy_j - scale * table["dynamic_j"].sum()) / answer.time_s
    low, high = (_widths(frame, dynamic, factors[:, side], table.index) for side in (0, 1))
    table["energy_j"] = scale * table["dynamic_j"] + idle_w * table["time_s"]
    table["energy_j_low"] = scale * np.maximum(0.0, table["dynamic_j"] - low) + idle_w * table["time_s_low"]
    table["energy_j_high"] = scale * (table["dynamic_j"] + high) + idle_w * table["time_s_high"]
    seconds = table[["time_s", "device_s"]].max(axis=1)
    table["power_w"] = table["energy_j"] / seconds.where(seconds > 0)
    return table


def _times(mean: NDArray[np.float64], *, host_bound: bool) -> NDArray[np.float64]:
    """Return what a pass's time is shared by: host or device time; back-to-back time where they are not known."""
    chosen = mean[:, _HOST if host_bound else _DEVICE]
    return np.nan_to_num(np.where(np.isfinite(chosen), chosen, mean[:, _EAGER]))


def _widths(
    frame: pd.DataFrame, values: NDArray[np.float64], factors: NDArray[np.float64], modules: pd.Index
) -> NDArray[np.float64]:
    """Return how far the ends of the modules' intervals are from their sums; calls of one operation err alike."""
    errors = values * np.nan_to_num(np.abs(factors - 1.0))
    counts = frame.groupby(["module", "operation"], sort=False).size()
    of_pair = counts.to_numpy() * errors[counts.index.get_level_values("operation").to_numpy(int)]
    pairs = pd.Series(of_pair, counts.index.get_level_values("module"))
    total, squares = (one.groupby(level=0).sum().reindex(modules).to_numpy(float) for one in (pairs, pairs**2))
    return np.sqrt((1 - _SHARED) * squares + _SHARED * total**2)


def _memory(answer: Answer, modules: pd.Index, depth: int | None) -> pd.Series:
    if answer.memory is None:
        return pd.Series(np.nan, modules)
    found = pd.Series(0, modules, dtype=float)
    for (path, kind), size in answer.memory.modules.items():
        name = _named(path, FORWARD, depth)
        if name in found.index and kind in MEMORY:
            found[name] += size
    return found


def _named(path: str, phase: str, depth: int | None) -> str:
    if phase in (LOSS, OPTIMIZER):
        return f"({phase})"
    return path if depth is None else ".".join(path.split(".")[:depth])
