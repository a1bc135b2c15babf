"""Cost of calls on a host relative to the median host, the hosts that a GPU was measured on, and a pass on a host."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, TypeAdapter

from clockwatt.errors import DataFileError, RequestError
from clockwatt.io import files
from clockwatt.io.folders import data_folder, is_readable
from clockwatt.predict.composition.pipeline import COST_COLUMNS, Composer, Composition, Overheads
from clockwatt.predict.evaluation.errors import NORMAL_90
from clockwatt.predict.features import CATALOGUE_COLUMNS
from clockwatt.predict.warning_kinds import AnswerWarning, WarningKind
from clockwatt.schema import layout, tables
from clockwatt.schema.costs import TIME_HOST_CORRECTED
from clockwatt.schema.execution import ExecutionSettings, execution_of_json
from clockwatt.schema.records import HOST_LEFT_OUT, OK, OPERATION

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
        Factor of all calls, modules and starts of a backward pass.
    low, high
        90 % range of the cost of calls relative to this: over time on the host, or over the hosts seen.
    """

    name: str | None = None
    overall: float = 1.0
    low: float = 1.0
    high: float = 1.0

    @property
    def varies(self) -> bool:
        """Whether it is a host with a profile whose variation is known."""
        return self.name is not None and self.high > 1.0


def _null_for_nan(value: Any) -> Any:  # which is what pandas makes of a null
    return None if isinstance(value, float) and math.isnan(value) else value


_Name = Annotated[str | None, BeforeValidator(_null_for_nan)]
_Factor = Annotated[float, Field(ge=1 / _MOST_APART, le=_MOST_APART)]


@dataclass(frozen=True)
class Session:
    """A session that a GPU was measured in: its host, and what calls cost there relative to the median host.

    Attributes
    ----------
    host, cpu_model
        Hostname and processor; None where unknown.
    factor
        By the reference operations.
    passes
        Pass to measured host time of whole networks over that composed for a factor of 1, where they were measured.
    """

    host: _Name
    cpu_model: _Name
    factor: _Factor
    passes: Mapping[str, _Factor] = field(default_factory=dict)


@functools.cache
def _sessions() -> TypeAdapter[tuple[Session, ...]]:
    return TypeAdapter(tuple[Session, ...])


@dataclass(frozen=True)
class HostsSeen:
    """Cost of calls on the hosts that a GPU was measured on.

    Attributes
    ----------
    sessions
        Of all measurements.
    """

    sessions: tuple[Session, ...]

    def of_networks(self, pass_: str) -> tuple[Session, ...]:
        """Return the sessions with measured networks in a pass; none where there are too few."""
        measured = tuple(session for session in self.sessions if pass_ in session.passes)
        return measured if len(measured) >= _FEWEST_SESSIONS else ()

    def telling(self, pass_: str, *, is_network: bool) -> tuple[Session, ...]:
        """Return the sessions to estimate hosts from: for a network `of_networks` if there are any, else all."""
        return (self.of_networks(pass_) if is_network else ()) or self.sessions

    def costs(self, pass_: str, *, is_network: bool) -> HostCosts:
        """Return the costs of the median host in a pass, and the range of the hosts seen.

        For a list of operations (`is_network` False) the factors come from reference operations: it lacks the delays of
        whole networks.
        """
        if is_network and (telling := self.of_networks(pass_)):
            low, median, high = np.quantile([session.passes[pass_] for session in telling], _QUANTILES)
            return HostCosts(overall=float(median), low=float(low / median), high=float(high / median))
        if not self.sessions:
            return HostCosts()
        low, _, high = np.quantile([session.factor for session in self.sessions], _QUANTILES)
        return HostCosts(low=min(1.0, float(low)), high=max(1.0, float(high)))

    def told_for(self, pass_: str, *, is_network: bool) -> str | None:
        """Return the hosts that answers are based on, as text to compare between GPUs; None if not known."""
        names = {session.host for session in self.telling(pass_, is_network=is_network)}
        if not names or not names.isdisjoint({None, "", HOST_LEFT_OUT}):
            return None
        whole = is_network and bool(self.of_networks(pass_))
        return ("networks: " if whole else "reference operations: ") + ", ".join(sorted(map(str, names)))

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
        sessions = (
            Session(
                _null_for_nan(row["host"]),
                _null_for_nan(row["cpu_model"]),
                round(float(row["anchor_host_factor"]), 4),
                {pass_: round(level, 4) for pass_, level in levels.get(row["session_id"], {}).items()},
            )
            for row in found.to_dict("records")
        )
        return cls(tuple(sessions))

    def write(self, folder: Path) -> None:
        """Write the sessions into the folder of a GPU's predictors."""
        files.write_text(json.dumps(asdict(self), indent=1) + "\n", folder / layout.HOSTS_SEEN_FILE)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `write` wrote; no sessions where the file is missing, as in folders of older fits.

        DataFileError if the file is damaged.
        """
        path = folder / layout.HOSTS_SEEN_FILE
        try:
            return cls(_sessions().validate_python(json.loads(path.read_text(encoding="utf-8"))["sessions"]))
        except FileNotFoundError:
            return cls(())
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DataFileError(f"{path}: not a list of hosts ({error!r:.200}). Run `clockwatt fit` again.") from error


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
    "The pass is host-bound on {}. The GPUs were measured with different or unknown hosts. To compare them on "
    "one host, run `clockwatt calibrate --host NAME` on it, then add `--host NAME`."
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
        """Widen intervals for one host to the whole range; for power, the slow end gives the lower limit.

        The error on a known host and the host's deviation from the median one are independent: their logarithms add up
        in quadrature.
        """
        found = {}
        for name, ends in intervals.items():
            here, *of_hosts = (getattr(one, name) for one in (self.expected, self.quick, self.slow))
            if here and all(of_hosts):
                ratios = [1.0, *(value / here for value in of_hosts)]
                down, up = (
                    math.hypot(math.log(end / here), math.log(ratio))
                    for end, ratio in zip(ends, (min(ratios), max(ratios)), strict=True)
                )
                ends = here * math.exp(-down), here * math.exp(up)
            found[name] = ends
        return found


def span(
    composer: Composer,
    costs: NDArray[np.float64],
    overheads: Overheads,
    pass_: str,
    host: HostCosts,
    seen: HostsSeen,
    *,
    is_network: bool,
) -> HostSpan:
    """Compose a pass on a host.

    Parameters
    ----------
    composer, costs, overheads
        The pass; `COST_COLUMNS` of its operations on the host that the dataset is normalised to, shape (operations, 5);
        and its overheads there.
    pass_
        `inference` or `training`.
    host
        The host.
    seen
        Hosts that the GPU was measured on.
    is_network
        False for a list of operations.
    """

    def on(times: float) -> Composition:
        scaled, factor = costs.copy(), host.overall * times
        scaled[:, _HOST_INDEX] *= factor
        return composer.compose(scaled, overheads.on_host(factor))

    expected, graph, telling = on(1.0), on(0.0), seen.telling(pass_, is_network=is_network)
    answer = HostAnswer(
        name=host.name,
        factor=host.overall / seen.costs(pass_, is_network=is_network).overall,
        low=host.low,
        high=host.high,
        sessions=0 if host.name else len(telling),
        hosts=1 if host.name else len({session.host for session in telling}),
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
    return [AnswerWarning(DIFFERENT_HOSTS.format(" and ".join(paced)), WarningKind.DIFFERENT_HOSTS)]


HOSTS_FOLDER = "hosts"
"""Beside the folders of predictors: a JSON file for each host that has a profile."""


_KEY = ["operation_id", "pass"]
_COLUMNS = [*CATALOGUE_COLUMNS, "pass", "device_work", "host_s"]
"""Of the operations of a profile."""


class HostModel(Protocol):
    """Interface of a GPU's predictors that a host's factor needs."""

    @property
    def hosts_seen(self) -> HostsSeen:
        """Return the hosts that the GPU was measured on."""

    def predict(
        self, operations: pd.DataFrame, pass_: str, point: str, *, execution: ExecutionSettings
    ) -> pd.DataFrame:
        """Predict costs of operations on the median host; see `GpuPredictor.predict`."""


@dataclass(frozen=True)
class HostProfile:
    """Measured profile of a host.

    Attributes
    ----------
    name, host, cpu_model
        The user's name for it, its hostname, and its processor.
    gpu_name, point, execution, virtual
        GPU, operating point and execution settings of the measurement.
    torch_version, measured_us, seconds
        PyTorch version, time (µs since the epoch) and duration of the measurement.
    operations
        A few of every class and pass, with `features.CATALOGUE_COLUMNS`, `pass`, `device_work` and `host_s`.
    """

    name: str
    host: str
    cpu_model: str | None
    gpu_name: str
    point: str
    execution: ExecutionSettings
    virtual: bool
    torch_version: str | None
    measured_us: int
    seconds: float
    operations: list[dict[str, Any]]

    def costs(self, model: HostModel, pass_: str) -> HostCosts:
        """Return this host's factor in a pass: the median over its operations, relative to a GPU's predictions.

        Its range is that of 90 % of single operations: networks on one host differ as much from each other.
        """
        own = pd.DataFrame([row for row in self.operations if row["pass"] == pass_])
        if own.empty:
            raise DataFileError(
                f"profile of host {self.name}: holds no operation of {pass_}. Run `clockwatt calibrate --host` again."
            )
        known = model.predict(own, pass_, self.point, execution=self.execution).reindex(own["operation_id"])
        ratio = own["host_s"].to_numpy(float) / known[TIME_HOST_CORRECTED].to_numpy(float)
        valid = np.isfinite(ratio) & (ratio > 0)
        logs = np.log(ratio[valid])
        width = float(np.exp(NORMAL_90 * logs.std()))
        return HostCosts(name=self.name, overall=float(np.exp(np.median(logs))), low=1 / width, high=width)

    def write(self, predictors_dir: Path) -> Path:
        """Write the profile beside the predictors; return the file.

        OutputError if it cannot be written.
        """
        path = profile_path(predictors_dir, self.name)
        files.write_text(json.dumps(asdict(self), indent=1) + "\n", path)
        return path

    @classmethod
    def read(cls, predictors_dir: Path, name: str) -> Self:
        """Read the profile of a host beside the predictors, else in the user's folder.

        RequestError if there is none of that name; DataFileError if it is damaged.
        """
        paths = [profile_path(folder, name) for folder in (predictors_dir, data_folder())]
        path = next(filter(is_readable, paths), paths[0])
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            wanted = set(_COLUMNS)
            lacking = [row for row in content["operations"] if not wanted <= row.keys()]
            (execution,) = execution_of_json(content)
            profile = cls(**content, execution=execution)
        except FileNotFoundError:
            there = sorted(
                {file.stem for one in paths if is_readable(one.parent) for file in one.parent.glob("*.json")}
            )
            raise RequestError(
                f"{{host}} {name}: no such profile in {' or '.join(str(one.parent) for one in paths)} "
                f"(known: {', '.join(there) or 'none'}). Run `clockwatt calibrate --host {name}` on that host."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(
                f"{path}: not a profile of a host ({error!r}). Run `clockwatt calibrate --host {name}` again."
            ) from error
        if lacking:
            raise DataFileError(
                f"{path}: an operation lacks {', '.join(sorted(wanted - lacking[0].keys()))}. "
                f"Run `clockwatt calibrate --host {name}` again."
            )
        return profile


def profile_path(predictors_dir: Path, name: str) -> Path:
    """Return the path of a host's profile; DataFileError if the name is not a valid file name."""
    if not name or not all(letter.isalnum() or letter in "._-" for letter in name) or name.startswith("."):
        raise DataFileError(f"host {name!r}: a host's name has letters, digits, '.', '_' and '-' only.")
    return predictors_dir / HOSTS_FOLDER / f"{name}.json"


def profile_of(name: str, rows: pd.DataFrame, operations: pd.DataFrame, seconds: float) -> HostProfile:
    """Make the profile of a host from measurements.

    Parameters
    ----------
    name
        What the user calls it.
    rows, operations, seconds
        See `measure.calibrate.host.HostMeasurements`.

    Raises
    ------
    DataFileError
        If nothing was measured.
    """
    fine = rows[(rows["status"] == OK) & (rows["kind"] == OPERATION)]
    in_pass, alone = (fine[column].astype(float) for column in ("time_host_in_pass_s", "time_host_s"))
    fine = fine.assign(host_s=in_pass.fillna(alone)).dropna(subset="host_s")
    if fine.empty:
        raise DataFileError(f"host {name}: no operation could be measured. See the messages above.")
    measured = operations.merge(fine.rename(columns={"subject_id": "operation_id"})[[*_KEY, "host_s"]], on=_KEY)
    first = fine.sort_values("started_us").iloc[0]
    return HostProfile(
        name=name,
        host=str(first["host"]),
        cpu_model=_text(first["cpu_model"]),
        gpu_name=str(first["gpu_name"]),
        point=str(first["point"]),
        execution=ExecutionSettings(first["execution"]),
        virtual=bool(first["virtual"]),
        torch_version=_text(first["torch_version"]),
        measured_us=int(first["started_us"]),
        seconds=round(seconds, 1),
        operations=json.loads(measured[_COLUMNS].to_json(orient="records", double_precision=15)),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
