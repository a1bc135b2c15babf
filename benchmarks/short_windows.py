"""What a full measurement takes and tells with a shorter warm-up and window than by default, on a GPU that is here.

    python benchmarks/short_windows.py --output FILE --catalogue-dir FOLDER --calibration FILE [--operations 40]
                                       [--seconds 170] [--warm-up 0.1] [--window 0.3 0.6]

One session: operations of a catalogue, drawn by a seed from those of 20 µs to 5 ms, are each measured fully twice with
the default settings and twice with those of the command line, in an order that is shuffled anew. Prints seconds for
each way, its bias in device time, power and energy against the first with the defaults, and what the same way gives
when it is done again. No clock or power limit is set. Writes the rows to FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pandas as pd
from time_alone import described, this_gpu

from clockwatt.config import MeasurementConfig, OperatingPoint
from clockwatt.gpu.registry import open_gpu
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.measure import tasks
from clockwatt.measure.bench.interface import Subject
from clockwatt.measure.bench.registry import open_bench
from clockwatt.measure.calibrate import calibration
from clockwatt.measure.steps.conditions import Surroundings
from clockwatt.measure.steps.procedure import measure, measure_idle
from clockwatt.measure.tasks import Shard
from clockwatt.predict.features import ROOFLINE_TIME, Setting, features_at, operation_features
from clockwatt.schema import layout
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import MEASUREMENT_SCHEMA, OK, MeasurementRow, table_of

SEED = 0
LEAST_S, MOST_S = 2e-5, 5e-3
"""By the roofline: shorter ones are paced by their host, longer ones cost more than they tell."""
KEY = ["subject_id", "pass", "execution"]
DEFAULT, SHORT = "default", "short"


def chosen_of(catalogue_dir: Path, subjects: list[Subject], gpu_name: str, count: int) -> list[Subject]:
    """Subjects that a seed draws from those that keep the device busy for a while."""
    operations = pd.read_parquet(catalogue_dir / layout.OPERATIONS_FILE)
    busy = set()
    for pass_, own in operations[operations["device_work"]].groupby("pass"):
        setting = Setting(find_spec(gpu_name), OperatingPoint.parse("default"), execution=TF32)
        features = features_at(operation_features(own.drop_duplicates("operation_id")), setting)
        times_s = features[ROOFLINE_TIME]
        busy |= {(name, pass_) for name in times_s.index[(times_s > LEAST_S) & (times_s < MOST_S)]}
    found = [subject for subject in subjects if (subject.subject_id, subject.pass_) in busy]
    return random.Random(SEED).sample(found, min(count, len(found)))


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--catalogue-dir", type=Path, required=True)
    parser.add_argument("--calibration", type=Path, required=True, help="what `clockwatt calibrate` wrote")
    parser.add_argument("--operations", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=170, help="begin nothing after so long")
    parser.add_argument("--warm-up", type=float, default=0.1, help="shortest warm-up, in s")
    parser.add_argument("--window", type=float, nargs=2, default=(0.3, 0.6), help="shortest and longest window, in s")
    given = parser.parse_args()
    end_s = time.monotonic() + given.seconds
    campaign = this_gpu()
    (label,) = campaign.gpus
    name = campaign.gpu(label).device
    least_s, most_s = given.window
    short = {"warm_up_min_s": given.warm_up, "window_min_s": least_s, "window_max_s": most_s}
    ways = {DEFAULT: MeasurementConfig(), SHORT: MeasurementConfig(**short)}
    subjects = tasks.subjects(campaign, campaign.gpu(label), Shard(1, 1, networks=False), given.catalogue_dir)
    chosen = [replace(one, energy=True) for one in chosen_of(given.catalogue_dir, subjects, name, given.operations)]
    runs = [(replace(one, repetition=number), way) for one in chosen for way in ways for number in range(2)]
    rows: list[MeasurementRow] = []
    told: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(open_gpu(name, seed=SEED, key=f"gpus.{label}.device")) as gpu,
        open_bench(campaign, gpu, uuid.uuid4().hex, Path(folder), given.catalogue_dir,
                   {one.subject_id for one in chosen}) as bench,
    ):  # fmt: skip
        around = Surroundings(calibration=calibration.read(given.calibration))
        around = replace(around, idle=measure_idle(bench, campaign.measurement.idle_s, around.calibration))
        # the first ones load libraries, which is no subject's own time
        warm = [(one, DEFAULT) for one in chosen[:3]]
        for subject, way in [*warm, *random.Random(SEED + 1).sample(runs, len(runs))]:
            if time.monotonic() >= end_s:
                print(f"the time is over after {max(len(rows) - len(warm), 0)} of {len(runs)} measurements", flush=True)
                break
            row = MeasurementRow(
                kind=subject.kind, subject_id=subject.subject_id, pass_=subject.pass_, gpu=label, point="default",
                execution=subject.execution, dtype=subject.dtype, repetition=subject.repetition, position=len(rows),
                gpu_name=bench.gpu.identity.name, gpu_uuid=bench.gpu.identity.uuid,
            )  # fmt: skip
            measure(bench, subject, row, ways[way], around)
            rows.append(row)
            told.append(way)
    table = table_of(rows[len(warm) :], MEASUREMENT_SCHEMA)
    files.write_table(table, given.output)
    report(table.to_pandas().assign(way=told[len(warm) :]))


def report(rows: pd.DataFrame) -> None:
    """Print the figures."""
    print(rows.groupby(["way", "status"]).size().to_string())
    good = rows[(rows["status"] == OK) & rows["energy_j"].notna()]
    for way, own in good.groupby("way"):
        for column in ("duration_s", "warm_up_s", "window_s"):
            print(f"{way}, {column}: {described(own[column].astype(float))}")
        print(f"{way}, stopped by: {own['stopped_by'].value_counts().to_dict()}")
    first, again = (
        {way: good[(good["repetition"] == number) & (good["way"] == way)].set_index(KEY) for way in (DEFAULT, SHORT)}
        for number in (0, 1)
    )
    pairs = {
        "bias of short": (first[SHORT], first[DEFAULT]),
        "default again": (again[DEFAULT], first[DEFAULT]),
        "short again": (again[SHORT], first[SHORT]),
    }
    for column in ("time_device_s", "time_eager_s", "power_w", "energy_j"):
        for name, (one, other) in pairs.items():
            ratio = (one[column].astype(float) / other[column].astype(float) - 1).dropna()
            print(f"{column}, {name}: {described(ratio)}")


if __name__ == "__main__":
    main()
