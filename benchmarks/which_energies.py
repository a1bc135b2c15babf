"""Which operations to measure fully next, of those that were measured as time alone.

    python benchmarks/which_energies.py --gpu h200 --output CATALOGUE_DIR [--count 900] [--seed 0]
        [--classes conv2d lstm ...] [REFERENCE_DIR ...]

How much power an operation draws is learnt from those that were measured with energy (`predict/models/predictors.py`).
Of the others, each class gets a share by the square root of the time that all of its operations take, so that rare
kinds come too and no class takes all. Within a class half are those of whose power the trees are least sure, half are
drawn by a seed. Left out is what takes less than 20 µs, which its host paces, or more than 30 ms, and with `--classes`
all others. The catalogue is for `clockwatt measure --catalogue-dir`, `pack_reference.py --designed --drawn` ships what
it gives.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from operations_alone import write_operations
from sklearn.ensemble import ExtraTreesRegressor

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.predict.features import Setting, features_at, operation_features
from clockwatt.predict.models.predictors import utilisation
from clockwatt.schema import layout, records
from clockwatt.schema.execution import ExecutionSettings

SHORTEST_S, LONGEST_S = 2e-5, 0.03
KEY = ["operation_id", "pass"]


def measured(folders: list[Path], gpu: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of operations that took a time on the device, each once and with power where there is one; the catalogue."""
    tables = [pd.read_parquet(folder / layout.MEASUREMENTS / layout.operations_file(gpu, "default", 1))
              for folder in folders]  # fmt: skip
    rows = pd.concat(tables, ignore_index=True).rename(columns={"subject_id": "operation_id"})
    rows = rows[(rows["kind"] == records.OPERATION) & (rows["status"] == records.OK) & (rows["time_device_s"] > 0)]
    rows = rows.sort_values("power_w").drop_duplicates([*KEY, "execution"], keep="first")  # what has none comes last
    parts = [files.read_table(folder / layout.CATALOGUE / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA)
             for folder in folders]  # fmt: skip
    catalogue = pa.concat_tables(parts).to_pandas().drop_duplicates(KEY).reset_index(drop=True)
    return rows, catalogue


def with_spread(rows: pd.DataFrame, catalogue: pd.DataFrame, gpu_name: str, seed: int) -> pd.DataFrame:
    """The rows without power, with class and spread of what trees say of the logarithm of their power."""
    found = []
    for pass_, own in rows.groupby("pass"):
        described = catalogue[(catalogue["pass"] == pass_) & catalogue["operation_id"].isin(own["operation_id"])]
        operations = operation_features(described)
        parts = []
        for execution, at in own.groupby("execution"):
            setting = Setting(
                find_spec(gpu_name), OperatingPoint.parse("default"), execution=ExecutionSettings(str(execution))
            )
            features = features_at(operations.loc[at["operation_id"]], setting)
            matrix = utilisation(features, at["time_device_s"].to_numpy(float))
            parts.append((at, matrix))
        joined = pd.concat([at for at, _ in parts])
        matrix = np.concatenate([each for _, each in parts])
        dynamic_w = (joined["energy_dynamic_j"] / joined["time_device_s"]).to_numpy(float)
        known = dynamic_w > 0
        forest = ExtraTreesRegressor(50, max_features=0.5, min_samples_leaf=2, random_state=seed, n_jobs=1)
        forest.fit(matrix[known], np.log(dynamic_w[known]))
        asked = joined["power_w"].isna().to_numpy()
        spread: NDArray[np.float64] = np.std([tree.predict(matrix[asked]) for tree in forest.estimators_], axis=0)
        classes = described.set_index("operation_id")["operation_class"]
        lacking = joined[asked]
        found.append(lacking.assign(spread=spread, operation_class=lacking["operation_id"].map(classes)))
    return pd.concat(found, ignore_index=True)


def chosen_of(lacking: pd.DataFrame, count: int, seed: int) -> pd.DataFrame:
    """As many rows as are wanted, each class its share."""
    rng = np.random.default_rng(seed)
    weights = np.sqrt(lacking.groupby("operation_class")["time_device_s"].sum())
    shares = (weights / weights.sum() * count).to_dict()
    kept = []
    for name, own in lacking.groupby("operation_class"):
        number = min(len(own), max(1, round(shares[name])))
        unsure = own.sort_values("spread", ascending=False).iloc[: number - number // 2]
        rest = own.drop(unsure.index)
        kept += [unsure, rest.iloc[rng.permutation(len(rest))[: number // 2]]]
    return pd.concat(kept)


def main() -> None:
    """Choose, and write the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", metavar="REFERENCE_DIR")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--gpu-name", default="NVIDIA H200")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=900)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--classes", nargs="+", default=[])
    given = parser.parse_args()
    folders = given.folders or [resource("reference") / name for name in ("h200", "h200-wide")]
    rows, catalogue = measured(folders, given.gpu)
    lacking = with_spread(rows, catalogue, given.gpu_name, given.seed)
    lacking = lacking[lacking["time_device_s"].between(SHORTEST_S, LONGEST_S)]
    if given.classes:
        lacking = lacking[lacking["operation_class"].isin(given.classes)]
    chosen = chosen_of(lacking, given.count, given.seed)
    settings = chosen.groupby(KEY)["execution"].agg(lambda found: sorted(set(found))).to_dict()
    wanted = [
        row | {"measured_execution": execution, "measured_quantities": [records.TIME, records.ENERGY]}
        for row in pa.Table.from_pandas(catalogue, schema=records.OPERATION_SCHEMA, preserve_index=False).to_pylist()
        if (execution := settings.get((row["operation_id"], row["pass"])))
    ]
    write_operations(pa.Table.from_pylist(wanted, records.OPERATION_SCHEMA), given.output)
    told = chosen.groupby("operation_class").agg(operations=("spread", "size"), spread=("spread", "median"))
    print(told.sort_values("operations", ascending=False).to_string())
    print(f"{given.output}: {len(wanted)} operations, {len(chosen)} measurements")


if __name__ == "__main__":
    main()
