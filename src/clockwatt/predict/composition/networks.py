"""Networks: their calls, their passes measured whole, and the comparison with composed passes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa

from clockwatt.io import files
from clockwatt.predict.composition.pipeline import Overheads, compose
from clockwatt.predict.features import settings_of
from clockwatt.predict.models.training_data import read_gpu_rows, worth_most
from clockwatt.schema import layout, records, tables
from clockwatt.schema.costs import ENERGY_CORRECTED
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.flags import NEVER_LEARNT_FROM, Flag, flagged

_COSTS = [
    *("time_eager_corrected_s", "time_host_corrected_s", "time_device_corrected_s", "power_corrected_w"),
    ENERGY_CORRECTED,
]
_HOST_ABOVE = 1.1
"""Largest ratio of host time to back-to-back time of a pass. Beyond it, the host time includes waiting for the
device."""
_NETWORK_COLUMNS = [
    *("session_id", "time_host_s", "time_eager_s", "time_device_method"),
    *("subject_id", "pass", "point", "execution", "status", "flags", "anchor_host_factor", "power_w", "power_limit_w"),
    *_COSTS,
]
_KEY = ["pass", "point", "execution"]
_DEVICE_BOUND = 1.05
"""Ratio of back-to-back time to device time up to which a pass is device-bound."""
FEWEST_PASSES = 3
"""Fewest passes of a session to estimate the speed of its host."""
_AT_LIMIT = 0.95
"""Share of the power limit from which on a pass is power-capped, and so not limited by the host."""


@dataclass(frozen=True)
class Catalogue:
    """Calls of networks, by network id and pass."""

    networks: dict[tuple[str, str], records.NetworkRow]
    calls: dict[tuple[str, str], pd.DataFrame]
    operations: pd.DataFrame
    _settings: dict[tuple[str, str, frozenset[str]], pd.Series] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, folder: Path) -> Catalogue:
        """Read a folder; DataFileError if a file is missing or damaged."""
        networks = files.read_table(folder / layout.NETWORKS_FILE, records.NETWORK_SCHEMA).to_pylist()
        columns = ["network_id", "pass", "position", "phase", "operation_id"]
        calls = files.read_table(folder / layout.CALLS_FILE, records.CALL_SCHEMA, columns).to_pandas()
        return cls(
            networks={(row["network_id"], row["pass"]): records.row_of(records.NetworkRow, row) for row in networks},
            calls={
                (str(key[0]), str(key[1])): group.sort_values("position")
                for key, group in calls.groupby(["network_id", "pass"])
            },
            operations=files.read_table(folder / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA).to_pandas(),
        )

    def settings(self, pass_: str, execution: str, measured: Collection[str] = ()) -> pd.Series:
        """Map each operation of a pass to the settings that it is measured under, for a network under `execution`.

        `measured` are the settings of the measurements of operations.
        """
        key = pass_, execution, frozenset(measured)
        if key not in self._settings:
            own = self.operations[self.operations["pass"] == pass_]
            found = settings_of(own, ExecutionSettings(execution), measured)
            self._settings[key] = pd.Series(found, own["operation_id"], dtype=object)
        return self._settings[key]

    def called(self, pass_: str) -> dict[str, frozenset[str]]:
        """Map each network's name to the operations that it calls in a pass, at all its inputs and dtypes."""
        found: dict[str, frozenset[str]] = {}
        for key, network in self.networks.items():
            if key[1] == pass_ and key in self.calls:
                ids = frozenset(self.calls[key]["operation_id"])
                found[network.network] = found.get(network.network, frozenset()) | ids
        return found

    def called_by(self, whole: pd.DataFrame, pass_: str, measured: Collection[str] = ()) -> pd.DataFrame:
        """Return what networks measured whole call in a pass: `operation_id`, `point` and `execution`.

        `measured` are the execution settings of the measurements of operations.
        """
        parts = [
            pd.DataFrame(
                {
                    "operation_id": (ids := self.calls[key]["operation_id"].unique()),
                    "point": point,
                    "execution": self.settings(pass_, str(execution), measured).reindex(ids).to_numpy(object),
                }
            )
            for identity, point, execution in whole.loc[
                whole["pass"] == pass_, ["subject_id", "point", "execution"]
            ].itertuples(index=False)
            if (key := (str(identity), pass_)) in self.calls
        ]
        columns = ["operation_id", "point", "execution"]
        return pd.concat(parts, ignore_index=True).drop_duplicates() if parts else pd.DataFrame(columns=columns)

    def names(self, whole: pd.DataFrame, pass_: str) -> list[str]:
        """Return the names of the networks measured whole in a pass, sorted."""
        ids = whole.loc[whole["pass"] == pass_, "subject_id"]
        keys = {(str(identity), pass_) for identity in ids} & set(self.calls)
        return sorted({self.networks[key].network for key in keys})


CostsOfNetwork = Callable[[str, str, str, ExecutionSettings], pd.DataFrame]
"""Function from network, pass, operating point and execution settings to `pipeline.COST_COLUMNS` by operation id."""


def whole_networks(dataset_dir: Path, gpu: str) -> tuple[pd.DataFrame, int]:
    """Return medians over repetitions of networks measured whole, and the number of rows without a composition.

    `host_factor` is that of the host in the session, since delays by the host cannot be normalised. `host_steady` is
    whether there is one: the host's speed must not vary within the session. On an unsteady host, a pass is `repeatable`
    only if it is device-bound; its device time is used in any case. Of the repetitions, those with energy are used, so
    that time and energy belong to the same passes. Of these, those on steady hosts are used; without any, the
    device-bound ones; else all. The same applies to host times (`docs/results/unseen-networks.md`). Host times are
    missing on an unsteady host, and where `_host_believed` is false.
    """
    rows = _rows(dataset_dir, gpu)
    at_limit = rows["power_w"].astype(float) >= _AT_LIMIT * rows["power_limit_w"].astype(float)
    steady = ~flagged(rows, Flag.HOST_UNSTEADY)
    device_s, eager_s = (rows[name].astype(float) for name in ("time_device_corrected_s", "time_eager_corrected_s"))
    rows = rows.assign(
        time_host_corrected_s=rows["time_host_corrected_s"].where(steady & _host_believed(rows)),
        host_factor=rows["anchor_host_factor"].fillna(1.0),
        host_steady=steady,
        repeatable=steady | (eager_s <= _DEVICE_BOUND * device_s) | at_limit,
    )
    usable = rows[_believed(rows) & eager_s.notna()]
    worth = 3 * usable["power_w"].notna() + usable["host_steady"].astype(int) + usable["repeatable"].astype(int)
    key = ["subject_id", *_KEY]
    kept = worth_most(usable, worth, key)
    grouped = kept.groupby(key)
    whole = grouped[[*_COSTS, "host_factor"]].median().join(grouped[["host_steady", "repeatable"]].all())
    return whole.reset_index(), len(rows) - int(kept["repeatable"].sum())


def _rows(dataset_dir: Path, gpu: str) -> pd.DataFrame:
    table = read_gpu_rows(dataset_dir / layout.NETWORKS_FILE, tables.NETWORKS_SCHEMA, gpu, _NETWORK_COLUMNS)
    rows: pd.DataFrame = table.to_pandas()
    return rows


def _believed(rows: pd.DataFrame) -> pd.Series:
    return (rows["status"] == records.OK) & ~flagged(rows, *NEVER_LEARNT_FROM)


def _host_believed(rows: pd.DataFrame) -> pd.Series:
    """Return whether the host issued the pass without waiting for the device.

    A pass that exceeds the launch queue is issued in parts; between these the device idles and the host's caches get
    cold.
    """
    unhindered = rows["time_host_s"].astype(float) <= _HOST_ABOVE * rows["time_eager_s"].astype(float)
    return unhindered & (rows["time_device_method"] != records.IN_SEGMENTS)


def host_levels(
    dataset_dir: Path, gpu: str, catalogue: Catalogue, overheads: OverheadsFor, costs: CostsOfNetwork
) -> dict[str, dict[str, float]]:
    """Return measured over composed host time of networks, by session and pass; composed for the median host.

    Reference operations are measured briefly at both ends of a session, and single calls as the median of short blocks.
    A pass of a network is longer, so it includes the slower moments of the host.

    Parameters
    ----------
    dataset_dir, gpu
        Where they were measured.
    catalogue, overheads, costs
        As for `compositions`, of the median host; networks with a call of unknown cost are skipped.

    Returns
    -------
    dict
        Medians over the passes of each session with `FEWEST_PASSES` or more.
    """
    rows = _rows(dataset_dir, gpu)
    found: list[pd.DataFrame] = []
    for (identity, pass_, point, execution), own in rows[_believed(rows) & _host_believed(rows)].groupby(
        ["subject_id", *_KEY]
    ):
        key = str(identity), str(pass_)
        if key not in catalogue.calls:
            continue
        network = catalogue.networks[key]
        of_operations = costs(network.network, key[1], str(point), ExecutionSettings(str(execution)))
        composition = compose(catalogue.calls[key], network, of_operations, overheads(network.network, str(point)))
        if composition.complete and composition.host_s:
            level = own["time_host_s"].to_numpy(float) / composition.host_s
            found += [pd.DataFrame({"session_id": own["session_id"], "pass": key[1], "level": level})]
    levels: dict[str, dict[str, float]] = {}
    if not found:
        return levels
    for (session, pass_), own in pd.concat(found).groupby(["session_id", "pass"]):
        if len(own) >= FEWEST_PASSES:
            levels.setdefault(str(session), {})[str(pass_)] = float(own["level"].median())
    return levels


MEASURED = "measured"
PREDICTED = "predicted"

_NUMBERS = (
    *("measured_time_s", "measured_energy_j", "measured_power_w", "time_s", "latency_s", "device_s", "host_s"),
    *("energy_dynamic_j", "energy_j", "power_w", "plain_time_s", "plain_energy_j"),
)
VALIDATION_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("gpu_name", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("point", pa.string()),
        pa.field("execution", pa.string()),
        pa.field("network_id", pa.string()),
        pa.field("network", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("source", pa.string()),  # of the operations' costs: measured, or predicted with the network held out
        *(pa.field(name, pa.float64()) for name in _NUMBERS),
        pa.field("calls", pa.int64()),
        pa.field("calls_without_cost", pa.int64()),
    ],
    metadata={"kind": "validation"},
)
"""One whole network and one composition, see `pipeline.Composition`; unknown host times are null."""

OverheadsFor = Callable[[str, str], Overheads]
"""Function from a network's name and an operating point to its overheads."""


def compositions(
    whole: pd.DataFrame,
    catalogue: Catalogue,
    overheads: OverheadsFor,
    source: str,
    costs: CostsOfNetwork,
) -> pd.DataFrame:
    """Compose every network with a repeatable whole measurement, for the host of that measurement.

    On an unsteady host, only device-bound passes are left. They are composed for a host that keeps up with the device,
    and `host_s` and `latency_s` are missing.

    Parameters
    ----------
    whole
        From `whole_networks`. Networks that are not in the catalogue, flagged so in the dataset, are skipped.
    catalogue
        What they call.
    overheads
        Overheads of networks beyond their calls.
    source, costs
        Source of the operations' costs, `MEASURED` or `PREDICTED`, and these costs.

    Returns
    -------
    pandas.DataFrame
        Columns of `VALIDATION_SCHEMA` except `gpu`, `gpu_name` and `virtual`, and `measured_device_s`.
    """
    rows = []
    for measured in whole[whole["repeatable"]].to_dict("records"):
        key = (str(measured["subject_id"]), str(measured["pass"]))
        if key not in catalogue.calls:
            continue
        network, point = catalogue.networks[key], str(measured["point"])
        execution = ExecutionSettings(measured["execution"])
        of_operations = costs(network.network, key[1], point, execution)
        factor = float(measured["host_factor"]) if measured["host_steady"] else 0.0
        of_operations = of_operations.assign(time_host_corrected_s=factor * of_operations["time_host_corrected_s"])
        on_host = overheads(network.network, point).on_host(factor)
        composition = compose(catalogue.calls[key], network, of_operations, on_host).to_dict()
        if not measured["host_steady"]:
            composition |= {"host_s": None, "latency_s": None}
        rows.append(
            {
                "point": point,
                "execution": execution,
                "network_id": key[0],
                "network": network.network,
                "pass": key[1],
                "source": source,
                "measured_time_s": measured["time_eager_corrected_s"],
                "measured_device_s": measured["time_device_corrected_s"],
                "measured_energy_j": measured[ENERGY_CORRECTED],
                "measured_power_w": measured["power_corrected_w"],
                **composition,
            }
        )
    columns = [name for name in VALIDATION_SCHEMA.names if name not in ("gpu", "gpu_name", "virtual")]
    # a quantity that no composition has is a column of None, which cannot be compared
    numbers = dict.fromkeys((*_NUMBERS, "measured_device_s"), float)
    return pd.DataFrame(rows, columns=[*columns, "measured_device_s"]).astype(numbers)
