"""Tables of the study: what each rank measured, a row for each case, and the table of an epoch.

```
ranks.parquet       a row for each rank of each case
steps.parquet       a row for each case: the slowest rank's time, energy of all GPUs, speed-up
spans.parquet       kernels and communications of one step of each rank
```
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from clockwatt.io.files import read_frame, write_table
from clockwatt.studies.parallel.names import DDP, RANKS, SINGLE, SPANS, STEPS

CASE = ("network", "input", "precision", "strategy", "gpus")
"""Columns that name a case."""
_OF_SINGLE = ["network", "input", "precision"]
_OF_RANK = (
    "gpu_name", "gpu_uuid", "virtual", "steps", "issue_s", "allocated_bytes", "reserved_bytes", "power_w",
    "power_idle_w", "sm_clock_mhz", "temperature_c", "gpu_utilization_percent",
)  # fmt: skip
PUBLISHED = pd.DataFrame([
    {"network": "vgg16", "strategy": DDP, "gpus": 2, "published_speedup": 1.89, "published_shares": "19.8, 21.5"},
])  # fmt: skip
"""Training of VGG-16 on 8,192 images at batch 64, as published: speed-up, and NCCL's share in % on each GPU."""


def write_tables(files: Sequence[Path], label: str, folder: Path) -> None:
    """Write the three tables of a GPU, by its label, from files of cases.

    Raises
    ------
    OutputError
        If they cannot be written.
    """
    cases = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    ranks = pd.DataFrame([row for case in cases for row in _rank_rows(case, label)])
    spans = pd.DataFrame([row for case in cases for row in _span_rows(case)])
    for name, frame in ((STEPS, _steps(cases, ranks)), (RANKS, ranks), (SPANS, spans)):
        write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / name)


def read(folder: Path, name: str) -> pd.DataFrame:
    """Return a table of the study.

    Raises
    ------
    DataFileError
        If it is missing or damaged.
    """
    return read_frame(folder / name, "study-parallel-run")


def _rank_rows(case: dict[str, Any], label: str) -> list[dict[str, Any]]:
    named = {name: value for name, value in case.items() if name != "ranks"} | {"gpu": label}
    return [
        named
        | {"rank": rank, "time_s": float(np.median(one["blocks_s"]))}
        | {f"{name}_step_j": _each(one[f"{name}_j"], one["steps"]) for name in ("energy", "energy_counter")}
        | {"energy_integrated_step_j": _each(one["energy_integrated_j"], one["steps"])}
        | {name: one[name] for name in _OF_RANK}
        | one["kernels"]
        for rank, one in enumerate(case["ranks"])
    ]


def _each(total: float | None, steps: int) -> float | None:
    return None if total is None else total / steps


def _span_rows(case: dict[str, Any]) -> list[dict[str, Any]]:
    named = {name: case[name] for name in CASE}
    firsts = [one["origin_us"] + one["spans"][0][2] for one in case["ranks"] if one["spans"]]
    return [
        named
        | {"rank": rank, "name": name, "communication": communication}
        | {"start_s": 1e-6 * (one["origin_us"] - min(firsts) + start_us), "time_s": 1e-6 * (end_us - start_us)}
        for rank, one in enumerate(case["ranks"])
        for name, communication, start_us, end_us in one["spans"]
    ]


def _steps(cases: Sequence[dict[str, Any]], ranks: pd.DataFrame) -> pd.DataFrame:
    slowest = [np.max([one["blocks_s"] for one in case["ranks"]], axis=0) for case in cases]
    times = pd.DataFrame([{name: case[name] for name in CASE} for case in cases]).assign(
        time_s=[float(np.median(blocks_s)) for blocks_s in slowest],
        time_deviation_s=[float(np.std(blocks_s, ddof=1)) for blocks_s in slowest],
    )
    waiting = ranks.assign(waiting_j=ranks["power_idle_w"] * (ranks["time_s"] - ranks["kernel_s"]).clip(lower=0))
    grouped = waiting.groupby(list(CASE), sort=False)
    table = grouped.agg(
        gpu=("gpu", "first"), gpu_name=("gpu_name", "first"), virtual=("virtual", "first"), host=("host", "first"),
        optimizer=("optimizer", "first"), items=("items", "first"), memory_bytes=("allocated_bytes", "max"),
        reserved_bytes=("reserved_bytes", "max"), communication_share=("communication_share", "mean"),
        overlap=("overlap", "mean"), utilisation=("utilisation", "mean"), sm_efficiency=("sm_efficiency", "mean"),
        occupancy=("occupancy", "mean"), kernel_s=("kernel_s", "mean"), busy_s=("busy_s", "mean"),
    )  # fmt: skip
    # a sum in which a GPU is unknown is unknown
    for name, column in (("energy_j", "energy_step_j"), ("power_idle_w", "power_idle_w"), ("waiting_j", "waiting_j")):
        table[name] = grouped[column].apply(lambda values: values.sum(skipna=False))
    table = times.merge(table.reset_index(), on=list(CASE))
    table["items_per_s"] = table["items"] / table["time_s"]
    table["items_per_j"] = table["items"] / table["energy_j"]
    single = table[table["strategy"] == SINGLE].set_index(_OF_SINGLE)["items_per_s"].rename("single")
    table["speedup"] = table["items_per_s"] / table.join(single, on=_OF_SINGLE)["single"]
    table["efficiency"] = table["speedup"] / table["gpus"]
    return table


def epoch_table(steps: pd.DataFrame, ranks: pd.DataFrame, images: int) -> pd.DataFrame:
    """Return time and energy of an epoch of so many examples, as steps of the measured length follow each other.

    Shares of NCCL are those of each rank, in % of the time of all kernels. Columns `published_…` hold what is published
    of the same network, on other GPUs.
    """
    count = np.ceil(images / steps["items"])
    shares = ranks.assign(text=(100 * ranks["communication_share"]).map("{:.1f}".format))
    table = steps[[*CASE, "speedup", "efficiency"]].assign(
        images=images, epoch_s=count * steps["time_s"], epoch_j=count * steps["energy_j"],
        items_per_s=steps["items_per_s"], items_per_j=steps["items_per_j"], memory_bytes=steps["memory_bytes"],
        overlap=steps["overlap"], utilisation=steps["utilisation"], sm_efficiency=steps["sm_efficiency"],
        occupancy=steps["occupancy"], virtual=steps["virtual"],
    )  # fmt: skip
    of_ranks = shares.groupby(list(CASE))["text"].agg(", ".join).rename("communication_shares")
    return table.join(of_ranks, on=list(CASE)).merge(PUBLISHED, "left", on=["network", "strategy", "gpus"])
