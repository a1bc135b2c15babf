"""Turn the operations that a thesis measured on an A30 and an RTX 2080 Ti into reference data that the project ships.

    python tools/pack_thesis.py TABLES_DIR [--output-dir resources/reference]

Reads `thesis-GPU-operations.parquet` of each GPU in TABLES_DIR (C. Nicolai, master thesis, Heidelberg), flags the rows
with known faults, and writes the folders `a30` and `rtx2080ti` by `clockwatt import`. The dataset that it joins is not
shipped.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from packing import rounded_column, write_small

from clockwatt.dataset.import_table import DATASET, Request, import_table
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.schema.flags import Flag

DEVICES = {"a30": "NVIDIA A30", "rtx2080ti": "NVIDIA GeForce RTX 2080 Ti"}
COLUMNS = {
    "operation": "operator",
    "pass": "mode",
    "time_eager_s": "time_per_iter_s",
    "time_eager_standard_error_s": "time_err_s",
    "power_standard_error_w": "power_err_w",
}
HOST_BOUND_BELOW_S = {"a30": 160e-6, "rtx2080ti": 0.0}
"""Training calls faster than this were host-bound: all of them take 145 µs or more."""
CAPPED_ABOVE_W = {"a30": 162.0, "rtx2080ti": 245.0}
DISAGREE, CONTRADICT = 1.2, 5
"""Ratios of the largest to the smallest repetition."""
TRAINING_MODE = ("2024-11old", "2024-11", "2025-01")
"""Campaigns of the RTX 2080 Ti whose batch normalisation is as slow as in training mode: half the bandwidth of later
campaigns."""
BITS = {"standard_error": 5}


def main() -> None:
    """Write both folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, metavar="TABLES_DIR")
    parser.add_argument("--output-dir", type=Path, default=resource("reference"))
    given = parser.parse_args()
    for gpu, device in DEVICES.items():
        with tempfile.TemporaryDirectory(dir=given.output_dir, prefix=f".{gpu}.") as scratch:
            table, imported = Path(scratch) / f"thesis-{gpu}-operations.parquet", Path(scratch) / gpu
            prepared(pd.read_parquet(given.tables / table.name), gpu).to_parquet(table)
            import_table(Request(table, gpu, device, columns=COLUMNS), imported)
            files.remove_folders([imported / DATASET])
            for path in imported.rglob("*.parquet"):
                shrink(path)
            target = given.output_dir / gpu
            files.remove_folders([target] if target.exists() else [])
            imported.rename(target)
        print(target, sum(path.stat().st_size for path in target.rglob("*") if path.is_file()), "bytes")


def prepared(rows: pd.DataFrame, gpu: str) -> pd.DataFrame:
    """Return the table with flags, and with TF32 as the thesis set it: by cuDNN's switch alone."""
    training = rows["mode"] == "training"
    disagree = (rows["repeat_time_ratio"] > DISAGREE) | (rows["repeat_power_ratio"] > DISAGREE)
    slow = (gpu == "rtx2080ti") & ~training & (rows["op_class"] == "BatchNorm2d") & rows["campaign"].isin(TRAINING_MODE)
    flags = {
        Flag.GRADIENT_ACCUMULATED: training & (gpu == "a30"),
        Flag.HOST_BOUND: training & (rows["time_per_iter_s"] < HOST_BOUND_BELOW_S[gpu]),
        Flag.POWER_CAPPED: rows["power_w"] > CAPPED_ABOVE_W[gpu],
        Flag.REPETITIONS_DISAGREE: disagree,
        Flag.DOUBTFUL: (rows["repeat_time_ratio"] > CONTRADICT) | (rows["doubt"] != "") | slow,
    }
    for flag, applies in flags.items():
        print(f"{gpu}: {flag}: {int(applies.sum())} of {len(rows)} rows")
    names = [" ".join(flag for flag, applies in flags.items() if applies[row]) for row in rows.index]
    return rows.assign(tf32=np.where(rows["tf32"], "conv", "false"), flags=names)


def shrink(path: Path) -> None:
    """Write a Parquet file again, small."""
    table = pq.read_table(path)
    for field in table.schema:
        if str(field.type) == "double":
            table = rounded_column(table, field.name, BITS)
    write_small(table, path)


if __name__ == "__main__":
    main()
