"""Cost of calls on a host relative to the median host, the hosts that a GPU was measured on, and a pass on a host."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
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
from clockwatt.schema.records import HOST_LEFT_OUT, TRAINING

_QUANTILES = (0.05, 0.5, 0.95)
_MOST_APART = 1000.0
"""Largest plausible ratio of two hosts' times for a call; a factor beyond it is refused."""
_FEWEST_SESSIONS = 3
"""Fewest sessions with whole networks to estimate host speeds from networks instead of reference operations."""


@dataclass(frozen=True)
class HostCosts:
    """Cost of a pass on a host, relative to the host that the dataset is normalised to.

    That host is the median session by reference operations; costs of operations are predicted for it. Without a named
    host, answers are for the median host, which is `overall` times as slow, see `HostsSeen.costs`.

    Attributes
    ----------
    name
        Of a host with a profile; None for the median of those seen.
    overall
        Factor of all calls.
    of_classes
        Operation class to its factor; `overall` for others.
    overheads
        Overheads of the pass; None for `overall` times those of the host that the dataset is normalised to.
    low, high
        90 % range of the cost of calls relative to this: over time on the host, or over the hosts seen.
    """

    name: str | None = None
    overall: float = 1.0
    of_classes: Mapping[str, float] | None = None
    overheads: HostOverheads | None = None
    low: float = 1.0
    high: float = 1.0

    def factors(self, classes: pd.Series) -> NDArray[np.float64]:
        """Return the factor of each operation's host time; shape (operations,)."""
        known = self.of_classes or {}
        return np.array([known.get(str(name), self.overall) for name in classes], dtype=np.float64)

    def on(self, overheads: Overheads, pass_: str) -> Overheads:
        """Convert overheads of the host that the dataset is normalised to into this host's."""
        scaled = overheads.on_host(self.overall)
        if self.overheads is None:
            return scaled
        own = replace(scaled.of(pass_), host=replace(self.overheads, call_s=scaled.of(pass_).host.call_s))
        return replace(scaled, training=own) if pass_ == TRAINING else replace(scaled, inference=own)


@dataclass(frozen=True)
class HostsSeen:
    """Cost of calls on the hosts that a GPU was measured on.

    Attributes
    ----------
    sessions
        `host` and `cpu_model` of each measurement session; `factor` of its calls relative to the median session, by
        reference operations; and `passes`, by pass: measured host time of whole networks over that composed for a
        factor of 1, where they were measured.
    """

    sessions: tuple[dict[str, Any], ...]

    def of_networks(self, pass_: str) -> tuple[dict[str, Any], ...]:
        """Return the sessions with measured networks in a pass; none where there are too few."""
        measured = tuple(session for session in self.sessions if pass_ in session["passes"])
        return measured if len(measured) >= _FEWEST_SESSIONS else ()

    def telling(self, pass_: str, *, is_network: bool) -> tuple[dict[str, Any], ...]:
        """Return the sessions to estimate hosts from: for a network `of_networks` if there are any, else all."""
        return (self.of_networks(pass_) if is_network else ()) or self.sessions

    def costs(self, pass_: str, *, is_network: bool) -> HostCosts:
        """Return the costs of the median host in a pass, and the range of the hosts seen.

        For a list of operations (`is_network` False) the factors come from reference operations: it lacks the delays of
        whole networks.
        """
        if is_network and (telling := self.of_networks(pass_)):
            low, median, high = np.quantile([session["passes"][pass_] for session in telling], _QUANTILES)
            return HostCosts(overall=float(median), low=float(low / median), high=float(high / median))
        if not self.sessions:
            return HostCosts()
        low, _, high = np.quantile([session["factor"] for session in self.sessions], _QUANTILES)
        return HostCosts(low=min(1.0, float(low)), high=max(1.0, float(high)))

    def told_for(self, pass_: str, *, is_network: bool) -> str | None:
        """Return the hosts that answers are based on, as text to compare between GPUs; None if not known."""
        names = {session["host"] for session in self.telling(pass_, is_network=is_network)}
        if not names or not names.isdisjoint({None, "", HOST_LEFT_OUT}):
            return None
        whole = is_network and bool(self.of_networks(pass_))
        return ("networks: " if whole else "anchors: ") + ", ".join(sorted(names))

    @classmethod
    def of_dataset(cls, dataset_dir: Path, gpu: str, levels: Mapping[str, Mapping[str, float]]) -> Self:
        """Return the hosts of one GPU of a dataset.

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
        """Write the sessions into the folder of a GPU's predictors."""
        files.write_text(json.dumps({"sessions": self.sessions}, indent=1) + "\n", folder / layout.HOSTS_SEEN_FILE)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `write` wrote; no sessions where the file is missing, as in folders of older fits.

        DataFileError if the file is damaged.
        """
        path = folder / layout.HOSTS_SEEN_FILE
        try:
            return cls(_checked_sessions(json.loads(path.read_text(encoding="utf-8"))["sessions"]))
        except FileNotFoundError:
            return cls(())
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DataFileError(f"{path}: not a list of hosts ({error!r:.200}). Run `clockwatt fit` again.") from error


def _checked_sessions(sessions: object) -> tuple[dict[str, Any], ...]:
    if not isinstance(sessions, list):
        raise TypeError(f"no list of sessions but {type(sessions).__name__}")
    return tuple(_checked(session) for session in sessions)


def _checked(session: Mapping[str, Any]) -> dict[str, Any]:
    """Return the session with its numeric fields as floats.

    TypeError or ValueError if a field has another type, or a factor is implausible.
    """
    names = {name: _null_for_nan(session[name]) for name in ("host", "cpu_model")}
    if not all(isinstance(name, str | None) for name in names.values()):
        raise TypeError(f"not names: {names}")
    factor = float(session["factor"])
    passes = {str(pass_): float(level) for pass_, level in session.get("passes", {}).items()}
    if not all(1 / _MOST_APART <= number <= _MOST_APART for number in (factor, *passes.values())):
        raise ValueError(f"no factors that hosts differ by: {[factor, *passes.values()]}")
    return names | {"factor": factor, "passes": passes}


def _null_for_nan(value: Any) -> Any:  # which is what pandas makes of a null
    return None if isinstance(value, float) and math.isnan(value) else value


def _session(row: Mapping[Hashable, Any], levels: Mapping[str, float]) -> dict[str, Any]:
    return {
        "host": _null_for_nan(row["host"]),
        "cpu_model": _null_for_nan(row["cpu_model"]),
        "factor": round(float(row["anchor_host_factor"]), 4),
        "passes": {pass_: round(level, 4) for pass_, level in levels.items()},
    }


_LONGER = 1.001
"""Ratio of the time of a pass to the larger of its host and device time from which on it is power-capped."""
_HOST_INDEX = COST_COLUMNS.index(TIME_HOST_CORRECTED)


@dataclass(frozen=True)
class HostAnswer:
    """Host of an answer, and what limits the pass there.

    Attributes
    ----------
    name
        Of the host with a profile; None for the median of those seen.
    factor
        Cost of its calls relative to those of the median host.
    low, high
        Range that the interval of time covers, relative to the median host: over its hours, or over the hosts seen.
    sessions, hosts
        Number of measurement sessions, and names of hosts, that the range is based on.
    paced_by
        Bottleneck of the pass: `host`, `device` or `power_limit`.
    graph_time_s, graph_saves_s
        Time of a pass with CUDA graphs, that of the device alone, and the time that they would save.
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


DIFFERENT_HOSTS = (
    "This pass is host-bound on {}, and the GPUs were measured with different or unknown hosts. Part of the difference "
    "between these GPUs is that between their hosts. `--host NAME` predicts all of them for one host."
)
"""Message of `different_hosts`, with a field for the GPUs."""


@dataclass(frozen=True)
class HostSpan:
    """A pass on a host, and on the fastest and slowest host of its range."""

    expected: Composition
    quick: Composition
    slow: Composition
    answer: HostAnswer

    def widened(self, intervals: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """Widen intervals for one host to the whole range; for power, the slow end gives the lower limit."""
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
        The pass; `COST_COLUMNS` of its operations on the median host, shape (operations, 5); and its overheads.
    pass_
        `inference` or `training`.
    host, factors
        The host, and its factor of each operation, from `HostCosts.factors`; shape (operations,).
    seen
        Hosts that the GPU was measured on.
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


def different_hosts(
    answers: Mapping[str, Sequence[HostAnswer | None]], seen: Mapping[str, HostsSeen], pass_: str, *, is_network: bool
) -> list[str]:
    """Warn where GPUs are compared in a host-bound pass, but were measured with different hosts.

    Parameters
    ----------
    answers
        GPU to the hosts of its answers; None for an answer without a host.
    seen
        GPU to the hosts it was measured with.
    pass_, is_network
        As in `HostsSeen.costs`.

    Returns
    -------
    list of str
        One sentence; none for a named host, for a single GPU, for passes that are not host-bound, and where all GPUs
        were measured with the same hosts.
    """
    known = {gpu: [one for one in each if one is not None] for gpu, each in answers.items()}
    known = {gpu: each for gpu, each in known.items() if each}
    paced = [gpu for gpu, each in known.items() if any(one.paced_by == "host" for one in each)]
    if len(known) < 2 or not paced or any(one.name is not None for each in known.values() for one in each):
        return []
    hosts = {seen[gpu].told_for(pass_, is_network=is_network) for gpu in known}
    if len(hosts) == 1 and None not in hosts:
        return []
    return [DIFFERENT_HOSTS.format(" and ".join(paced))]
