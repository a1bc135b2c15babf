"""Of operations that could be measured as time alone, those that predictors know least.

    python benchmarks/unsure.py OPERATIONS... --predictors DIR --gpu h200 --output CATALOGUE_DIR [--count 5000]

Takes Parquet files with the columns of a catalogue's operations and, where one precision alone is wanted, `execution`
(as `other_networks.py` caches them). Left out is what the shipped data or a fresh set has, recurrent layers, which take
half a second each to measure, and what is told to take less than 2 µs or more than 10 ms. Of the rest half are those
whose interval of device time is widest in seconds, half those where it is widest relative to the time; no class makes
up more than a fifth. The catalogue, shuffled, is for `clockwatt measure --catalogue-dir`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from clockwatt.operations.spec.operation import RECURRENT_CLASSES
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.schema import records
from clockwatt.schema.costs import BY_CORRECTED, TIME_DEVICE_CORRECTED
from clockwatt.schema.execution import FP32, TF32, ExecutionSettings

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of this script is what Python looks into
from benchmarks.operations_alone import write_operations
from benchmarks.other_networks import known_operations

SHORTEST_S, LONGEST_S = 2e-6, 0.01
SHARE = 0.2
"""Of a class among all that are chosen, at most."""


def candidates(paths: list[Path]) -> pd.DataFrame:
    """Operations with `execution`, each once at each setting, without those that are known."""
    tables = [pd.read_parquet(path) for path in paths]
    both = [table if "execution" in table else table.merge(pd.DataFrame({"execution": [TF32, FP32]}), how="cross")
            for table in tables]  # fmt: skip
    rows = pd.concat(both, ignore_index=True)
    rows = rows[rows["device_work"] & ~rows["operation_class"].isin(RECURRENT_CLASSES)]
    rows = rows[~rows["operation_id"].isin(known_operations())]
    rows = rows[(rows["dtype"] == "float32") | (rows["execution"] == TF32)]  # which changes nothing but float32
    return rows.drop_duplicates(["operation_id", "pass", "execution"]).reset_index(drop=True)


def with_widths(rows: pd.DataFrame, predictors: Path, gpu: str) -> pd.DataFrame:
    """The rows with `device_s`, as predicted, and `width`, of the logarithm of its interval."""
    model, cost, parts = load_models(predictors)[gpu], BY_CORRECTED[TIME_DEVICE_CORRECTED], []
    for (pass_, execution), own in rows.groupby(["pass", "execution"]):
        told = model.predict(own, str(pass_), "default", execution=ExecutionSettings(str(execution))).loc[
            own["operation_id"]
        ]
        width = np.log(told[cost.upper] / told[cost.lower]).to_numpy(float)
        parts.append(own.assign(device_s=told[cost.corrected].to_numpy(float), width=width))
    return pd.concat(parts).query("@SHORTEST_S < device_s < @LONGEST_S")


def chosen_of(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """Half the widest in seconds, half the relatively widest."""
    kept: list[pd.DataFrame] = []
    for order, number in ((rows["width"] * rows["device_s"], count // 2), (rows["width"], count - count // 2)):
        taken = pd.concat(kept).index if kept else []
        ranked = rows.loc[order.sort_values(ascending=False).index].drop(taken)
        within = ranked.groupby("operation_class").cumcount() < SHARE * number
        kept.append(ranked[within].head(number))
    return pd.concat(kept)


def main() -> None:
    """Choose, and write the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", type=Path, nargs="+", metavar="OPERATIONS")
    parser.add_argument("--predictors", type=Path, required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=5000)
    given = parser.parse_args()
    rows = with_widths(candidates(given.operations), given.predictors, given.gpu)
    chosen = chosen_of(rows, given.count).sample(frac=1, random_state=3)
    settings = chosen.groupby(["operation_id", "pass"])["execution"].agg(lambda found: sorted(found))
    wanted = chosen.drop_duplicates(["operation_id", "pass"]).set_index(["operation_id", "pass"], drop=False)
    wanted["measured_execution"] = settings.reindex(wanted.index)
    wanted["measured_quantities"] = [[records.TIME]] * len(wanted)
    table = pa.Table.from_pandas(wanted[records.OPERATION_SCHEMA.names], records.OPERATION_SCHEMA, preserve_index=False)
    write_operations(table, given.output)
    told = chosen.groupby("operation_class").agg(
        operations=("width", "size"), width=("width", "median"), device_s=("device_s", "median")
    )
    print(told.sort_values("operations", ascending=False).to_string())
    print(f"{given.output}: {len(wanted)} operations, {len(chosen)} measurements of {len(rows)} candidates")


if __name__ == "__main__":
    main()
