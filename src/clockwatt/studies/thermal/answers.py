"""Answer a scheduler's questions from a fit: temperature, time to a limit, rest, and the coolest GPU."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.inputs import HOLD_S, LOADS, is_changing, mean_over
from clockwatt.studies.thermal.models.network import Network
from clockwatt.studies.thermal.models.rc import RcNetworks
from clockwatt.studies.thermal.stored import Fitted, Study
from clockwatt.studies.thermal.traces import Array, Trace

_LONGEST_S = 4 * 3600.0
_IDLE_BELOW = 1.5
"""A GPU whose power is less than so many times its idle power can take a job."""


@dataclass(frozen=True)
class Forecast:
    """One GPU's temperature some time from now.

    Attributes
    ----------
    gpu, gpu_name, virtual
        Label and name of the GPU, and whether it is virtual.
    now_c, power_w
        Its last reading, and mean power over the last 10 s.
    horizon_s, temperature_c
        When, and how warm it is expected to be then.
    load_w
        Mean power that the model expects until then; None where it expects none.
    low_c, high_c, level
        Interval; None where too few runs were held out to estimate it.
    model, given
        What forecast it, from what.
    """

    gpu: str
    gpu_name: str
    virtual: bool
    now_c: float
    power_w: float
    horizon_s: float
    temperature_c: float
    load_w: float | None
    low_c: float | None
    high_c: float | None
    level: float | None
    model: str
    given: str

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Crossing:
    """When a temperature is reached.

    Attributes
    ----------
    gpu
        The GPU.
    limit_c
        That temperature; None if nobody knows it.
    time_s
        Until then; 0 if it is reached already, None if it never is or the limit is not known.
    settles_at_c
        Where the temperature ends under that load.
    load_w
        The load that is meant, which stays.
    why
        In words.
    """

    gpu: str
    limit_c: float | None
    time_s: float | None
    settles_at_c: float | None
    load_w: float | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """A GPU that a job could run on: how warm it is after a time, and which is then the warmest of the node."""

    gpu: str
    temperature_c: float
    settles_at_c: float
    warmest_c: float
    busy: bool

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return asdict(self)


def node_at(traces: Sequence[Trace], run: str | None = None, at_s: float | None = None) -> list[Trace]:
    """Return GPUs of a node with their history until a moment.

    Parameters
    ----------
    traces
        The traces of a record.
    run
        Which run; the last if None.
    at_s
        Time since the program's start; the end of the run if None.

    Raises
    ------
    ThermalError
        If there is no such run, or it has nothing before that time.
    """
    runs = list(dict.fromkeys(trace.run for trace in traces))
    chosen = runs[-1] if run is None else next((name for name in runs if name == run or name.endswith(f"/{run}")), None)
    if chosen is None:
        raise ThermalError(f"--run {run}: the record has {', '.join(name.rpartition('/')[2] for name in runs)}.")
    node = _part_at([trace for trace in traces if trace.run == chosen], at_s)
    if at_s is None:
        return node
    seen = [int(np.searchsorted(trace.time_s, at_s + 1e-6, side="right")) for trace in node]
    if min(seen) < 1 or at_s > max(trace.time_s[-1] for trace in node) + node[0].step_s:
        first, last = node[0].time_s[0], node[0].time_s[-1]
        raise ThermalError(f"--at {at_s:g}s: {chosen} was recorded from {first:.0f} to {last:.0f} s.")
    return [until(trace, steps) for trace, steps in zip(node, seen, strict=True)]


def _part_at(traces: Sequence[Trace], at_s: float | None) -> list[Trace]:
    """Return the last stretch of a run, or the last one that had begun at a time."""
    begun = [trace.part for trace in traces if at_s is None or trace.start_s <= at_s + 1e-6]
    wanted = max(begun, default=0)
    return [trace for trace in traces if trace.part == wanted]


def until(trace: Trace, steps: int) -> Trace:
    """Return the trace as known after so many steps."""
    return replace(
        trace, temperature_c=trace.temperature_c[:steps], power_w=trace.power_w[:steps],
        neighbours_w=trace.neighbours_w[:steps], neighbours_c=trace.neighbours_c[:steps],
        sensors={name: values[:steps] for name, values in trace.sensors.items()},
    )  # fmt: skip


def forecast(fitted: Fitted, trace: Trace, horizon_s: float) -> Forecast:
    """Return the temperature of a GPU some time after the end of its trace.

    Raises
    ------
    ThermalError
        If the model does not know the GPU, the step of the grid, or the horizon.
    """
    model, task = fitted.model, fitted.model.task
    load_w = None
    if isinstance(model, RcNetworks):
        network = _network(model, trace)
        model = copy.copy(model)
        model.task = replace(task, horizons_s=(horizon_s,))
        if task.load == "history":
            load_w = network.expected_load_w(model.task.seen(trace), model.task.steps[0])
    elif horizon_s not in task.horizons_s:
        known = ", ".join(f"{each:g}s" for each in task.horizons_s)
        raise ThermalError(f"--horizon {horizon_s:g}s: {model.name} forecasts {known}. Choose one, or --model rc.")
    last = np.array([len(trace) - 1])
    expected = model.forecast(trace, last)[0, model.task.horizons_s.index(horizon_s)]
    if not np.isfinite(expected):
        raise ThermalError(
            f"--horizon {horizon_s:g}s: {model.name} was not fitted to it, because the records are too short."
        )
    half = _half_width(fitted, trace, horizon_s)
    return Forecast(
        gpu=trace.gpu, gpu_name=trace.gpu_name, virtual=trace.virtual, now_c=float(trace.temperature_c[-1]),
        power_w=_power_now(trace), horizon_s=horizon_s, temperature_c=float(expected), load_w=load_w,
        low_c=None if half is None else float(expected - half), high_c=None if half is None else float(expected + half),
        level=None if half is None or fitted.intervals is None else fitted.intervals.level, model=model.name,
        given=LOADS[task.load],
    )  # fmt: skip


def _half_width(fitted: Fitted, trace: Trace, horizon_s: float) -> float | None:
    """Interpolate between the fitted horizons; return None beyond the last one that was evaluated."""
    if fitted.intervals is None:
        return None
    widths = fitted.intervals.around(is_changing(trace)[-1:])[0]
    horizons = np.array(fitted.model.task.horizons_s)
    told = np.isfinite(widths)
    if not told.any() or horizon_s > horizons[told].max():
        return None
    return float(np.interp(horizon_s, horizons[told], widths[told]))


def time_until_throttling(study: Study, node: Sequence[Trace], gpu: str, limit_c: float | None) -> Crossing:
    """Return how long a GPU can go on at the load of now until it is so warm that heat slows it down.

    Parameters
    ----------
    study, node, gpu
        Fitted study, the GPUs now, and which one.
    limit_c
        Where that is; if None, where the records saw it happen.
    """
    trace, network, state = _now(study, node, gpu)
    limit = study.slowed_from_c.get(gpu) if limit_c is None else limit_c
    load_w, around_w = _power_now(trace), _neighbours_now(trace)
    settles = float(network.path(state, load_w, around_w, np.array([math.inf]))[0])
    if limit is None:
        why = "heat never slowed it down in these records: name the temperature with --throttle-at, such as 87C"
        return Crossing(gpu, None, None, settles, load_w, why)
    time_s = _first(network, state, load_w, around_w, lambda path: path >= limit)
    why = f"at {load_w:.0f} W it settles at {settles:.0f} °C"
    return Crossing(gpu, limit, time_s, settles, load_w, f"never: {why}" if time_s is None else why)


def time_of_rest(study: Study, node: Sequence[Trace], gpu: str, rest_to_c: float) -> Crossing:
    """Return how long a GPU has to idle, with its neighbours as they are, until it is no warmer than that."""
    trace, network, state = _now(study, node, gpu)
    if network.idle_w is None:
        return Crossing(gpu, rest_to_c, None, None, None, "its idle power is in no record: record with --idle-s 10")
    around_w = _neighbours_now(trace)
    settles = float(network.path(state, network.idle_w, around_w, np.array([math.inf]))[0])
    time_s = _first(network, state, network.idle_w, around_w, lambda path: path <= rest_to_c)
    why = f"idling at {network.idle_w:.0f} W it settles at {settles:.0f} °C"
    return Crossing(gpu, rest_to_c, time_s, settles, network.idle_w, f"never: {why}" if time_s is None else why)


def coolest_places(study: Study, node: Sequence[Trace], job_w: float, horizon_s: float) -> list[Place]:
    """Rank the GPUs on which a job would be coolest, the best first; busy GPUs come last.

    Parameters
    ----------
    study, node
        Fitted study, and the GPUs of one node now.
    job_w
        Power of the GPU that the job runs on.
    horizon_s
        After which time.

    Raises
    ------
    ThermalError
        If no GPU may draw so much, or `rc` was not fitted.
    """
    limits = [trace.sensors.get("power_limit_w", np.array([math.nan])) for trace in node]
    most_w = max((float(np.nanmax(limit)) for limit in limits if np.isfinite(limit).any()), default=math.inf)
    if job_w > most_w:
        raise ThermalError(f"--job {job_w:g}W: is above the power limit of all GPUs, {most_w:g} W. Give less.")
    known = {trace.gpu: _now(study, node, trace.gpu) for trace in node}
    places = []
    for chosen, (trace, network, _) in known.items():
        watts = {uuid: _power_now(each) for uuid, (each, _, _) in known.items()}
        busy = network.idle_w is not None and watts[chosen] > _IDLE_BELOW * network.idle_w
        watts[chosen] = job_w
        warm = {
            uuid: each.path(
                state, watts[uuid], {k: v for k, v in watts.items() if k != uuid}, np.array([horizon_s, math.inf])
            )
            for uuid, (_, each, state) in known.items()
        }
        after, settled = (float(value) for value in warm[chosen])
        places.append(Place(trace.gpu, after, settled, max(float(path[0]) for path in warm.values()), busy))
    return sorted(places, key=lambda place: (place.busy, place.temperature_c))


def _now(study: Study, node: Sequence[Trace], gpu: str) -> tuple[Trace, Network, Array]:
    """Return a GPU's trace, its network, and the states that this is in now."""
    if (fitted := study.fitted.get(RcNetworks.name)) is None or not isinstance(fitted.model, RcNetworks):
        raise ThermalError("only the model rc answers that: fit it with --model rc.")
    trace = next(each for each in node if each.gpu == gpu)
    network = _network(fitted.model, trace)
    return trace, network, network.states(fitted.model.task.seen(trace))[-1]


def _network(model: RcNetworks, trace: Trace) -> Network:
    network = model.network_of(trace.gpu, trace.gpu_name)
    if network is None:
        known = ", ".join(sorted(model.models_)) or "none"
        raise ThermalError(f"{trace.gpu} ({trace.gpu_name}): no such GPU was fitted; the fit knows {known}.")
    return network


def _power_now(trace: Trace) -> float:
    return float(mean_over(trace.power_w, max(1, round(HOLD_S / trace.step_s)))[-1])


def _neighbours_now(trace: Trace) -> dict[str, float]:
    held = mean_over(trace.neighbours_w, max(1, round(HOLD_S / trace.step_s)))[-1]
    return dict(zip(trace.neighbours, (float(watts) for watts in held), strict=True))


def _first(network: Network, state: Array, load_w: float, around_w: dict[str, float], reached: Any) -> float | None:
    """Return the first whole second at which the path is there; None if it is not within four hours."""
    times = np.arange(0.0, _LONGEST_S)
    there = np.flatnonzero(reached(network.path(state, load_w, around_w, times)))
    return float(times[there[0]]) if len(there) else None
