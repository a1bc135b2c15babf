"""How quick measuring time alone is, and how far its times are from those of full measurements, on a GPU that is here.

    python benchmarks/time_alone.py --output FOLDER [--operations 120] [--seconds 540] [--networks] [--profile]
                                    [--config FILE --gpu LABEL --catalogue-dir FOLDER]

One session: the operations, drawn by a seed from the catalogue of a few networks, are each measured twice as time alone
and once fully, in an order that is shuffled anew for each. Without a configuration it is the first GPU that is here at
its default operating point; no clock or power limit is set. Prints operations per hour of each way, the bias of
time alone by duration on the device, repeatability of two measurements of time alone; `--profile` says where the time
goes. Writes `rows.parquet`, the rows of the session, and `summary.json` to FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import pstats
import random
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt import config
from clockwatt.config import CampaignConfig
from clockwatt.gpu.registry import installed_gpus, open_gpu
from clockwatt.io import files
from clockwatt.measure import tasks
from clockwatt.measure.bench.interface import Bench, Subject
from clockwatt.measure.bench.registry import open_bench
from clockwatt.measure.steps.conditions import Surroundings
from clockwatt.measure.steps.procedure import measure, measure_idle
from clockwatt.measure.tasks import Shard
from clockwatt.operations.catalogue import write_catalogue
from clockwatt.schema.records import MEASUREMENT_SCHEMA, OK, TIME, MeasurementRow, table_of

NETWORKS = [("resnet18", [32, 3, 224, 224]), ("mobilenet_v3_small", [16, 3, 160, 160]), ("vit_b_16", [8, 3, 224, 224])]
BINS_S = [0, 5e-6, 1e-5, 3e-5, 1e-4, 1e-3, np.inf]
SEED = 0


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--gpu")
    parser.add_argument("--catalogue-dir", type=Path)
    parser.add_argument("--operations", type=int, default=120, help="so many operations, or all networks")
    parser.add_argument("--seconds", type=float, default=540, help="begin nothing after so long")
    parser.add_argument("--networks", action="store_true", help="whole networks instead of operations")
    parser.add_argument("--profile", action="store_true", help="say where time alone spends its time")
    given = parser.parse_args()
    end_s = time.monotonic() + given.seconds
    campaign = config.load(given.config) if given.config else this_gpu()
    label = given.gpu or next(iter(campaign.gpus))
    with tempfile.TemporaryDirectory() as folder:
        catalogue = given.catalogue_dir or Path(folder) / "catalogue"
        if not (catalogue / "operations.parquet").exists():
            write_catalogue(campaign, catalogue)
        found = tasks.subjects(campaign, campaign.gpu(label), Shard(1, 1, given.networks), catalogue)
        chosen = random.Random(SEED).sample(found, min(given.operations, len(found)))
        ids = {subject.subject_id for subject in chosen}
        with (
            contextlib.closing(open_gpu(campaign.gpu(label).device, seed=SEED, key=f"gpus.{label}.device")) as gpu,
            open_bench(campaign, gpu, uuid.uuid4().hex, Path(folder) / "telemetry", catalogue, ids) as bench,
        ):
            rows = measured(bench, campaign, label, chosen, end_s)
            profile = profiled(bench, campaign, label, chosen) if given.profile else None
    files.write_table(table_of(rows, MEASUREMENT_SCHEMA), given.output / "rows.parquet")
    summary = report(pd.DataFrame([as_columns(row) for row in rows]))
    files.write_text(json.dumps(summary, indent=1), given.output / "summary.json")
    if profile is not None:
        profile.sort_stats("cumulative").print_stats(45)


def this_gpu() -> CampaignConfig:
    """A campaign on the first GPU that is here, which sets no clock."""
    networks = [{"name": name, "input": shape} for name, shape in NETWORKS]
    gpu = {"device": installed_gpus()[0].name, "control": {"method": "none"}}
    return config.parse({"campaign": "time-alone", "gpus": {"here": gpu}, "networks": networks})


def measured(
    bench: Bench, campaign: CampaignConfig, label: str, subjects: list[Subject], end_s: float
) -> list[MeasurementRow]:
    """Rows of each subject twice as time alone (repetitions 0 and 1) and once fully, as far as time allows."""
    around = Surroundings(idle=measure_idle(bench, campaign.measurement.idle_s, Surroundings().calibration))
    order = random.Random(SEED + 1)
    ways = (False, False, True)  # whether energy is measured too
    runs = [replace(subject, energy=energy, repetition=n) for subject in subjects for n, energy in enumerate(ways)]
    rows: list[MeasurementRow] = []
    # the first ones load libraries, which is no subject's own time
    for subject in [*subjects[:3], *order.sample(runs, len(runs))]:
        if time.monotonic() >= end_s:
            print(f"the time is over after {len(rows) - 3} of {len(runs)} measurements", flush=True)
            break
        row = MeasurementRow(
            kind=subject.kind, subject_id=subject.subject_id, pass_=subject.pass_, gpu=label, point="default",
            execution=subject.execution, dtype=subject.dtype, repetition=subject.repetition, position=len(rows),
            gpu_name=bench.gpu.identity.name, gpu_uuid=bench.gpu.identity.uuid, virtual=bench.gpu.identity.virtual,
        )  # fmt: skip
        measure(bench, subject, row, campaign.measurement, around)
        rows.append(row)
    return rows[3:]


def profiled(bench: Bench, campaign: CampaignConfig, label: str, subjects: list[Subject]) -> pstats.Stats:
    """Where the time goes, of time alone once more for each subject."""
    profile = cProfile.Profile()
    for subject in subjects:
        row = MeasurementRow(
            kind=subject.kind, subject_id=subject.subject_id, pass_=subject.pass_, gpu=label, point="default",
            execution=subject.execution, dtype=subject.dtype,
        )  # fmt: skip
        alone = replace(subject, energy=False)
        profile.runcall(measure, bench, alone, row, campaign.measurement, Surroundings())
    return pstats.Stats(profile)


def as_columns(row: MeasurementRow) -> dict[str, Any]:
    """What the report needs of a row."""
    return {
        "key": f"{row.subject_id}/{row.pass_}/{row.execution}",
        "pass": row.pass_,
        "time_alone": row.quantities == [TIME],
        "repetition": row.repetition,
        "status": row.status,
        "duration_s": row.duration_s,
        "method": row.time_device_method,
        "host_s": row.time_host_s,
        "in_pass_s": row.time_host_in_pass_s,
        "device_s": row.time_device_s,
        "eager_s": row.time_eager_s,
        "works": row.time_device_s != 0,
    }


def report(rows: pd.DataFrame) -> dict[str, Any]:
    """Print and return the figures."""
    counts = rows.groupby(["time_alone", "status"]).size()
    summary: dict[str, Any] = {f"{status}, time alone {alone}": int(n) for (alone, status), n in counts.items()}
    print(summary)
    ok = rows[rows["status"] == OK]
    for (alone, pass_, works), group in ok.groupby(["time_alone", "pass", "works"]):
        seconds = group["duration_s"].astype(float)
        name = f"{'time alone' if alone else 'full'}, {pass_}, {'device work' if works else 'host only'}"
        summary[name] = described(seconds) | {"per_hour": 3600 / seconds.mean()}
        print(f"{name}: {summary[name]}")
    for alone, group in ok.groupby("time_alone"):
        name = f"{'time alone' if alone else 'full'}: operations per hour"
        summary[name] = 3600 / group["duration_s"].astype(float).mean()
        print(f"{name}: {summary[name]:.0f}")
    work = ok[ok["works"]]
    full = work[~work["time_alone"]].set_index("key")
    first, again = (work[work["time_alone"] & (work["repetition"] == n)].set_index("key") for n in (0, 1))
    methods = work.groupby(["time_alone", "method"], dropna=False).size()
    print(f"how device times were got:\n{methods}")
    for column in ("device_s", "host_s", "in_pass_s", "eager_s"):
        for name, one, other in (("bias", first, full), ("repeatability", again, first)):
            both = one.join(other.add_suffix("_of_other"), how="inner")
            ratio = (both[column].astype(float) / both[f"{column}_of_other"].astype(float) - 1).dropna()
            bins = pd.cut(both["device_s_of_other"].astype(float), BINS_S)
            for interval, group in ratio.groupby(bins, observed=True):
                summary[f"{name} of {column}, device time in {interval} s"] = described(group)
                print(f"{name} of {column}, device time in {interval} s: {described(group)}")
    return summary


def described(values: pd.Series) -> dict[str, float]:
    """Median, mean, 5th and 95th percentile, rounded."""
    numbers = {"n": len(values), "median": values.median(), "mean": values.mean()}
    numbers |= {f"p{share}": values.quantile(share / 100) for share in (5, 95)}
    return {name: round(float(value), 4) for name, value in numbers.items()}


if __name__ == "__main__":
    main()
