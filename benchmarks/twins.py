"""Draw operations that one GPU model has measured, for another one to measure: twins, as `new_card.py` has them.

    python benchmarks/twins.py --reference h200 h200-wide [--has h100] --times 26000 --energies 900 --output DIR

A seed draws `--energies` operations that have an energy in the shipped data, and `--times` that have a time, those of
rare classes more often. Left out are those that the reference `--has` has measured likewise, and those that take more
than `--longest` seconds. Each is measured with the execution settings of its row, time alone or with energy.
`clockwatt measure --catalogue-dir` measures the catalogue; its shards are shuffled, so that any first part is a fair
sample. `pack_reference.py --designed --drawn` ships what was measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from operations_alone import write_operations

from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.schema import layout, records

SEED = 5
COLUMNS = ["kind", "subject_id", "pass", "execution", "status", "time_device_s", "energy_dynamic_j"]
KEY = ["subject_id", "pass"]


def measured(references: list[str]) -> pd.DataFrame:
    """Return what the shipped data of these references measured: one row an operation, one with energy first."""
    found = [
        files.read_table(path, records.MEASUREMENT_SCHEMA, COLUMNS).to_pandas()
        for reference in references
        for path in sorted((resource("reference") / reference / layout.MEASUREMENTS).rglob("[0-9]*.parquet"))
    ]
    rows = pd.concat(found, ignore_index=True)
    rows = rows[(rows["kind"] == records.OPERATION) & (rows["status"] == records.OK) & (rows["time_device_s"] > 0)]
    return rows.sort_values("energy_dynamic_j", ascending=False, kind="stable").drop_duplicates(KEY)


def draw(rows: pd.DataFrame, count: int, generator: np.random.Generator) -> pd.DataFrame:
    """Return `count` rows, each class weighted by the root of how many rows it has."""
    weights = 1 / np.sqrt(rows.groupby("class")["class"].transform("size"))
    return rows.iloc[generator.choice(len(rows), min(count, len(rows)), replace=False, p=weights / weights.sum())]


def write(given: argparse.Namespace) -> None:
    """Draw and write."""
    tables = [
        files.read_table(
            resource("reference") / name / layout.CATALOGUE / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA
        )
        for name in given.reference
    ]
    operations = {(row["operation_id"], row["pass"]): row for row in pa.concat_tables(tables).to_pylist()}
    rows = measured(given.reference)
    rows = rows[rows["time_device_s"] <= given.longest].set_index(KEY, drop=False)
    rows["class"] = [operations[key]["operation_class"] for key in rows.index]
    there = measured(given.has).set_index(KEY) if given.has else rows[:0]
    generator = np.random.default_rng(given.seed)
    lacks_energy = ~rows.index.isin(there.index[there["energy_dynamic_j"] > 0])
    energies = draw(rows[lacks_energy & (rows["energy_dynamic_j"] > 0)], given.energies, generator)
    lacks_time = ~rows.index.isin(there.index.append(energies.index))
    times = draw(rows[lacks_time], given.times, generator)
    chosen = []
    for drawn, quantities in ((energies, [records.TIME, records.ENERGY]), (times, [records.TIME])):
        for key, execution in zip(drawn.index, drawn["execution"], strict=True):
            settings = {"measured_execution": [execution], "measured_quantities": quantities}
            chosen.append({**operations[key], **settings})
    write_operations(pa.Table.from_pylist(chosen, records.OPERATION_SCHEMA), given.output)
    print(f"{given.output}: {len(energies)} operations with energy, {len(times)} with time alone")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", nargs="+", default=["h200"], metavar="NAME")
    parser.add_argument("--has", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("--energies", type=int, default=700)
    parser.add_argument("--longest", type=float, default=0.01, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--output", type=Path, required=True)
    write(parser.parse_args())
