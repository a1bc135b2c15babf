"""All workloads of the study, each recorded for 30 s (two of them for 60 s): within a quarter of an hour on a GPU.

    python benchmarks/record_workloads.py --output results/workloads                  # on the first visible GPU
    python benchmarks/record_workloads.py --output /tmp/w --gpu virtual:a30 --seconds 12 --only fft matmul
    python benchmarks/record_workloads.py --list                                      # the commands, one a line

Prints the table of workloads and how far the energy counter and the integral of power readings are apart; exits with
status 1 if that is more than 2 % in a run above 10 s, or a workload failed. Figures lie in the output folder. What is
recorded there already is kept.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

from clockwatt.config import WORKLOADS, WorkloadsStudyConfig
from clockwatt.studies.workloads.names import command_of
from clockwatt.studies.workloads.records import RECORDS, is_finished
from clockwatt.studies.workloads.stage import FIGURES, draw, write_tables

LONG = ("matmul", "fine_tuning")
ALLOWED, FROM_S = 0.02, 10.0
SHOWN = {
    "workload": "{}", "time_s": "{:.1f}", "temperature_max_c": "{:.0f}", "gpu_utilization_percent": "{:.0f}",
    "memory_share": "{:.3f}", "power_mean_w": "{:.1f}", "energy_counter_j": "{:.0f}", "energy_integrated_j": "{:.0f}",
    "energy_difference": "{:+.2%}", "cpu_utilization_percent": "{:.0f}", "cpu_temperature_max_c": "{:.0f}",
}  # fmt: skip


def commands(options: argparse.Namespace) -> dict[str, list[str]]:
    """What is run, by workload."""
    virtual = str(options.gpu or "").startswith("virtual:")
    found = {}
    for name in options.only or WORKLOADS:
        seconds = options.seconds * (2 if name in LONG else 1)
        study = WorkloadsStudyConfig(seconds=seconds, scale=options.scale)
        record = [sys.executable, "-m", "clockwatt", "record", "--name", name]
        record += ["--output", str(options.output / RECORDS / name)]
        record += ["--rest-to", f"{options.rest_to:g}C", "--rest-max-s", f"{options.rest_max_s:g}", "--no-phases"]
        record += ["--gpu", options.gpu] if options.gpu else []
        found[name] = [*record, "--", *command_of(name, study, seed=0, virtual=virtual)]
    return found


def told(table: pd.DataFrame) -> str:
    """The table for people; a dash for what is not known."""
    rows = [[words.format(row[name]) if pd.notna(row[name]) else "–" for name, words in SHOWN.items()]
            for row in table.to_dict("records")]  # fmt: skip
    return pd.DataFrame(rows, columns=list(SHOWN)).to_string(index=False)


def beyond(table: pd.DataFrame) -> list[str]:
    """Long runs whose energies by counter and by integration are too far apart, or not known."""
    long = table[table["time_s"] > FROM_S]
    wrong = long[~(long["energy_difference"].abs() <= ALLOWED)]
    return [f"{row.workload} {row.energy_difference:+.2%}" for row in wrong.itertuples()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/workloads"))
    parser.add_argument("--gpu", help="UUID, beginning of one, index, or virtual:a30")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--scale", type=float)
    parser.add_argument("--rest-to", type=float, default=35.0)
    parser.add_argument("--rest-max-s", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS)
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    options = parser.parse_args()
    failed = []
    for name, command in commands(options).items():
        print(shlex.join(command), flush=True)
        where, program = options.output / RECORDS / name, command[command.index("--") + 1 :]
        if options.list or is_finished(where, program):
            continue
        shutil.rmtree(where, ignore_errors=True)
        if subprocess.run(command).returncode:
            failed.append(name)
    if options.list:
        return 0
    names = [name for name in commands(options) if name not in failed]
    table, grid = write_tables(names, options.output)
    draw(table, grid, names, options.gpu or str(table["gpu_name"].iloc[0]), options.output / FIGURES)
    print(told(table))
    for words, wrong in (("failed", failed), (f"counter and integral more than {ALLOWED:.0%} apart", beyond(table))):
        if wrong:
            print(f"{words}: {', '.join(wrong)}")
    if not failed and not beyond(table):
        long = (table["time_s"] > FROM_S).sum()
        print(f"counter and integral within {ALLOWED:.0%} in all {long} runs above {FROM_S:g} s")
    return 1 if failed or beyond(table) else 0


if __name__ == "__main__":
    sys.exit(main())
