"""Networks: what they call, what passes of them took that were measured whole, compared with composed ones."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from clockwatt.io import files
from clockwatt.predict.composition.overheads import Overheads
from clockwatt.predict.composition.pipeline import compose
from clockwatt.predict.training_rows import read_gpu_rows, worth_most
from clockwatt.schema import layout, records, tables
from clockwatt.schema.costs import ENERGY_CORRECTED
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.flags import NEVER_LEARNT_FROM, Flag, flagged

_COSTS = [
    *("time_eager_corrected_s", "time_host_corrected_s", "time_device_corrected_s", "power_corrected_w"),
    ENERGY_CORRECTED,
]
_HOST_ABOVE = 1.1
"""Back to back a pass takes at least its host time: one that claims so much more waited for the device meanwhile."""
_NETWORK_COLUMNS = [
    *("session_id", "time_host_s", "time_eager_s", "time_device_method"),
    *("subject_id", "pass", "point", "execution", "status", "flags", "anchor_host_factor", "power_w", "power_limit_w"),
    *_COSTS,
]
_KEY = ["pass", "point", "execution"]
_DEVICE_BOUND = 1.05
"""Time of a pass back to back over its device time up to which it is device-bound."""
FEWEST_PASSES = 3
"""Passes of a session that tell how quick its host was."""
_AT_LIMIT = 0.95
"""Share of the power limit from which on a pass is device-bound, slower than it would be without."""


@dataclass(frozen=True)
class Catalogue:
    """What networks call, by network id and pass."""

    networks: dict[tuple[str, str], records.NetworkRow]
    calls: dict[tuple[str, str], pd.DataFrame]
    operations: pd.DataFrame

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

    def called(self, pass_: str) -> dict[str, frozenset[str]]:
        """Name of every network to the operations that it calls in a pass, at all its inputs and dtypes."""
        found: dict[str, frozenset[str]] = {}
        for key, network in self.networks.items():
            if key[1] == pass_ and key in self.calls:
                ids = frozenset(self.calls[key]["operation_id"])
                found[network.network] = found.get(network.network, frozenset()) | ids
        return found

    def called_by(self, whole: pd.DataFrame, pass_: str, measured: Collection[str] = ()) -> pd.DataFrame:
        """What the networks that were measured whole call in a pass: `operation_id`, `point` and `execution`.

        `measured` are the execution settings that operations were measured under.
        """
        parts = [
            pd.DataFrame(
                {
                    "operation_id": self.calls[key]["operation_id"].unique(),
                    "point": point,
                    "execution": ExecutionSettings(str(execution)).of_operations(measured),
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
        """Names of the networks that were measured whole in a pass, sorted."""
        ids = whole.loc[whole["pass"] == pass_, "subject_id"]
        keys = {(str(identity), pass_) for identity in ids} & set(self.calls)
        return sorted({self.networks[key].network for key in keys})


CostsOfNetwork = Callable[[str, str, str, ExecutionSettings], pd.DataFrame]
"""Network, pass, operating point and execution settings to costs: `pipeline.COST_COLUMNS` by operation id."""


def whole_networks(dataset_dir: Path, gpu: str) -> tuple[pd.DataFrame, int]:
    """Medians over repetitions of networks measured whole, and how many rows no composition can be compared with.

    `host_factor` is that of the host in the session: what a host delays cannot be levelled. `host_steady` is whether
    there is one at all, since the host's speed did not vary within the session. If it did, a pass is `repeatable` only
    if it is known to be device-bound: at another minute the host takes another time. Device times count in any case.
    Of repetitions, those with energy count, since time and energy are to be of the same passes; of these those on
    steady hosts; without any, those that were device-bound; else all. That holds for host times too: those of all
    repetitions vary more within a session (`docs/results/unseen-networks.md`). Host times are missing where none is
    believed: on an unsteady host, and where `_host_believed` says no.
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
    """Whether the host issued the pass in one go, and did not wait for the device meanwhile.

    Between the parts of a pass that does not fit into the launch queue the host finds the device idle and its own
    caches cold.
    """
    unhindered = rows["time_host_s"].astype(float) <= _HOST_ABOVE * rows["time_eager_s"].astype(float)
    return unhindered & (rows["time_device_method"] != records.IN_SEGMENTS)


def host_levels(
    dataset_dir: Path, gpu: str, catalogue: Catalogue, overheads: OverheadsFor, costs: CostsOfNetwork
) -> dict[str, dict[str, float]]:
    """What passes of networks took the host, by session and pass, over what they are composed to on the median host.

    Anchors are measured for a moment at both ends of a session, and calls alone by the median of short blocks; a pass
    of a network takes long enough to meet the host at its slower moments too.

    Parameters
    ----------
    dataset_dir, gpu
        Where they were measured.
    catalogue, overheads, costs
        As for `compositions`, of the median host; networks with a call whose cost is not known are passed over.

    Returns
    -------
    dict
        Medians over the passes of a session, of those with `FEWEST_PASSES` or more.
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
        pa.field("source", pa.string()),  # of the operations' costs: measured, or predicted with the network left out
        *(pa.field(name, pa.float64()) for name in _NUMBERS),
        pa.field("calls", pa.int64()),
        pa.field("calls_without_cost", pa.int64()),
    ],
    metadata={"kind": "validation"},
)
"""One whole network against one composition, see `pipeline.Composition`; what is not known of the host is null."""

OverheadsFor = Callable[[str, str], Overheads]
"""Name of a network and operating point to what it costs beyond its calls."""


def compositions(
    whole: pd.DataFrame,
    catalogue: Catalogue,
    overheads: OverheadsFor,
    source: str,
    costs: CostsOfNetwork,
) -> pd.DataFrame:
    """Compose every network that was measured whole, repeatably, on the host on which it was measured.

    Where the speed of that host is not known, since it varied, only passes are left with which it kept up: they are
    composed for a host that does, and what a host decides, `host_s` and `latency_s`, is missing.

    Parameters
    ----------
    whole
        From `whole_networks`. Networks that are not in the catalogue, flagged so in the dataset, are passed over.
    catalogue
        What they call.
    overheads
        What networks cost beyond their calls.
    source, costs
        Where the costs of operations come from; one of `MEASURED` and `PREDICTED`.

    Returns
    -------
    pandas.DataFrame
        Columns of `VALIDATION_SCHEMA` but for what they all have in common: `gpu`, `gpu_name` and `virtual`.
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
                "measured_energy_j": measured[ENERGY_CORRECTED],
                "measured_power_w": measured["power_corrected_w"],
                **composition,
            }
        )
    columns = [name for name in VALIDATION_SCHEMA.names if name not in ("gpu", "gpu_name", "virtual")]
    # one that no composition tells is a column of None, which compares with nothing
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(_NUMBERS, float))
