"""What calls cost a host relative to the median host, on which hosts a GPU was measured, and a pass on one."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.predict.composition.overheads import HostOverheads, Overheads
from clockwatt.predict.composition.pipeline import COST_COLUMNS, Composer, Composition
from clockwatt.schema import layout, tables
from clockwatt.schema.costs import TIME_HOST_CORRECTED
from clockwatt.schema.records import TRAINING

_QUANTILES = (0.05, 0.5, 0.95)
_FEWEST_SESSIONS = 3
"""Sessions whose networks tell how quick hosts were, in place of anchors."""


@dataclass(frozen=True)
class HostCosts:
    """How a pass costs on a host, relative to the host that the dataset levels to.

    That is the median session as anchors tell it, and costs of operations are told for it. The median host that answers
    are for where none is named is `overall` times as slow, see `HostsSeen.costs`.

    Attributes
    ----------
    name
        Of a host with a profile; None for the median of those seen.
    overall
        Factor of all calls.
    of_classes
        Operation class to its factor; `overall` for others.
    overheads
        What the pass costs beside its calls; None for `overall` times that of the host levelled to.
    low, high
        Range of what calls cost relative to this, 90 % of it: over the host's hours, or over the hosts seen.
    """

    name: str | None = None
    overall: float = 1.0
    of_classes: Mapping[str, float] | None = None
    overheads: HostOverheads | None = None
    low: float = 1.0
    high: float = 1.0

    def factors(self, classes: pd.Series) -> NDArray[np.float64]:
        """Factor of each operation's host time; shape (operations,)."""
        known = self.of_classes or {}
        return np.array([known.get(str(name), self.overall) for name in classes], dtype=np.float64)

    def on(self, overheads: Overheads, pass_: str) -> Overheads:
        """Overheads of the host levelled to, as they are on this one."""
        scaled = overheads.on_host(self.overall)
        if self.overheads is None:
            return scaled
        own = replace(scaled.of(pass_), host=replace(self.overheads, call_s=scaled.of(pass_).host.call_s))
        return replace(scaled, training=own) if pass_ == TRAINING else replace(scaled, inference=own)


@dataclass(frozen=True)
class HostsSeen:
    """What calls cost the hosts that a GPU was measured on.

    Attributes
    ----------
    sessions
        `host` and `cpu_model` of each session of measuring, `factor` of its calls relative to the median session, told
        by anchors, and `passes`: what passes of whole networks took there over what is composed for a factor of 1, by
        pass, where they were measured.
    """

    sessions: tuple[dict[str, Any], ...]

    def of_networks(self, pass_: str) -> tuple[dict[str, Any], ...]:
        """The sessions whose networks tell what a pass costs hosts; none where there are too few."""
        measured = tuple(session for session in self.sessions if pass_ in session["passes"])
        return measured if len(measured) >= _FEWEST_SESSIONS else ()

    def telling(self, pass_: str, *, is_network: bool) -> tuple[dict[str, Any], ...]:
        """The sessions that tell what hosts cost: those of `of_networks` for a network if there are any, else all."""
        return (self.of_networks(pass_) if is_network else ()) or self.sessions

    def costs(self, pass_: str, *, is_network: bool) -> HostCosts:
        """Of the median host in a pass, and the range of those seen.

        A list of operations, `is_network` False, is not held up as a whole network is: anchors tell what it costs.
        """
        if is_network and (telling := self.of_networks(pass_)):
            low, median, high = np.quantile([session["passes"][pass_] for session in telling], _QUANTILES)
            return HostCosts(overall=float(median), low=float(low / median), high=float(high / median))
        if not self.sessions:
            return HostCosts()
        low, _, high = np.quantile([session["factor"] for session in self.sessions], _QUANTILES)
        return HostCosts(low=min(1.0, float(low)), high=max(1.0, float(high)))

    @classmethod
    def of_dataset(cls, dataset_dir: Path, gpu: str, levels: Mapping[str, Mapping[str, float]]) -> Self:
        """Those of one GPU of a dataset.

        Parameters
        ----------
        dataset_dir, gpu
            Where they are.
        levels
            From `composition.networks.host_levels`.

        Raises
        ------
        DataFileError
            If a table is missing or damaged.
        """
        columns = ["gpu", "session_id", "host", "cpu_model", "anchor_host_factor"]
        both = ((layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA), (layout.NETWORKS_FILE, tables.NETWORKS_SCHEMA))
        rows = pd.concat(
            [files.read_table(dataset_dir / name, schema, columns).to_pandas() for name, schema in both],
            ignore_index=True,
        )
        known = rows[(rows["gpu"] == gpu) & rows["anchor_host_factor"].notna()].drop_duplicates("session_id")
        found = known.sort_values(["host", "anchor_host_factor"])
        return cls(tuple(_session(row, levels.get(row["session_id"], {})) for row in found.to_dict("records")))

    def write(self, folder: Path) -> None:
        """Write it beside a GPU's predictors."""
        files.write_text(json.dumps({"sessions": self.sessions}, indent=1) + "\n", folder / layout.HOSTS_SEEN_FILE)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `write` wrote; none seen where there is no such file, as in folders of older fits.

        DataFileError if the file is damaged.
        """
        path = folder / layout.HOSTS_SEEN_FILE
        try:
            sessions = json.loads(path.read_text(encoding="utf-8"))["sessions"]
            return cls(tuple(_checked(session) for session in sessions))
        except FileNotFoundError:
            return cls(())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(f"{path}: not a list of hosts ({error!r}). Run `clockwatt fit` again.") from error


def _checked(session: Mapping[str, Any]) -> dict[str, Any]:
    """The session with what is computed with as numbers; ValueError if one is not above 0 or is not finite."""
    factor = float(session["factor"])
    passes = {str(pass_): float(level) for pass_, level in session.get("passes", {}).items()}
    if not all(0 < number < math.inf for number in (factor, *passes.values())):
        raise ValueError(f"a host's factor must be a number above 0, not {[factor, *passes.values()]}")
    return {"host": session["host"], "cpu_model": session["cpu_model"], "factor": factor, "passes": passes}


def _session(row: Mapping[Hashable, Any], levels: Mapping[str, float]) -> dict[str, Any]:
    session = {"host": row["host"], "cpu_model": row["cpu_model"], "factor": round(float(row["anchor_host_factor"]), 4)}
    return session | {"passes": {pass_: round(level, 4) for pass_, level in levels.items()}}


_LONGER = 1.001
"""From here on a pass takes longer than host and device need: it waits for the power limit."""
_HOST_INDEX = COST_COLUMNS.index(TIME_HOST_CORRECTED)


@dataclass(frozen=True)
class HostAnswer:
    """What an answer says of the host.

    Attributes
    ----------
    name
        Of the host with a profile; None for the median of those seen.
    factor
        What its calls cost relative to the median host's that answers are for where none is named.
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
    *,
    is_network: bool,
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
    is_network
        False for a list of operations.
    """

    def on(times: float) -> Composition:
        scaled = costs.copy()
        scaled[:, _HOST_INDEX] *= factors * times
        own = host.on(overheads, pass_)
        return composer.compose(scaled, own if times == 1.0 else own.on_host(times))

    expected, graph, telling = on(1.0), on(0.0), seen.telling(pass_, is_network=is_network)
    answer = HostAnswer(
        name=host.name,
        factor=host.overall / seen.costs(pass_, is_network=is_network).overall,
        low=host.low,
        high=host.high,
        sessions=0 if host.name else len(telling),
        hosts=1 if host.name else len({session["host"] for session in telling}),
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
