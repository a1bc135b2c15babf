"""Networks measured whole, and the same networks composed from costs of their operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from clockwatt.io import files
from clockwatt.predict.description import GpuDescription
from clockwatt.predict.gpumodel import GpuModel
from clockwatt.predict.network import COST_COLUMNS, compose
from clockwatt.predict.pointcosts import PointCosts
from clockwatt.predict.predictors import TARGETS
from clockwatt.predict.samples import EXCLUDED_FLAGS, level_cards, read_gpu_rows, worth_most
from clockwatt.schema import records, tables
from clockwatt.schema.flags import HOST_UNSTEADY, flagged

MEASURED = "measured"
PREDICTED = "predicted"

VALIDATION_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("gpu_name", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        pa.field("network_id", pa.string()),
        pa.field("network", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("source", pa.string()),  # of the operations' costs: measured, or predicted with the network left out
        pa.field("measured_time_s", pa.float64()),
        pa.field("measured_energy_j", pa.float64()),
        pa.field("measured_power_w", pa.float64()),
        pa.field("time_s", pa.float64()),
        pa.field("latency_s", pa.float64()),
        pa.field("device_s", pa.float64()),
        pa.field("host_s", pa.float64()),
        pa.field("energy_dynamic_j", pa.float64()),
        pa.field("energy_j", pa.float64()),
        pa.field("power_w", pa.float64()),
        pa.field("plain_time_s", pa.float64()),
        pa.field("plain_energy_j", pa.float64()),
        pa.field("calls", pa.int64()),
        pa.field("calls_without_cost", pa.int64()),
    ],
    metadata={"kind": "validation"},
)
"""One whole network against one composition, see `network.Composition`; what is not known of the host is null."""

_NETWORK_COLUMNS = [
    "subject_id",
    "pass",
    "point",
    "tf32",
    "status",
    "flags",
    "anchor_time_factor",
    "anchor_power_factor",
    "anchor_host_factor",
    "time_host_s",
    "time_device_s",
    "time_eager_s",
    "power_w",
    "power_limit_w",
    "energy_j",
    "energy_dynamic_j",
]
_KEY = ["pass", "point", "tf32"]
_PACED_BY_DEVICE = 1.05
"""Time of a pass back to back over its device time up to which the device paces it."""
_AT_LIMIT = 0.95
"""Share of the power limit from which on the device paces a pass, slower than it would be without."""


@dataclass(frozen=True)
class Catalogue:
    """What networks call, by network id and pass."""

    networks: dict[tuple[str, str], records.NetworkRow]
    calls: dict[tuple[str, str], pd.DataFrame]
    operations: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Catalogue:
        """Read a folder; DataFileError if a file is missing or damaged."""
        networks = files.read_table(folder / "networks.parquet", records.NETWORK_SCHEMA).to_pylist()
        columns = ["network_id", "pass", "position", "phase", "operation_id"]
        calls = files.read_table(folder / "calls.parquet", records.CALL_SCHEMA, columns).to_pandas()
        return cls(
            networks={(row["network_id"], row["pass"]): records.row_of(records.NetworkRow, row) for row in networks},
            calls={
                (str(key[0]), str(key[1])): group.sort_values("position")
                for key, group in calls.groupby(["network_id", "pass"])
            },
            operations=files.read_table(folder / "operations.parquet", records.OPERATION_SCHEMA).to_pandas(),
        )

    def called(self, pass_: str) -> dict[str, frozenset[str]]:
        """Name of every network to the operations that it calls in a pass, at all its inputs and dtypes."""
        found: dict[str, frozenset[str]] = {}
        for key, network in self.networks.items():
            if key[1] == pass_ and key in self.calls:
                ids = frozenset(self.calls[key]["operation_id"])
                found[network.network] = found.get(network.network, frozenset()) | ids
        return found

    def called_by(self, whole: pd.DataFrame, pass_: str) -> pd.DataFrame:
        """What the networks that were measured whole call in a pass: `operation_id`, `point` and `tf32`, each once."""
        parts = [
            pd.DataFrame({"operation_id": self.calls[key]["operation_id"].unique(), "point": point, "tf32": tf32})
            for identity, point, tf32 in whole.loc[whole["pass"] == pass_, ["subject_id", "point", "tf32"]].itertuples(
                index=False
            )
            if (key := (str(identity), pass_)) in self.calls
        ]
        columns = ["operation_id", "point", "tf32"]
        return pd.concat(parts, ignore_index=True).drop_duplicates() if parts else pd.DataFrame(columns=columns)

    def names(self, whole: pd.DataFrame, pass_: str) -> list[str]:
        """Names of the networks that were measured whole in a pass, sorted."""
        ids = whole.loc[whole["pass"] == pass_, "subject_id"]
        keys = {(str(identity), pass_) for identity in ids} & set(self.calls)
        return sorted({self.networks[key].network for key in keys})


Costs = Callable[[str, str, str, bool], pd.DataFrame]
"""Name of a network, pass, operating point and TF32 to costs: `COST_COLUMNS` indexed by operation id."""

AddedFor = Callable[[str, str], PointCosts]
"""Name of a network and operating point to what networks add to the costs of their calls."""


def whole_networks(dataset_dir: Path, gpu: str) -> tuple[pd.DataFrame, int]:
    """Medians over repetitions of networks measured whole, and how many rows no composition can be held against.

    `host_factor` is that of the host in the session: cards can be levelled, what a host delays cannot. `host_steady` is
    whether one can be told at all, since the host's speed did not vary within the session. If it did, a pass is
    `repeatable` only if the device is known to pace it: at another minute the host takes another time. Device times
    count in any case. Of repetitions, those on steady hosts count; without any, those that the device paced; else all.
    """
    rows = read_gpu_rows(dataset_dir / tables.NETWORKS_FILE, tables.NETWORKS_SCHEMA, gpu, _NETWORK_COLUMNS).to_pandas()
    at_limit = rows["power_w"].astype(float) >= _AT_LIMIT * rows["power_limit_w"].astype(float)
    level_cards(rows)
    steady = ~flagged(rows, HOST_UNSTEADY)
    device_s, eager_s = rows["time_device_s"].astype(float), rows["time_eager_s"].astype(float)
    rows = rows.assign(
        host_factor=rows["anchor_host_factor"].fillna(1.0),
        host_steady=steady,
        repeatable=steady | (eager_s <= _PACED_BY_DEVICE * device_s) | at_limit,
    )
    usable = rows[(rows["status"] == records.OK) & ~flagged(rows, *EXCLUDED_FLAGS) & eager_s.notna()]
    worth = usable["host_steady"].astype(int) + usable["repeatable"].astype(int)
    key = ["subject_id", *_KEY]
    kept = worth_most(usable, worth, key)
    grouped = kept.groupby(key)
    medians = ["time_eager_s", "time_host_s", "time_device_s", "power_w", "energy_j", "host_factor"]
    whole = grouped[medians].median().join(grouped[["host_steady", "repeatable"]].all())
    return whole.reset_index(), len(rows) - int(kept["repeatable"].sum())


def compositions(
    whole: pd.DataFrame,
    catalogue: Catalogue,
    description: GpuDescription,
    added: AddedFor,
    source: str,
    costs: Costs,
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
    description
        Of the GPU.
    added
        What networks add to their calls.
    source, costs
        Where the costs of operations come from; one of `MEASURED` and `PREDICTED`.

    Returns
    -------
    pandas.DataFrame
        Columns of `VALIDATION_SCHEMA`.
    """
    rows = []
    for measured in whole[whole["repeatable"]].to_dict("records"):
        key = (str(measured["subject_id"]), str(measured["pass"]))
        if key not in catalogue.calls:
            continue
        network, point, tf32 = catalogue.networks[key], str(measured["point"]), bool(measured["tf32"])
        of_operations = costs(network.network, key[1], point, tf32)
        factor = float(measured["host_factor"]) if measured["host_steady"] else 0.0
        of_operations = of_operations.assign(time_host_s=factor * of_operations["time_host_s"])
        point_costs = added(network.network, point).on_host(factor)
        composition = compose(catalogue.calls[key], network, of_operations, point_costs).to_dict()
        if not measured["host_steady"]:
            composition |= {"host_s": None, "latency_s": None}
        rows.append(
            {
                "gpu": description.gpu,
                "gpu_name": description.gpu_name,
                "virtual": description.virtual,
                "point": point,
                "tf32": tf32,
                "network_id": key[0],
                "network": network.network,
                "pass": key[1],
                "source": source,
                "measured_time_s": measured["time_eager_s"],
                "measured_energy_j": measured["energy_j"],
                "measured_power_w": measured["power_w"],
                **composition,
            }
        )
    return pd.DataFrame(rows, columns=VALIDATION_SCHEMA.names)


def measured_costs(rows: pd.DataFrame) -> Costs:
    """Costs of operations as measured; `rows` of `samples.Samples`."""
    indexed = {
        (str(pass_), str(point), bool(tf32)): group.set_index("operation_id")
        for (pass_, point, tf32), group in rows.groupby(_KEY)
    }
    none = rows.iloc[:0].set_index("operation_id")
    return lambda _name, pass_, point, tf32: indexed.get((pass_, point, tf32), none)


def left_out_costs(rows: pd.DataFrame, model: GpuModel, operations: pd.DataFrame) -> Costs:
    """Costs of operations with the network left out: predicted, but for those that another network has too.

    Parameters
    ----------
    rows
        Of `leaveout.LEFT_OUT_SCHEMA`, one GPU.
    model
        Of that GPU.
    operations
        Of the catalogue.
    """
    looked_up = rows["learnt"] & ~rows["unseen"]
    values = {target: rows[f"predicted_{target}"].where(~looked_up, rows[target]).to_numpy() for target in TARGETS}
    predicted = pd.DataFrame(values, index=rows["operation_id"])
    keys = [rows[name].to_numpy() for name in ("network", *_KEY)]
    indexed = {
        (str(name), str(pass_), str(point), bool(tf32)): group
        for (name, pass_, point, tf32), group in _cost_columns(predicted).groupby(keys)
    }
    none = pd.DataFrame(columns=COST_COLUMNS, dtype=float)

    @functools.cache
    def workless(pass_: str, point: str, tf32: bool) -> pd.DataFrame:
        asked = operations[(operations["pass"] == pass_) & ~operations["device_work"]]
        return _cost_columns(model.predict(asked, pass_, point, tf32=tf32, look_up=False))

    def costs(name: str, pass_: str, point: str, tf32: bool) -> pd.DataFrame:
        learnt = indexed.get((name, pass_, point, tf32), none)
        known = workless(pass_, point, tf32) if pass_ in model.description.passes else none
        return pd.concat([part for part in (learnt, known) if len(part)] or [none])

    return costs


def _cost_columns(predicted: pd.DataFrame) -> pd.DataFrame:
    return predicted.assign(energy_j=predicted["power_w"] * predicted["time_eager_s"])[COST_COLUMNS]
