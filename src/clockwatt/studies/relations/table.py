"""The table of workloads: how hot, how busy, how full and how thirsty each made the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.telemetry.recording.summary import Summary

COLUMNS: dict[str, str] = {
    "workload": "str", "gpu_name": "str", "virtual": "bool", "status": "Int64", "time_s": "float",
    "temperature_start_c": "float", "temperature_max_c": "float", "memory_temperature_max_c": "float",
    "gpu_utilization_percent": "float", "memory_utilization_percent": "float", "memory_used_max_bytes": "float",
    "memory_share": "float", "power_mean_w": "float", "power_max_w": "float", "energy_counter_j": "float",
    "energy_integrated_j": "float", "energy_difference": "float", "sm_clock_loaded_mhz": "float",
    "cpu_utilization_percent": "float", "cpu_temperature_max_c": "float", "data": "str",
}  # fmt: skip
"""Columns and their types; what is not known is null."""


def summary_table(summaries: Mapping[str, Summary]) -> pd.DataFrame:
    """Return a row for each run of each workload on each GPU that it computed on.

    Parameters
    ----------
    summaries
        The summaries of the records, by workload, as `clockwatt record` makes them.

    Returns
    -------
    pandas.DataFrame
        `COLUMNS`. `memory_share` is of what the GPU has; sensors of several CPUs are their mean and their highest.
    """
    rows = [row for workload, summary in summaries.items() for row in _rows(workload, summary)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _rows(workload: str, summary: Summary) -> list[dict[str, Any]]:
    rows = []
    for run in summary["runs"]:
        for gpu in summary["gpus"]:
            told, host = run["gpus"][gpu["uuid"]], run["host"]
            used = told["memory_used_max_bytes"]
            rows.append(
                {name: told.get(name) for name in COLUMNS}
                | {
                    "workload": workload, "gpu_name": gpu["name"], "virtual": gpu["virtual"], "status": run["status"],
                    "time_s": run["time_s"], "data": _data(run["notes"]),
                    "memory_share": _share(used, gpu["name"]),
                    "cpu_utilization_percent": _mean(host["cpu_utilization_percent"]),
                    "cpu_temperature_max_c": max(host["cpu_temperature_max_c"] or [], default=None),
                }
            )  # fmt: skip
    return rows


def _share(used_bytes: float | None, gpu_name: str) -> float | None:
    """Return the share of the GPU's memory; None where that is not known."""
    try:
        return None if used_bytes is None else used_bytes / find_spec(gpu_name).memory_bytes
    except UnknownGpuError:
        return None


def _mean(values: Sequence[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _data(notes: Sequence[str]) -> str | None:
    """Return the data that the workload reported."""
    return next((note.partition(": ")[2] for note in notes if ": data " in note), None)
