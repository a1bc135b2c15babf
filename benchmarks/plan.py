"""How much memory `clockwatt plan` takes for a large campaign: 8 GPUs x 40 clocks x 16 shards, 5,760 jobs on GPUs.

    python benchmarks/plan.py [--operations 10000]

The catalogue is that of the campaign's one network, with copies of its operations until there are so many. Without a
catalogue `plan` traces the networks first, in a process of its own: memory is that of the largest.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import dryrun
import pyarrow as pa
import pyarrow.parquet as pq
import result_file

from clockwatt import config
from clockwatt.io import files
from clockwatt.schema import layout

GPUS, CLOCKS = 8, 40


def write_large_catalogue(source: Path, folder: Path, operations: int) -> None:
    """Write the catalogue of a campaign's file with copies of its operations, each with an identity of its own."""
    from clockwatt.operations.catalogue import write_catalogue  # torch's memory would count for what is started here

    write_catalogue(config.load(source), folder)
    path = folder / layout.OPERATIONS_FILE
    table = pq.read_table(path)
    times = -(-operations // len(table))
    many = pa.concat_tables([table] * times).slice(0, operations)
    first = table["operation_id"].to_pylist()
    own = first + [f"{number:016x}" for number in range(len(many) - len(first))]
    place = many.schema.get_field_index("operation_id")
    files.write_table(many.set_column(place, many.schema.field(place), pa.array(own[: len(many)])), path)


def measured(folder: Path) -> tuple[float, float, float]:
    """Seconds of the wall and of the processor, and MB of the largest process."""
    began = time.perf_counter()
    with (folder / "said").open("w") as said:
        command = [sys.executable, "-m", "clockwatt", "plan", "--config", "config.yaml"]
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    assert status == 0, (folder / "said").read_text()[-3000:]
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def main() -> None:
    """Write the campaign, plan it with and without its catalogue, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(dryrun.campaign(GPUS, CLOCKS))
        traced = measured(folder)
        tell("without a catalogue", *traced)
        catalogue = folder / "results" / layout.CATALOGUE
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            alone.submit(write_large_catalogue, folder / "config.yaml", catalogue, given.operations).result()
        there = measured(folder)
        tell(f"with one of {given.operations:,} operations", *there)
    rows = [
        [what, f"{cpu_s:.1f} s", f"{mb:.0f} MB"]
        for what, (_, cpu_s, mb) in (("there", there), ("traced first", traced))
    ]
    result_file.write(
        "speed", "`clockwatt plan` for 5,760 GPU jobs", ["catalogue", "processor time", "memory"], rows,
        targets=[result_file.target("memory with a catalogue", there[2], at_most=400, unit="MB")],
    )  # fmt: skip


def tell(what: str, wall_s: float, cpu_s: float, mb: float) -> None:
    """Print a measurement."""
    print(f"{what}: {wall_s:.1f} s, {cpu_s:.1f} s of processor, {mb:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
