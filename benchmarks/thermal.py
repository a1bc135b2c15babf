"""Forecasts of a GPU's temperature on runs and workloads left out, beside shuffled rows, persistence and whole degrees.

    python benchmarks/thermal.py [RECORD …] [--model a30] [--runs 3] [--seconds 1200] [--models rc trees lstm …]
        [--splits rows run workload] [--output DIR]

Records of real GPUs, from `clockwatt record`, are scored as they are. Without any, records of a virtual GPU are made in
its virtual time: five patterns of load, each a workload, in several runs with other random loads. Prints the table of
root mean square errors with the share of truths inside the 90 % intervals, and the constants of each card; `--output`
keeps the table and the figures. Fits take about a second, the recurrent networks 5 to 10; no GPU is needed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pandas as pd
from virtual_records import PATTERNS, write_virtual_record

from clockwatt.studies.thermal.evaluation import FLOOR_C, SPLITS, possible_splits, scores
from clockwatt.studies.thermal.figures import draw_study
from clockwatt.studies.thermal.fit import Settings, judge_all
from clockwatt.studies.thermal.models.network_fit import fit_network
from clockwatt.studies.thermal.models.registry import MODELS, WITHOUT_TORCH
from clockwatt.studies.thermal.traces import read_traces


def main() -> None:
    """Print table and constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument("--model", default="a30", help="of the virtual GPU")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--models", nargs="+", default=list(WITHOUT_TORCH), choices=list(MODELS))
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=list(SPLITS))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records = given.records or [
            write_virtual_record(
                Path(folder) / pattern, model=given.model, pattern=pattern, runs=given.runs, duration_s=given.seconds
            )
            for pattern in PATTERNS
        ]
        read = read_traces(records)
    print(*read.notes, sep="\n")
    for uuid in sorted({trace.gpu for trace in read.traces}):
        network = fit_network([trace for trace in read.traces if trace.gpu == uuid], intervals=True)
        for name, value in network.constants().items():
            low, high = network.intervals[name]
            print(f"{uuid}  {name} = {value:.4g}  (95 %: {low:.4g} … {high:.4g})")
    wanted = [split for split in possible_splits(read.traces) if split in given.splits]
    settings = Settings(models=tuple(given.models))
    judged, notes = judge_all(read.traces, settings, wanted, say=lambda text: print(text, file=sys.stderr))
    table = scores(judged)
    print(*notes, sep="\n")
    print_table(table)
    if given.output is not None:
        virtual = any(trace.virtual for trace in read.traces)
        draw_study(table, judged, read.traces, given.output, virtual=virtual)


def print_table(table: pd.DataFrame) -> None:
    for split in table["split"].unique():
        part = table[table["split"] == split]
        index = ["model", "inputs", "load"]
        print(f"\n{SPLITS[split]}: RMSE in °C (whole degrees alone: {FLOOR_C:.2f})")
        print(part.pivot_table(values="rmse_c", index=index, columns="horizon_s", sort=False).round(2).to_string())
        print("share inside the 90 % intervals that other folds gave")
        print(part.pivot_table(values="coverage", index=index, columns="horizon_s", sort=False).round(2).to_string())


if __name__ == "__main__":
    main()
