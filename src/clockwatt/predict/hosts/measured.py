"""The profile of a host from what was measured on it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.dataset.levels import host_spreads
from clockwatt.errors import DataFileError
from clockwatt.predict.composition.overheads import HostOverheads
from clockwatt.predict.features.operations import CATALOGUE_COLUMNS, OPERATION_CLASS
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.schema.records import ANCHOR, FORWARD, INFERENCE, LOSS, NETWORK, OK, OPERATION, TRAINING

_PER_CLASS = 4
"""Operations of a class that are kept: what a call costs a host depends on its class more than on its size."""


def profile_of(
    name: str, rows: pd.DataFrame, operations: pd.DataFrame, calls: pd.DataFrame, networks: pd.DataFrame, seconds: float
) -> HostProfile:
    """The profile that measurements make of a host.

    Parameters
    ----------
    name
        What the user calls it.
    rows, operations, calls, networks, seconds
        See `measure.calibrate.host.HostMeasurements`.

    Raises
    ------
    DataFileError
        If nothing was measured.
    """
    fine = rows[rows["status"] == OK]
    in_pass, alone = (fine[column].astype(float) for column in ("time_host_in_pass_s", "time_host_s"))
    fine = fine.assign(host_s=in_pass.fillna(alone))
    of_operations = fine[(fine["kind"] == OPERATION) & fine["host_s"].notna()]
    if of_operations.empty:
        raise DataFileError(f"host {name}: no operation could be measured; see what was said above.")
    key = ["operation_id", "pass"]
    measured = of_operations.rename(columns={"subject_id": "operation_id"})[[*key, "host_s"]]
    anchors = fine[fine["kind"] == ANCHOR].assign(session_id="all")
    spreads = host_spreads(anchors) if len(anchors) else pd.Series(dtype=float)
    first = of_operations.sort_values("started_us").iloc[0]
    host_s = measured.set_index(key)["host_s"]
    whole = fine[fine["kind"] == NETWORK]
    found = {pass_: _overheads(whole, calls, networks, host_s, pass_) for pass_ in (INFERENCE, TRAINING)}
    return HostProfile(
        name=name,
        host=str(first["host"]),
        cpu_model=_text(first["cpu_model"]),
        gpu_name=str(first["gpu_name"]),
        point=str(first["point"]),
        tf32=bool(first["tf32"]),
        virtual=bool(first["virtual"]),
        torch_version=_text(first["torch_version"]),
        measured_us=int(first["started_us"]),
        seconds=round(seconds, 1),
        spread=_spread(spreads.iloc[:1].to_numpy(float), *(off for _, off in filter(None, found.values()))),
        operations=_kept(operations.merge(measured, on=key)),
        overheads={pass_: known[0] for pass_, known in found.items() if known is not None},
    )


def _spread(of_anchors: NDArray[np.float64], *off: NDArray[np.float64]) -> float | None:
    """Of the log of what is told of this host: how its anchors varied, and how far its own networks are missed."""
    missed = np.concatenate([np.zeros(0), *off])
    parts = [*of_anchors[np.isfinite(of_anchors)], *([np.sqrt(np.mean(missed**2))] if len(missed) else [])]
    return float(np.linalg.norm(parts)) if parts else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _kept(measured: pd.DataFrame) -> list[dict[str, Any]]:
    """Of every class and pass a few operations, those of the shortest specs, as plain values."""
    columns = [*CATALOGUE_COLUMNS, "pass", "device_work", "host_s"]
    ordered = measured.assign(length=measured["spec"].str.len()).sort_values(["pass", OPERATION_CLASS, "length"])
    kept = ordered.groupby(["pass", OPERATION_CLASS], sort=False).head(_PER_CLASS)
    found: list[dict[str, Any]] = json.loads(kept[columns].to_json(orient="records", double_precision=15))
    return found


def _overheads(
    whole: pd.DataFrame, calls: pd.DataFrame, networks: pd.DataFrame, host_s: pd.Series, pass_: str
) -> tuple[HostOverheads, NDArray[np.float64]] | None:
    """What modules, forward calls and the start of a backward pass add to the calls of a pass.

    Least squares relative to each pass, no cost below zero, and how far each network is missed relative to its time;
    None with no more networks than costs.
    """
    from scipy.optimize import nnls  # here, because answers need no scipy

    found = []
    for row in whole[whole["pass"] == pass_].to_dict("records"):
        own = calls[(calls["network_id"] == row["subject_id"]) & (calls["pass"] == pass_)]
        calls_s = host_s.reindex(pd.MultiIndex.from_frame(own[["operation_id", "pass"]])).to_numpy(float)
        pass_s = float(row["time_host_s"])
        network = networks[(networks["network_id"] == row["subject_id"]) & (networks["pass"] == pass_)].iloc[0]
        counts = [float(network["module_calls"]), float(own["phase"].isin((FORWARD, LOSS)).sum())]
        starts = [1.0] if pass_ == TRAINING else []
        found.append([pass_s, pass_s - float(calls_s.sum()), *counts, *starts])
    known = np.array([values for values in found if np.isfinite(values).all()], dtype=float)
    if not len(known) or len(known) <= known.shape[1] - 2:
        return None
    counts, beyond = known[:, 2:] / known[:, :1], known[:, 1] / known[:, 0]
    costs, _ = nnls(counts, beyond)
    overheads = HostOverheads(
        module_s=float(costs[0]),
        forward_call_s=float(costs[1]),
        backward_start_s=float(costs[2]) if pass_ == TRAINING else None,
    )
    return overheads, beyond - counts @ costs
