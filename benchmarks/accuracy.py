"""Twelve operations, measured three ways in one process: by clockwatt, by the thesis's procedure, by a 20 s reference.

    python benchmarks/accuracy.py measure --device "NVIDIA H200" --output FILE.csv --raw DIR
        [--calibration FILE.parquet] [--part 1/2]
    python benchmarks/accuracy.py report FILE.csv ...

The operations are those of `twelve_operations.py`; all three ways call the same callables. Their order is random for
each operation, so that drift is not one way's. A row is written after each way; run again, those that are in the file
are left out. `--raw` keeps all telemetry, the rows of clockwatt in full, and what nvidia-smi wrote. `report` prints
Markdown; errors are relative to the reference.
"""

from __future__ import annotations

import argparse
import csv
import random
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import twelve_operations
from counter_reference import CounterWatch, counter_watch, reference
from one_session import OneSession, one_session
from thesis_procedure import WARM_UP_CALLS, thesis_procedure

from clockwatt import config
from clockwatt.config import CampaignConfig
from clockwatt.io import files
from clockwatt.measure.bench.interface import Subject
from clockwatt.operations.catalogue import write_catalogue
from clockwatt.schema import layout
from clockwatt.schema.records import CALL_SCHEMA, INFERENCE, OPERATION, OPERATION_SCHEMA

CLOCKWATT, THESIS, REFERENCE = "clockwatt", "thesis", "reference"
WAYS = (CLOCKWATT, THESIS, REFERENCE)
LABEL = "gpu"
REFERENCE_WARM_UP_S, REFERENCE_S = 3.0, 20.0
TARGETS = {"power": (0.01, 0.03), "time": (0.005, 0.02)}
"""Median and worst absolute error that clockwatt may have."""
SECONDS_TARGET = 2.0


@dataclass(frozen=True)
class Row:
    """One operation measured one way; times in s per call, power in W, `seconds` all in."""

    operation: str
    way: str
    gpu: str
    time_s: float | None
    time_error_s: float | None
    power_w: float | None
    power_error_w: float | None
    seconds: float
    calls: int | None
    started_us: int
    ended_us: int
    note: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    measuring = modes.add_parser("measure")
    measuring.add_argument("--device", required=True, help="as in the config: NVIDIA H200, virtual:h200")
    measuring.add_argument("--output", type=Path, required=True)
    measuring.add_argument("--raw", type=Path, required=True)
    measuring.add_argument("--calibration", type=Path, help="what `clockwatt calibrate` wrote of this GPU")
    measuring.add_argument("--part", default="1/1", help="K/N: every N-th operation from the K-th")
    measuring.add_argument(
        "--ways", nargs="+", choices=WAYS, default=WAYS, help="only these, so that a run can be split"
    )
    measuring.add_argument("--seed", type=int, default=0)
    measuring.set_defaults(run=measure_all)
    reporting = modes.add_parser("report")
    reporting.add_argument("files", type=Path, nargs="+")
    reporting.set_defaults(run=lambda given: report(pd.concat([pd.read_csv(file) for file in given.files])))
    given = parser.parse_args()
    given.run(given)


def campaign_of(device: str, names: list[str]) -> CampaignConfig:
    """The default campaign with these operations as networks."""
    networks = [
        {
            "name": f"{twelve_operations.__name__}:{name}",
            "input": twelve_operations.INPUTS[name],
            "dtype": "bfloat16" if name in twelve_operations.BFLOAT16 else "float32",
        }
        for name in names
    ]
    gpu = {"device": device, "clocks_mhz": "default", "tf32": [True], "control": {"method": "none"}}
    return config.parse({"campaign": "accuracy", "gpus": {LABEL: gpu}, "networks": networks, "passes": [INFERENCE]})


def measure_all(given: argparse.Namespace) -> None:
    """Measure what the output lacks of this part."""
    part, parts = (int(number) for number in given.part.split("/"))
    names = list(twelve_operations.INPUTS)[part - 1 :: parts]
    campaign = campaign_of(given.device, names)
    write_catalogue(campaign, given.raw / "catalogue")
    subjects = subjects_by_name(campaign, given.raw / "catalogue")
    done = {(row["operation"], row["way"]) for row in read_rows(given.output)}
    ids = {subject.subject_id for subject in subjects.values()}
    with (
        one_session(campaign, LABEL, given.raw / "catalogue", ids, given.raw, given.calibration) as session,
        counter_watch(session.bench) as watch,
    ):
        for name, subject in subjects.items():
            for way in random.Random(f"{given.seed}/{name}").sample(WAYS, len(WAYS)):
                if way in given.ways and (name, way) not in done:
                    row = measure_one(session, watch, name, subject, way, given.raw)
                    append(given.output, row)
                    print(f"{name} {way}: {row.time_s} s, {row.power_w} W, took {row.seconds:.2f} s", flush=True)


def subjects_by_name(campaign: CampaignConfig, catalogue_dir: Path) -> dict[str, Subject]:
    """Each network's one operation with device work."""
    operations = files.read_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA).to_pandas()
    calls = (
        files.read_table(catalogue_dir / layout.CALLS_FILE, CALL_SCHEMA)
        .to_pandas()
        .merge(operations, on="operation_id")
    )
    subjects = {}
    for network in campaign.networks:
        (call,) = calls[(calls["network_id"] == network.network_id) & calls["device_work"]].to_dict("records")
        subjects[network.name.partition(":")[2]] = Subject(
            OPERATION, call["operation_id"], INFERENCE, True, call["dtype"], 0, device_work=True
        )
    return subjects


def measure_one(session: OneSession, watch: CounterWatch, name: str, subject: Subject, way: str, raw: Path) -> Row:
    """Measure one operation one way."""
    bench = session.bench
    started_us, started_s = bench.now_us(), session.now_s()
    if way == CLOCKWATT:
        measured, seconds = session.measured(subject)
        values = (measured.time_eager_s, measured.time_eager_standard_error_s)
        power = (measured.power_w, measured.power_standard_error_w)
        calls = measured.iterations
        note = " ".join(
            [measured.status, f"by {measured.power_estimator}", *measured.flags, *measured.throttle_reasons]
        )
    elif way == THESIS:
        thesis = thesis_procedure(bench, subject, raw / "nvidia-smi" / f"{name}.csv")
        values, power = (thesis.time_s, thesis.time_error_s), (thesis.power_w, thesis.power_error_w)
        calls = thesis.calls
        note = f"{thesis.readings} readings"
        if thesis.warm_up_calls < WARM_UP_CALLS:
            note += f"; warm-up cut to {thesis.warm_up_calls} calls"
    else:
        long = reference(bench, subject, watch, REFERENCE_WARM_UP_S, REFERENCE_S)
        values, power, calls = (long.time_s, long.time_error_s), (long.power_w, long.power_error_w), long.calls
        note = f"{long.window_s:.2f} s between ticks"
    if way != CLOCKWATT:
        seconds = session.now_s() - started_s
        bench.flush_telemetry()
    bench.take_telemetry()
    gpu = bench.gpu.identity.name
    return Row(name, way, gpu, *values, *power, seconds, calls, started_us, bench.now_us(), note)


def read_rows(output: Path) -> list[dict[str, Any]]:
    """Rows of an output; none where there is no file yet."""
    return pd.read_csv(output).to_dict("records") if output.exists() else []


def append(output: Path, row: Any) -> None:
    """Add a row, a dataclass, and the head to a new file."""
    output.parent.mkdir(parents=True, exist_ok=True)
    new = not output.exists()
    with output.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [column.name for column in fields(row)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))


def report(rows: pd.DataFrame) -> None:
    """Print the comparison as Markdown."""
    table = rows.pivot_table(index="operation", columns="way", values=["time_s", "power_w", "seconds"], aggfunc="last")
    table = table.dropna(subset=[("time_s", REFERENCE)]).sort_values(("time_s", REFERENCE))
    ways = [way for way in (CLOCKWATT, THESIS) if ("time_s", way) in table]
    errors = {
        (way, what): table[column, way] / table[column, REFERENCE] - 1
        for way in ways
        for what, column in (("time", "time_s"), ("power", "power_w"))
    }
    gpus = ", ".join(sorted(set(rows["gpu"])))
    print(f"{gpus}: {len(table)} operations, errors against a {REFERENCE_S:.0f} s reference\n")
    print("| operation | reference | | " + " | ".join(f"{way}: time | power | took" for way in ways) + " |")
    print("| --- " * (3 + 3 * len(ways)) + "|")
    for name, row in table.iterrows():
        cells = [f"{row['time_s', REFERENCE] * 1e6:.2f} µs", f"{row['power_w', REFERENCE]:.1f} W"]
        for way in ways:
            cells += [f"{errors[way, what][name]:+.2%}" for what in ("time", "power")] + [
                f"{row['seconds', way]:.2f} s"
            ]
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\n| | {' | '.join(ways)} | target |")
    print("| --- " * (2 + len(ways)) + "|")

    def line(name: str, cells: list[str], target: str = "") -> None:
        print(f"| {name} | {' | '.join(cells)} | {target} |")

    for what, (median, worst) in TARGETS.items():
        sizes = [errors[way, what].abs() for way in ways]
        line(f"{what}, median error", [f"{size.median():.2%}" for size in sizes], f"{median:.1%}")
        line(f"{what}, worst error", [f"{size.max():.2%}" for size in sizes], f"{worst:.1%}")
        line(f"{what}, median bias", [f"{errors[way, what].median():+.2%}" for way in ways])
    seconds = [table["seconds", way] for way in ways]
    line("seconds, median", [f"{taken.median():.2f}" for taken in seconds])
    line("seconds, most", [f"{taken.max():.2f}" for taken in seconds], f"{SECONDS_TARGET:.0f}")
    if len(ways) > 1:
        print(f"\nGPU time of the thesis's procedure over clockwatt's: {seconds[1].sum() / seconds[0].sum():.1f}")
    for row in rows[rows["note"].str.contains("cut|failed|out_of_memory")].itertuples():
        print(f"- {row.operation}, {row.way}: {row.note}")


if __name__ == "__main__":
    main()
