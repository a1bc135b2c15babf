"""Networks: what they call, and what passes of them took that were measured whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from clockwatt.io import files
from clockwatt.predict.samples import read_gpu_rows, worth_most
from clockwatt.schema import layout, records, tables
from clockwatt.schema.costs import ENERGY_CORRECTED
from clockwatt.schema.flags import NEVER_LEARNT_FROM, Flag, flagged

_COSTS = [
    *("time_eager_corrected_s", "time_host_corrected_s", "time_device_corrected_s", "power_corrected_w"),
    ENERGY_CORRECTED,
]
_NETWORK_COLUMNS = [
    *("subject_id", "pass", "point", "tf32", "status", "flags", "anchor_host_factor", "power_w", "power_limit_w"),
    *_COSTS,
]
_KEY = ["pass", "point", "tf32"]
_DEVICE_BOUND = 1.05
"""Time of a pass back to back over its device time up to which it is device-bound."""
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


CostsOfNetwork = Callable[[str, str, str, bool], pd.DataFrame]
"""Name of a network, pass, operating point and TF32 to costs, `pipeline.COST_COLUMNS` indexed by operation id."""


def whole_networks(dataset_dir: Path, gpu: str) -> tuple[pd.DataFrame, int]:
    """Medians over repetitions of networks measured whole, and how many rows no composition can be compared with.

    `host_factor` is that of the host in the session: what a host delays cannot be levelled. `host_steady` is whether
    there is one at all, since the host's speed did not vary within the session. If it did, a pass is `repeatable` only
    if it is known to be device-bound: at another minute the host takes another time. Device times count in any case.
    Of repetitions, those on steady hosts count; without any, those that were device-bound; else all.
    """
    rows = read_gpu_rows(dataset_dir / layout.NETWORKS_FILE, tables.NETWORKS_SCHEMA, gpu, _NETWORK_COLUMNS).to_pandas()
    at_limit = rows["power_w"].astype(float) >= _AT_LIMIT * rows["power_limit_w"].astype(float)
    steady = ~flagged(rows, Flag.HOST_UNSTEADY)
    device_s, eager_s = (rows[name].astype(float) for name in ("time_device_corrected_s", "time_eager_corrected_s"))
    rows = rows.assign(
        host_factor=rows["anchor_host_factor"].fillna(1.0),
        host_steady=steady,
        repeatable=steady | (eager_s <= _DEVICE_BOUND * device_s) | at_limit,
    )
    usable = rows[(rows["status"] == records.OK) & ~flagged(rows, *NEVER_LEARNT_FROM) & eager_s.notna()]
    worth = usable["host_steady"].astype(int) + usable["repeatable"].astype(int)
    key = ["subject_id", *_KEY]
    kept = worth_most(usable, worth, key)
    grouped = kept.groupby(key)
    whole = grouped[[*_COSTS, "host_factor"]].median().join(grouped[["host_steady", "repeatable"]].all())
    return whole.reset_index(), len(rows) - int(kept["repeatable"].sum())
