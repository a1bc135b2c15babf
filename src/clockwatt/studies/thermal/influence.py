"""Estimate which neighbouring GPUs and sockets warm a GPU, with intervals and permutation tests.

Own heat comes first: a GPU's temperature is freed of what its own power explains through its own time constants, and of
what the other sources explain. What is left is compared with each source, seen through the same slowest time constant.
Readings a second apart are no two observations, so neither test nor interval counts seconds: the test shifts a source
in time by random amounts, which keeps its rhythm and breaks its relation, and the interval draws whole stretches of
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.inputs import decayed
from clockwatt.studies.thermal.models.network_fit import LEAST_SPREAD_W, fit_network
from clockwatt.studies.thermal.traces import Array, Trace

PERMUTATIONS = 499
LEVEL = 0.95
LEAST_SPREADS = {"K/W": LEAST_SPREAD_W, "K/K": 0.5, "K/%": 2.0}
"""A source that deviates by less from its mean can have any effect, beside an ambient temperature."""
SOCKET_SENSORS = {"power_w": "K/W", "temperature_c": "K/K", "utilization_percent": "K/%"}
"""Sources for the heat of a socket, the best first, and the unit of its influence."""

_STRETCHES = 5.0
"""Length of a stretch that is drawn, in time constants; a shift is at least as long."""
_LEAST_STRETCHES = 8
_COLUMNS = (
    "gpu", "source", "kind", "unit", "effect", "low", "high", "p_value", "p_adjusted", "effect_low_load",
    "effect_high_load", "more_at_low_load", "more_low", "more_high", "p_more", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class _Source:
    name: str
    kind: str
    unit: str
    values: list[Array]  # of each trace


@dataclass(frozen=True)
class _Target:
    """All readings of one GPU, one trace after another."""

    traces: Sequence[Trace]
    taus: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def slowest_s(self) -> float:
        return self.taus[-1]

    def seen(self, values: Sequence[Array]) -> Array:
        """Return a source as it reaches the GPU; shape (readings,)."""
        step_s = self.traces[0].step_s
        return np.concatenate([decayed(each, self.slowest_s, step_s, start=0.0) for each in values])

    def without_beginnings(self, column: Array) -> Array:
        """Remove the initial state of each trace, which decays by the GPU's time constants; shape as `column`."""
        parts, start = [], 0
        for length in self.lengths:
            part = column[start : start + length]
            since = self.traces[0].step_s * np.arange(length)[:, None]
            beginnings, _ = np.linalg.qr(np.exp(-since / np.array(self.taus)[None, :]))
            parts.append(part - beginnings @ (beginnings.T @ part))
            start += length
        return np.concatenate(parts)


def influences(traces: Sequence[Trace], *, permutations: int = PERMUTATIONS, seed: int = 0) -> pd.DataFrame:
    """Test every neighbour and every socket on every GPU.

    Parameters
    ----------
    traces
        The traces of one node.
    permutations
        How many shifts a test draws.
    seed
        The seed of the draws.

    Returns
    -------
    One row for each GPU and source: `effect` in `unit` with its 95 % interval `low` and `high`, `p_value` of the
    permutation test and `p_adjusted` for the number of rows (Holm); the effect while the GPU's own load is below and
    above its median, the difference of the two with its interval, and `p_more` of a test that it is not 0.

    Raises
    ------
    ThermalError
        If there is no neighbour and no sensor of a socket, or too little was recorded.
    """
    chance = np.random.default_rng(seed)
    rows = []
    taus = _time_constants(traces)
    for gpu, of_gpu in taus.items():
        own = [trace for trace in traces if trace.gpu == gpu]
        if not _constant(own) and (sources := _told(_sources(own))):
            target = _Target(own, of_gpu, tuple(len(trace) for trace in own))
            rows += _of_target(target, sources, permutations, chance)
    if not rows:
        raise ThermalError(
            "no varying source of heat was recorded: no second GPU (record with --all-gpus), and no sensor of a "
            "processor's power, temperature or load." + "".join(f" {note}" for note in untold(traces))
        )
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    table["p_adjusted"] = _holm(table["p_value"].to_numpy(float))
    return table


def _sources(traces: Sequence[Trace]) -> list[_Source]:
    """Return every source that was read in all traces."""
    found = []
    for uuid in sorted(set.intersection(*(set(trace.neighbours) for trace in traces))):
        watts = [trace.neighbours_w[:, trace.neighbours.index(uuid)] for trace in traces]
        found.append(_Source(uuid, "gpu", "K/W", watts))
    sockets = sorted({name.partition("_")[0] for trace in traces for name in trace.sensors if name.startswith("cpu")})
    for socket in sockets:
        for sensor, unit in SOCKET_SENSORS.items():
            values = [trace.sensors.get(f"{socket}_{sensor}", np.full(len(trace), np.nan)) for trace in traces]
            if all(np.isfinite(each).mean() > 0.9 for each in values):
                filled = [np.asarray(pd.Series(each).ffill().bfill(), np.float64) for each in values]
                found.append(_Source(f"{socket}_{sensor}", "socket", unit, filled))
                break
    return found


def _told(sources: Sequence[_Source]) -> list[_Source]:
    """Return the sources that changed enough for their effect to be estimated."""
    return [each for each in sources if np.concatenate(each.values).std() >= LEAST_SPREADS[each.unit]]


def _constant(traces: Sequence[Trace]) -> bool:
    """Return whether a GPU's temperature is the same number in all its readings: then any effect fits, and 0 best."""
    return bool(np.ptp(np.concatenate([trace.temperature_c for trace in traces])) == 0)


def untold(traces: Sequence[Trace]) -> list[str]:
    """Return sentences on what these traces cannot show and why: steady sources, constant temperatures."""
    notes, found = [], dict[str, bool]()
    for gpu in sorted({trace.gpu for trace in traces}):
        own = [trace for trace in traces if trace.gpu == gpu]
        sources = _sources(own)
        told = _told(sources)
        found |= {source.name: source not in told for source in sources}
        if sources and _constant(own):
            notes.append(
                f"{gpu}: its temperature was constant ({own[0].temperature_c[0]:.0f} °C in all of "
                f"{sum(map(len, own)) * own[0].step_s:.0f} s), so its sources of heat are unknown."
            )
    if steady := [name for name, is_steady in found.items() if is_steady]:
        notes.insert(0, f"Effect unknown, because they hardly changed: {', '.join(steady)}.")
    return notes


def _time_constants(traces: Sequence[Trace]) -> dict[str, tuple[float, ...]]:
    """Return the value of each GPU; one that always idles cannot show its own and gets the slowest of the others."""
    found: dict[str, tuple[float, ...]] = {}
    silent: list[ThermalError] = []
    gpus = sorted({trace.gpu for trace in traces})
    for gpu in gpus:
        try:
            network = fit_network([trace for trace in traces if trace.gpu == gpu])
        except ThermalError as error:
            silent.append(error)
            continue
        found[gpu] = tuple(mode.time_constant_s for mode in network.modes)
    if not found and silent:
        raise silent[0]
    return {gpu: found.get(gpu) or (max(taus[-1] for taus in found.values()),) for gpu in gpus}


def _basis(columns: Sequence[Array]) -> Array:
    """Return an orthonormal basis of what columns span, also where they repeat each other; shape (readings, rank)."""
    matrix = np.stack(columns, axis=1)
    left, size, _ = np.linalg.svd(matrix / np.maximum(np.linalg.norm(matrix, axis=0), 1e-12), full_matrices=False)
    return np.asarray(left[:, size > 1e-6 * size[0]])


def _of_target(
    target: _Target, sources: Sequence[_Source], permutations: int, chance: np.random.Generator
) -> list[dict[str, object]]:
    step_s = target.traces[0].step_s
    total = sum(target.lengths)
    stretch = max(2, round(_STRETCHES * target.slowest_s / step_s))
    if total < _LEAST_STRETCHES * stretch:
        raise ThermalError(
            f"{target.traces[0].gpu}: {total * step_s:.0f} s are too few to find its sources of heat (its "
            f"time constant is {target.slowest_s:.0f} s); record {_LEAST_STRETCHES * stretch * step_s:.0f} s or more."
        )
    own = [np.concatenate([decayed(t.power_w, tau, step_s, start=0.0) for t in target.traces]) for tau in target.taus]
    low = own[-1] < np.median(own[-1])
    temperature = target.without_beginnings(np.concatenate([trace.temperature_c for trace in target.traces]))
    plain = [target.without_beginnings(column) for column in [*own, np.ones(total)]]
    seen = [target.seen(source.values) for source in sources]
    rows: list[dict[str, object]] = []
    for place, source in enumerate(sources):
        others = [target.without_beginnings(each) for number, each in enumerate(seen) if number != place]
        explained = _basis(plain + others)
        left = temperature - explained @ (explained.T @ temperature)
        told = _test(target, seen[place], left, explained, low, stretch, permutations, chance)
        rows.append(
            {"gpu": target.traces[0].gpu, "source": source.name, "kind": source.kind, "unit": source.unit,
             "seconds": total * step_s} | told
        )  # fmt: skip
    return rows


def _test(
    target: _Target, seen: Array, left: Array, explained: Array, low: NDArray[np.bool_], stretch: int,
    permutations: int, chance: np.random.Generator,
) -> dict[str, float]:  # fmt: skip
    def columns(source: Array) -> Array:
        """Return the source, at low load, at high load, free of all else; shape (readings, 3)."""
        parts = np.stack([target.without_beginnings(part) for part in (source, source * low, source * ~low)], axis=1)
        return np.asarray(parts - explained @ (explained.T @ parts))

    def effects(parts: Array) -> tuple[float, Array]:
        both, *_ = np.linalg.lstsq(parts[:, 1:], left, rcond=None)
        return float(parts[:, 0] @ left / (parts[:, 0] @ parts[:, 0])), np.asarray(both, np.float64)

    parts = columns(seen)
    effect, (at_low, at_high) = effects(parts)
    shifts = chance.integers(stretch, len(seen) - stretch, size=permutations)
    drawn = [effects(columns(np.roll(seen, shift))) for shift in shifts]
    beyond = sum(abs(one) >= abs(effect) for one, _ in drawn)
    more_beyond = sum(abs(both[0] - both[1]) >= abs(at_low - at_high) for _, both in drawn)
    interval, more = _intervals(parts, left, stretch, chance)
    return {
        "effect": effect, "low": interval[0], "high": interval[1], "p_value": (1 + beyond) / (1 + permutations),
        "effect_low_load": float(at_low), "effect_high_load": float(at_high),
        "more_at_low_load": float(at_low - at_high), "more_low": more[0], "more_high": more[1],
        "p_more": (1 + more_beyond) / (1 + permutations),
    }  # fmt: skip


def _intervals(
    parts: Array, left: Array, stretch: int, chance: np.random.Generator, draws: int = 999
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return intervals of the effect and of the difference, from stretches of time drawn with replacement."""
    edges = np.arange(0, len(left), stretch)
    sums = np.add.reduceat
    squares, products = sums(parts[:, 0] ** 2, edges), sums(parts[:, 0] * left, edges)
    low, high = parts[:, 1], parts[:, 2]
    grams = [sums(one, edges) for one in (low * low, low * high, high * high, low * left, high * left)]
    counts = chance.multinomial(len(edges), np.full(len(edges), 1 / len(edges)), size=draws)
    effect = (counts @ products) / np.maximum(counts @ squares, 1e-12)
    ll, lh, hh, ly, hy = (counts @ gram for gram in grams)
    determinant = np.maximum(ll * hh - lh**2, 1e-12)
    difference = ((hh * ly - lh * hy) - (ll * hy - lh * ly)) / determinant
    tails = [50 * (1 - LEVEL), 100 - 50 * (1 - LEVEL)]
    first, second = np.percentile(effect, tails), np.percentile(difference, tails)
    return (float(first[0]), float(first[1])), (float(second[0]), float(second[1]))


def _holm(p_values: Array) -> Array:
    """Return p values adjusted for multiple tests (Holm)."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return adjusted
