"""A pass on a host, on one as quick and as slow as its range says, and without a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clockwatt.predict.composition.overheads import Overheads
from clockwatt.predict.composition.pipeline import COST_COLUMNS, Composer, Composition
from clockwatt.predict.hosts.costs import HostCosts, HostsSeen
from clockwatt.predict.hosts.profile import HOST_COLUMN

_LONGER = 1.001
"""From here on a pass takes longer than host and device need: it waits for the power limit."""
_HOST_INDEX = COST_COLUMNS.index(HOST_COLUMN)


@dataclass(frozen=True)
class HostAnswer:
    """What an answer says of the host.

    Attributes
    ----------
    name
        Of the host with a profile; None for the median of those seen.
    factor
        What its calls cost relative to the median host's.
    low, high
        Range that the interval of time spans, relative to that host: over its hours, or over the hosts seen.
    sessions, hosts
        On how many sessions of measuring, and names of hosts, the range rests.
    paced_by
        `host`, `device` or `power_limit`: what the time of a pass follows.
    graph_time_s, graph_saves_s
        What a pass takes whose calls are captured in a graph, the device alone, and how much less that is.
    """

    name: str | None
    factor: float
    low: float
    high: float
    sessions: int
    hosts: int
    paced_by: str
    graph_time_s: float
    graph_saves_s: float


@dataclass(frozen=True)
class HostSpan:
    """A pass on a host, and on one as quick and as slow as its range says."""

    expected: Composition
    quick: Composition
    slow: Composition
    answer: HostAnswer

    def widened(self, intervals: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """Intervals that hold for one host, widened to all of the range; of power the other way round."""
        found = {}
        for name, (lower, upper) in intervals.items():
            here, *ends = (getattr(one, name) for one in (self.expected, self.quick, self.slow))
            if here and all(ends):
                ratios = [end / here for end in ends]
                lower, upper = lower * min(1.0, *ratios), upper * max(1.0, *ratios)
            found[name] = (lower, upper)
        return found


def span(
    composer: Composer,
    costs: NDArray[np.float64],
    overheads: Overheads,
    pass_: str,
    host: HostCosts,
    factors: NDArray[np.float64],
    seen: HostsSeen,
) -> HostSpan:
    """Compose a pass on a host.

    Parameters
    ----------
    composer, costs, overheads
        The pass, `COST_COLUMNS` of its operations on the median host, shape (operations, 5), and what it costs beside.
    pass_
        `inference` or `training`.
    host, factors
        The host, and its factor of each operation, from `HostCosts.factors`; shape (operations,).
    seen
        Where the predictors were measured.
    """

    def on(times: float) -> Composition:
        scaled = costs.copy()
        scaled[:, _HOST_INDEX] *= factors * times
        own = host.on(overheads, pass_)
        return composer.compose(scaled, own if times == 1.0 else own.on_host(times))

    expected, graph = on(1.0), on(0.0)
    answer = HostAnswer(
        name=host.name,
        factor=host.overall,
        low=host.low,
        high=host.high,
        sessions=0 if host.name else len(seen.sessions),
        hosts=1 if host.name else seen.hosts,
        paced_by=_pace(expected),
        graph_time_s=graph.time_s,
        graph_saves_s=expected.time_s - graph.time_s,
    )
    quick, slow = (expected if end == 1.0 else on(end) for end in (host.low, host.high))
    return HostSpan(expected, quick, slow, answer)


def _pace(composition: Composition) -> str:
    assert composition.host_s is not None
    assert composition.device_s is not None
    slower_s = max(composition.host_s, composition.device_s)
    if composition.time_s > _LONGER * slower_s:
        return "power_limit"
    return "host" if composition.host_s > composition.device_s else "device"
