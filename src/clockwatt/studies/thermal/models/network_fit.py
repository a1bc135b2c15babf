"""Least squares for the constants of a thermal RC network.

Given time constants, temperature is linear in all else, so that the search runs over the logarithms of time constants
alone (variable projection). What each run began with decays by the same time constants: those unknown beginnings are
projected out of each run, so that no run has to begin at rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student

from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.inputs import Ints, decayed
from clockwatt.studies.thermal.models.base import Rows, usable_rows
from clockwatt.studies.thermal.models.network import Mode, Network
from clockwatt.studies.thermal.traces import Array, Trace

_STARTS_S = (3.0, 10.0, 30.0, 100.0, 300.0)
_LONGEST_S = 3600.0
LEAST_SPREAD_W = 2.0
_LEAST_RANGE_K = 2.0
_WORTH_NEIGHBOURS = 0.99
"""Neighbours have to bring the residuals below this share of what they are without."""

_WORTH_A_MODE = 0.95
"""A second mode has to bring the residuals below this share of what they are with one."""

_LEAST_SHARE = 0.05
"""And to hold more than this share of the resistance: sensors that see a sliver of each period look like a little."""

_GROUPS = 8


@dataclass(frozen=True)
class _Problem:
    """Traces of one GPU, the origins that count, and the neighbours that may warm it."""

    traces: Sequence[Trace]
    rows: Sequence[Ints]
    neighbours: tuple[str, ...]

    def solve(self, taus: Sequence[float]) -> tuple[Array, Array]:
        """Return resistances (own, neighbours'), ambient and residuals; the last time constant is the neighbours'."""
        own = taus[:-1] if self.neighbours else taus
        designs, targets = [], []
        for trace, rows in zip(self.traces, self.rows, strict=True):
            if len(rows) <= len(taus) + 1:
                continue
            columns = [decayed(trace.power_w, tau, trace.step_s, start=0.0) for tau in own]
            for uuid in self.neighbours:
                watts = (
                    trace.neighbours_w[:, trace.neighbours.index(uuid)]
                    if uuid in trace.neighbours
                    else np.zeros(len(trace))
                )
                columns.append(decayed(watts, taus[-1], trace.step_s, start=0.0))
            design = np.stack([*columns, np.ones(len(trace))], axis=1)[rows]
            since = trace.step_s * rows[:, None]
            beginnings, _ = np.linalg.qr(np.exp(-since / np.asarray(taus)[None, :]))
            target = trace.temperature_c[rows]
            designs.append(design - beginnings @ (beginnings.T @ design))
            targets.append(target - beginnings @ (beginnings.T @ target))
        design, target = np.concatenate(designs), np.concatenate(targets)
        weights, *_ = np.linalg.lstsq(design, target, rcond=None)
        return weights, target - design @ weights

    def refine(self, start_s: Sequence[float]) -> tuple[list[float], Array, float]:
        """Return the time constants near these that fit best; weights; root mean square of the residuals."""
        step_s = self.traces[0].step_s
        bounds = (np.log(step_s / 2), np.log(_LONGEST_S))

        def residuals(logs: Array) -> Array:
            return self.solve([float(tau) for tau in np.exp(logs)])[1]

        start = np.clip(np.log(start_s), bounds[0] + 1e-3, bounds[1] - 1e-3)
        found = least_squares(residuals, start, bounds=bounds, diff_step=1e-3, xtol=1e-5, ftol=1e-7, max_nfev=40)
        taus = [float(tau) for tau in np.exp(found.x)]
        weights, left = self.solve(taus)
        return taus, weights, float(np.sqrt(np.mean(left**2)))


def fit_network(traces: Sequence[Trace], rows: Rows | None = None, *, intervals: bool = False) -> Network:
    """Fit the network of one GPU to its traces.

    Parameters
    ----------
    traces
        The traces of one GPU, or of several of one model without their neighbours.
    rows
        Which times count.
    intervals
        Whether 95 % intervals of the constants are wanted: by leaving out a group of runs at a time, which takes as
        many fits.

    Raises
    ------
    ThermalError
        If the load or the temperature hardly ever changed, so that its constants cannot be estimated.
    """
    _check_excited(traces)
    steady = steady_neighbours(traces)
    names = tuple(sorted({uuid for trace in traces for uuid in trace.neighbours if uuid not in steady}))
    problem = _Problem(traces, usable_rows(traces, rows), names)
    network, taus = _best(problem)
    idle = [trace.idle_w for trace in traces if np.isfinite(trace.idle_w)]
    network = replace(network, idle_w=float(np.median(idle)) if idle else _least_power_w(traces))
    if intervals:
        kept = tuple(network.neighbours_k_per_w)
        network = replace(network, intervals=_jackknife(replace(problem, neighbours=kept), taus, network))
    return network


def steady_neighbours(traces: Sequence[Trace]) -> list[str]:
    """Return neighbours whose power hardly changed: their effect cannot be separated from the ambient temperature."""
    names = sorted({uuid for trace in traces for uuid in trace.neighbours})
    watts = {
        uuid: np.concatenate([t.neighbours_w[:, t.neighbours.index(uuid)] for t in traces if uuid in t.neighbours])
        for uuid in names
    }
    return [uuid for uuid in names if watts[uuid].std() < LEAST_SPREAD_W]


def _check_excited(traces: Sequence[Trace]) -> None:
    power = np.concatenate([trace.power_w for trace in traces]) if traces else np.zeros(1)
    warm = np.concatenate([trace.temperature_c for trace in traces]) if traces else np.zeros(1)
    if power.std() < LEAST_SPREAD_W or np.ptp(warm) < _LEAST_RANGE_K:
        who = traces[0].gpu if traces else "the GPU"
        raise ThermalError(
            f"{who}: load or temperature hardly changed (deviation {power.std():.1f} W, range {np.ptp(warm):.0f} K), "
            "so its thermal constants are unknown. Record a program that works and pauses."
        )


def _best(problem: _Problem) -> tuple[Network, list[float]]:
    """One mode, or two where that fits clearly better and both are sound; each with the neighbours that warm it."""
    single = replace(problem, neighbours=())
    starts = sorted((float(np.mean(single.solve([tau])[1] ** 2)), tau) for tau in _STARTS_S)
    taus, weights, rms = single.refine([starts[0][1]])
    if weights[0] <= 0:
        raise ThermalError(
            f"{problem.traces[0].gpu}: it does not get warmer with more power in these records, so no RC network fits."
        )
    one = _with_neighbours(problem, _network(taus, weights, rms, ()), taus)
    step_s, longest_s = problem.traces[0].step_s, max(len(trace) * trace.step_s for trace in problem.traces)
    taus, weights, rms = single.refine([max(step_s, taus[0] / 3), min(_LONGEST_S, taus[0] * 4)])
    order = np.argsort(taus)
    taus, own = [taus[place] for place in order], weights[:2][order]
    two = _with_neighbours(problem, _network(taus, np.concatenate([own, weights[2:]]), rms, ()), taus)
    resistances = [mode.resistance_k_per_w for mode in two[0].modes]
    quick, slow = two[1][:2]
    # a mode as quick as the grid only makes up for when readings were taken, and a slow one has to be seen to settle
    distinct = quick > 1.5 * step_s and slow > 2 * quick and slow < longest_s / 4
    if distinct and min(resistances) > _LEAST_SHARE * sum(resistances) and two[0].rms_k < _WORTH_A_MODE * one[0].rms_k:
        return two
    return one


def _with_neighbours(problem: _Problem, alone: Network, taus: list[float]) -> tuple[Network, list[float]]:
    """Add the neighbours; since heat never cools, those with a negative effect are removed one by one.

    All are where what they add is not seen to settle, or explains next to nothing: beside an ambient temperature, heat
    that hardly changes has any size.
    """
    longest_s = max(len(trace) * trace.step_s for trace in problem.traces)
    if min(mode.resistance_k_per_w for mode in alone.modes) <= 0:
        return alone, taus
    names = list(problem.neighbours)
    own = len(alone.modes)
    while names:
        problem = replace(problem, neighbours=tuple(names))
        found, weights, rms = problem.refine([*taus, max(taus)])
        theirs = weights[own : own + len(names)]
        if theirs.min() > 0 and weights[:own].min() > 0:
            if found[-1] > longest_s / 4 or rms > _WORTH_NEIGHBOURS * alone.rms_k:
                break
            return _network(found, weights, rms, problem.neighbours), found
        names.pop(int(np.argmin(theirs)))
    return alone, taus


def _network(taus: Sequence[float], weights: Array, rms: float, neighbours: tuple[str, ...]) -> Network:
    own = taus[:-1] if neighbours else taus
    modes = tuple(Mode(float(weights[place]), tau) for place, tau in enumerate(own))
    theirs = {uuid: float(weights[len(own) + place]) for place, uuid in enumerate(neighbours)}
    return Network(
        ambient_c=float(weights[-1]), modes=modes, neighbours_k_per_w=theirs,
        neighbours_time_constant_s=taus[-1] if neighbours else max(own), rms_k=rms,
    )  # fmt: skip


def _jackknife(problem: _Problem, taus: Sequence[float], network: Network) -> dict[str, tuple[float, float]]:
    """Return 95 % jackknife intervals of the constants, leaving out a group of runs or, of one run, a stretch."""
    groups = _groups(problem)
    values: list[dict[str, float]] = []
    for group in groups:
        rows = [np.setdiff1d(own, left_out) for own, left_out in zip(problem.rows, group, strict=True)]
        found, weights, rms = replace(problem, rows=rows).refine(taus)
        values.append(_network(found, weights, rms, problem.neighbours).constants())
    count = len(values)
    told = {}
    for name, value in network.constants().items():
        parts = np.array([each[name] for each in values])
        error = float(np.sqrt((count - 1) / count * ((parts - parts.mean()) ** 2).sum()))
        half = float(student.ppf(0.975, count - 1)) * error
        told[name] = (value - half, value + half)
    return told


def _groups(problem: _Problem) -> list[list[Ints]]:
    """Return the rows to be left out at a time: of runs, or of stretches where there are fewer than three."""
    nothing = np.zeros(0, dtype=np.intp)
    runs = sorted({trace.run for trace in problem.traces})
    if len(runs) >= 3:
        dealt = {run: number % _GROUPS for number, run in enumerate(runs)}
        return [
            [own if dealt[trace.run] == group else nothing for trace, own in zip(problem.traces, problem.rows,
            strict=True)] for group in range(min(_GROUPS, len(runs)))
        ]  # fmt: skip
    parts = [np.array_split(own, _GROUPS) for own in problem.rows]
    return [[split[group] for split in parts] for group in range(_GROUPS)]


def _least_power_w(traces: Sequence[Trace]) -> float | None:
    """Return the mean power where the GPU was not used at all; None if that is never seen."""
    idle = [trace.power_w[trace.sensors.get("gpu_utilization_percent", np.ones(len(trace))) == 0] for trace in traces]
    together = np.fromiter(itertools.chain.from_iterable(idle), float)
    return float(np.median(together)) if len(together) else None
