"""Whether the stated 95 % intervals hold: short measurements of thirty operations against a long reference of each.

    python benchmarks/coverage.py measure --config FILE --gpu LABEL --catalogue-dir DIR --output FILE.csv --raw DIR
        [--calibration FILE.parquet]
    python benchmarks/coverage.py report FILE.csv ...

Operations with device work are drawn from the campaign's catalogue, evenly over the time that a roofline gives them.
Each is measured five times, in rounds of a shuffled order, with a round of 8 s references after the second. A row is
written after each measurement; run again with the same options, those in the file are left out. `report` prints the
share of intervals that contain the reference: as they stand, and with the reference's own error added in quadrature.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from accuracy import append, read_rows
from counter_reference import CounterWatch, counter_watch, reference
from one_session import OneSession, TimeLimit, one_session

from clockwatt import config
from clockwatt.config import CampaignConfig
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.measure.bench.interface import Subject
from clockwatt.measure.statistics import NORMAL_95
from clockwatt.operations.spec.operation import MATRIX_CLASSES
from clockwatt.schema import layout
from clockwatt.schema.records import OK, OPERATION, OPERATION_SCHEMA

REFERENCE = -1
ROUNDS = (0, 1, REFERENCE, 2, 3, 4)
"""Repetitions, and where between them the references are taken."""
REFERENCE_WARM_UP_S, REFERENCE_S = 1.0, 8.0
TARGET = 0.9
QUANTITIES = {"time": ("time_s", "time_error_s"), "power": ("power_w", "power_error_w")}
"""Columns of each quantity and of its standard error."""


@dataclass(frozen=True)
class Row:
    """One short measurement, or the reference of an operation; times in s per call, power in W."""

    operation_id: str
    operation_class: str
    pass_: str
    execution: str
    repetition: int  # -1: the reference
    gpu: str
    time_s: float | None
    time_error_s: float | None
    power_w: float | None
    power_error_w: float | None
    seconds: float
    stopped_by: str
    estimator: str
    flags: str
    started_us: int
    ended_us: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    measuring = modes.add_parser("measure")
    measuring.add_argument("--config", type=Path, required=True)
    measuring.add_argument("--gpu", required=True)
    measuring.add_argument("--catalogue-dir", type=Path, required=True)
    measuring.add_argument("--output", type=Path, required=True)
    measuring.add_argument("--raw", type=Path, required=True)
    measuring.add_argument("--calibration", type=Path, help="what `clockwatt calibrate` wrote of this GPU")
    measuring.add_argument("--operations", type=int, default=30)
    measuring.add_argument("--seconds", type=float, default=540, help="begin nothing after so many seconds")
    measuring.set_defaults(run=measure_all)
    reporting = modes.add_parser("report")
    reporting.add_argument("files", type=Path, nargs="+")
    reporting.set_defaults(run=lambda given: report(pd.concat([load(file) for file in given.files])))
    given = parser.parse_args()
    given.run(given)


def sample(campaign: CampaignConfig, label: str, catalogue_dir: Path, count: int) -> list[tuple[Subject, str]]:
    """Operations with device work and their classes: one from each of `count` equal parts of the catalogue, by time."""
    gpu = campaign.gpu(label)
    spec = find_spec(gpu.device.removeprefix("virtual:"))
    table = files.read_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA).to_pandas()
    table = table[table["device_work"] & table["pass"].isin(campaign.passes)]
    peaks = [
        spec.peak_flops(row.dtype, tf32=gpu.execution[0].matrix_tf32, matrix=row.operation_class in MATRIX_CLASSES)
        for row in table.itertuples()
    ]
    moved_s = (table["bytes_read"] + table["bytes_written"]) / spec.bandwidth_bytes_s
    table = table.assign(roofline_s=np.maximum(table["flops"] / peaks, moved_s)).sort_values(
        ["roofline_s", "operation_id", "pass"]
    )
    rng = random.Random(campaign.seed)
    chosen = [rng.choice(part) for part in np.array_split(np.arange(len(table)), min(count, len(table)))]
    return [
        (
            Subject(OPERATION, row["operation_id"], row["pass"], gpu.execution[0], row["dtype"], 0, device_work=True),
            row["operation_class"],
        )
        for row in table.iloc[chosen].to_dict("records")
    ]


def measure_all(given: argparse.Namespace) -> None:
    """Measure what the output lacks, as far as the time goes."""
    limit = TimeLimit(given.seconds)
    campaign = config.load(given.config)
    subjects = sample(campaign, given.gpu, given.catalogue_dir, given.operations)
    done = {(row["operation_id"], row["pass_"], row["repetition"]) for row in read_rows(given.output)}
    rng = random.Random(campaign.seed)
    todo = [(repetition, *chosen) for repetition in ROUNDS for chosen in rng.sample(subjects, len(subjects))]
    ids = {subject.subject_id for subject, _ in subjects}
    left = 0
    with (
        one_session(campaign, given.gpu, given.catalogue_dir, ids, given.raw, given.calibration) as session,
        counter_watch(session.bench) as watch,
    ):
        for repetition, subject, class_ in todo:
            if (subject.subject_id, subject.pass_, repetition) in done:
                continue
            if not limit.leaves(REFERENCE_WARM_UP_S + REFERENCE_S + 1):
                left += 1
                continue
            row = measure_one(session, watch, replace(subject, repetition=repetition), class_)
            append(given.output, row)
    print(f"{len(todo) - left} of {len(todo)} measured" + ("; run the same command again" if left else ""))


def measure_one(session: OneSession, watch: CounterWatch, subject: Subject, class_: str) -> Row:
    """A short measurement, or the reference."""
    bench = session.bench
    started_us, started_s = bench.now_us(), session.now_s()
    if subject.repetition == REFERENCE:
        long = reference(bench, subject, watch, REFERENCE_WARM_UP_S, REFERENCE_S)
        bench.take_telemetry()
        values = (long.time_s, long.time_error_s, long.power_w, long.power_error_w, session.now_s() - started_s)
        how = ("", "counter", "")
    else:
        row, seconds = session.measured(subject)
        values = (row.time_eager_s, row.time_eager_standard_error_s, row.power_w, row.power_standard_error_w, seconds)
        flags = row.flags if row.status == OK else [row.status, *row.flags]
        how = (row.stopped_by or "", row.power_estimator or "", " ".join(flags))
    return Row(
        subject.subject_id, class_, subject.pass_, subject.execution, subject.repetition, bench.gpu.identity.name,
        *values, *how, started_us, bench.now_us(),
    )  # fmt: skip


def load(file: Path) -> pd.DataFrame:
    """An output; rows without a flag have an empty text."""
    return pd.read_csv(file, dtype={"flags": str}).fillna({"flags": ""})


def report(rows: pd.DataFrame) -> None:
    """Print coverage, bias and spread as Markdown, pooled and by flag."""
    key = ["operation_id", "pass_", "execution"]
    reference_columns = [*key, "time_s", "time_error_s", "power_w", "power_error_w"]
    long = rows.loc[rows["repetition"] == REFERENCE, reference_columns]
    short = rows[rows["repetition"] != REFERENCE].merge(long, on=key, suffixes=("", "_reference"))
    print(
        f"{', '.join(sorted(set(rows['gpu'])))}: {len(short)} measurements of {short[key].drop_duplicates().shape[0]} "
        f"operations against {REFERENCE_S:.0f} s references; {short['seconds'].mean():.2f} s each on average\n"
    )
    groups = {"all": short, "no flag": short[short["flags"] == ""]}
    for flag in sorted(set(" ".join(short["flags"]).split())):
        groups[flag] = short[short["flags"].str.split().map(lambda raised, flag=flag: flag in raised)]
    shares = "in the interval | with the reference's error"
    print(f"| quantity | rows | number | {shares} | bias | median error | 95 % of errors below | half-width |")
    print("| --- " * 9 + "|")
    for quantity, columns in QUANTITIES.items():
        for name, group in groups.items():
            print(f"| {quantity} | {name} | {' | '.join(coverage(group, *columns))} |")
    print(f"\nTarget: at least {TARGET:.0%} of all in the interval.")
    worst(short)


def coverage(group: pd.DataFrame, column: str, error_column: str) -> list[str]:
    """Cells of one line: shares within 95 % intervals, median signed and absolute error, median half-width."""
    group = group.dropna(subset=[column, error_column, f"{column}_reference"])
    if group.empty:
        return ["0", *[""] * 6]
    truth = group[f"{column}_reference"]
    error = (group[column] - truth).abs()
    plain = error <= NORMAL_95 * group[error_column]
    widened = error <= NORMAL_95 * np.hypot(group[error_column], group[f"{error_column}_reference"])
    relative = group[column] / truth - 1
    return [
        str(len(group)), f"{plain.mean():.1%}", f"{widened.mean():.1%}", f"{relative.median():+.2%}",
        f"{relative.abs().median():.2%}", f"{relative.abs().quantile(0.95):.2%}",
        f"{(NORMAL_95 * group[error_column] / group[column]).median():.2%}",
    ]  # fmt: skip


def worst(short: pd.DataFrame) -> None:
    """Print the operations whose intervals miss most often."""
    print("\n| operation | class | pass | time missed | power missed | reference | time bias | power bias |")
    print("| --- " * 8 + "|")
    lines = []
    for (operation_id, pass_), group in short.groupby(["operation_id", "pass_"]):
        first = group.iloc[0]
        reference_text = f"{first['time_s_reference'] * 1e6:.1f} µs, {first['power_w_reference']:.0f} W"
        missed, bias = [], []
        for column, error_column in QUANTITIES.values():
            truth = group[f"{column}_reference"]
            missed.append(int(((group[column] - truth).abs() > NORMAL_95 * group[error_column]).sum()))
            bias.append(f"{(group[column] / truth).median() - 1:+.2%}")
        lines.append((sum(missed), operation_id, first["operation_class"], pass_, *missed, reference_text, *bias))
    for _, *cells in sorted(lines, key=lambda line: line[0], reverse=True)[:10]:
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
