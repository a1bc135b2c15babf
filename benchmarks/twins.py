"""Operations whose energy one card has, drawn for another card to measure: twins, as `new_card.py` has them.

    python benchmarks/twins.py --reference h200 --count 700 --output CATALOGUE_DIR

A seed draws from the operations of the shipped data of a GPU that have an energy, those of rare classes more often, and
writes them as a catalogue that measures time and energy at the TF32 setting of the row drawn.
`clockwatt measure --catalogue-dir` measures it, `pack_reference.py` ships it.
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


def write(reference: str, count: int, output: Path) -> None:
    """Draw and write."""
    shipped = resource("reference") / reference
    table = files.read_table(shipped / layout.CATALOGUE / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA)
    operations = {(row["operation_id"], row["pass"]): row for row in table.to_pylist()}
    found = []
    for path in sorted((shipped / layout.MEASUREMENTS).rglob("[0-9]*.parquet")):
        columns = ["kind", "subject_id", "pass", "execution", "status", "energy_dynamic_j"]
        rows = files.read_table(path, records.MEASUREMENT_SCHEMA, columns).to_pandas()
        found.append(rows[(rows["kind"] == records.OPERATION) & (rows["status"] == records.OK)])
    rows = pd.concat(found, ignore_index=True)
    rows = rows[rows["energy_dynamic_j"] > 0].drop_duplicates(["subject_id", "pass"])
    keys = zip(rows["subject_id"], rows["pass"], strict=True)
    classes = np.array([operations[key]["operation_class"] for key in keys])
    names, counts = np.unique(classes, return_counts=True)
    weights = 1 / np.sqrt(counts[np.searchsorted(names, classes)])
    number = min(count, len(rows))
    drawn = rows.iloc[np.random.default_rng(SEED).choice(len(rows), number, replace=False, p=weights / weights.sum())]
    chosen = []
    for row in drawn.to_dict("records"):
        operation = dict(operations[row["subject_id"], row["pass"]])
        operation["measured_execution"] = [row["execution"]]
        operation["measured_quantities"] = [records.TIME, records.ENERGY]
        chosen.append(operation)
    write_operations(pa.Table.from_pylist(chosen, records.OPERATION_SCHEMA), output)
    print(f"{output}: {len(chosen)} operations")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", default="h200", metavar="NAME")
    parser.add_argument("--count", type=int, default=700)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    write(given.reference, given.count, given.output)
