"""Which kernels fresh operations run, and how much of what predictions miss knowing them would explain.

    PYTHONPATH=src python3 benchmarks/fresh/kernels.py record --output FILE [--operations 2500] [--seconds 150]
    python benchmarks/fresh/kernels.py judge benchmarks/fresh/kernels-h200-day7.parquet --predictors DIR --gpu h200

`record` runs on a GPU: it draws by a seed from the operations of `operations-GPU-day*.parquet`, the classes whose
libraries choose among kernels, and writes the names of the kernels of one call of each, longest first. `judge` takes
what the predictors, which never learnt from them, miss of their device times, and asks how much less it would be if a
forest, beside the features that predictors have, were told which kernels really ran, and for what share of the time.
Names are as the profiler gives them, cut after 120 characters. Nothing here is learnt from by what is shipped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from clockwatt.schema.execution import ExecutionSettings

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file

HERE = Path(__file__).parent
SEED = 0
CLASSES = ("conv", "linear", "matmul", "bmm", "addmm", "einsum", "scaled_dot_product_attention", "lstm", "gru", "rnn")
KEY = ["subject_id", "pass", "execution"]
FOLDS, TREES = 10, 200


def measured(gpu: str = "h200") -> pd.DataFrame:
    """Device times of fresh operations whose libraries choose among kernels, with spec and class."""
    from benchmarks.fresh.draw import SETS

    from clockwatt.io import files
    from clockwatt.io.former_settings import with_settings
    from clockwatt.schema import layout, records

    rows = pd.concat(
        [with_settings(pq.read_table(path)).to_pandas() for path in sorted(HERE.glob(f"operations-{gpu}-day*.parquet"))]
    )
    rows = rows[(rows["status"] == records.OK) & (rows["time_device_s"] > 0)].drop_duplicates(KEY)
    tables = [files.read_table(one.catalogue / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA).to_pandas()
              for one in SETS.values()]  # fmt: skip
    described = pd.concat(tables, ignore_index=True).drop_duplicates(["operation_id", "pass"])
    described = described[[any(part in name for part in CLASSES) for name in described["operation_class"]]]
    columns = ["operation_id", "pass", "operation_class", "spec"]
    return rows[[*KEY, "dtype", "time_device_s"]].merge(
        described[columns], left_on=["subject_id", "pass"], right_on=["operation_id", "pass"]
    )


def record(given: argparse.Namespace) -> None:
    """Profile operations one by one."""
    import torch
    from benchmarks.fresh.measure import profile_kernels
    from benchmarks.time_alone import this_gpu

    from clockwatt.config import TelemetryConfig
    from clockwatt.gpu.registry import open_installed, visible_gpus
    from clockwatt.measure.bench.cuda import CudaBench
    from clockwatt.measure.bench.interface import OutOfMemoryError, Subject, SubjectFailedError
    from clockwatt.schema.records import OPERATION
    from clockwatt.telemetry.process import logger_process

    rows = measured().to_dict("records")
    chosen = random.Random(SEED).sample(rows, min(given.operations, len(rows)))
    card, ends_at, found = visible_gpus()[0], time.monotonic() + given.seconds, []
    with (
        tempfile.TemporaryDirectory() as telemetry,
        contextlib.closing(open_installed(card)) as gpu,
        logger_process(card, uuid.uuid4().hex, Path(telemetry), TelemetryConfig()) as logger,
    ):
        specs = {row["subject_id"]: row["spec"] for row in chosen}
        bench = CudaBench(gpu, logger, specs, this_gpu())
        for row in chosen:
            if time.monotonic() >= ends_at:
                break
            subject = Subject(
                OPERATION,
                row["subject_id"],
                row["pass"],
                ExecutionSettings(row["execution"]),
                row["dtype"],
                0,
                device_work=True,
            )
            try:
                with bench.open(subject) as workload:
                    profile = profile_kernels(workload, torch)
            except (OutOfMemoryError, SubjectFailedError):
                continue
            found.append({name: row[name] for name in KEY} | {"kernels": profile.kernels, "names": profile.names})
    pd.DataFrame(found).to_parquet(given.output, compression="zstd")
    print(f"{given.output}: {len(found)} of {len(chosen)} operations")


def shipped_operations() -> set[str]:
    """Ids of operations that the shipped data have."""
    folders = (HERE.parents[1] / "resources" / "reference").glob("*/catalogue/operations.parquet")
    return {one for path in folders for one in pd.read_parquet(path, columns=["operation_id"])["operation_id"]}


def seconds_by_kernel(text: str) -> dict[str, float]:
    """Seconds of each kernel, by its name without addresses, of which the first 120 characters were kept."""
    found: Counter[str] = Counter()
    for name, seconds in json.loads(text).items():
        found[re.sub(r"0x[0-9a-f]+", "#", name)] += seconds
    return dict(found)


def judge(given: argparse.Namespace) -> None:
    """Explain what is missed, with and without the kernels' names."""
    from benchmarks.fresh.draw import SETS
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.model_selection import GroupKFold

    from clockwatt.config import OperatingPoint
    from clockwatt.gpu.specs import find_spec
    from clockwatt.io import files
    from clockwatt.predict.features import OPERATION_CLASS, Setting, features_at, operation_features
    from clockwatt.predict.gpu_predictor import load_models
    from clockwatt.schema import layout, records
    from clockwatt.schema.costs import COSTS, TIME_DEVICE

    model = load_models(given.predictors)[given.gpu]
    device = next(cost for cost in COSTS if cost.measured == TIME_DEVICE)
    rows = measured(given.gpu).merge(pd.read_parquet(given.file), on=KEY)
    rows = rows[~rows["subject_id"].isin(shipped_operations())]
    catalogue = pd.concat([
        files.read_table(one.catalogue / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA).to_pandas()
        for one in SETS.values()
    ]).drop_duplicates(["operation_id", "pass"])  # fmt: skip
    parts: list[tuple[pd.DataFrame, Any]] = []
    for (pass_, execution), own in rows.groupby(["pass", "execution"]):
        operations = catalogue[(catalogue["pass"] == pass_) & catalogue["operation_id"].isin(own["subject_id"])]
        operations = operations.reset_index(drop=True)
        said = model.predict(operations, pass_, "default", execution=ExecutionSettings(str(execution)))
        stated = pd.Series(said[device.corrected].to_numpy(), index=operations["operation_id"])
        setting = Setting(
            find_spec(model.description.gpu_name),
            OperatingPoint.parse("default"),
            execution=ExecutionSettings(str(execution)),
        )
        features = features_at(operation_features(operations).loc[own["subject_id"]], setting)
        off = np.log(stated.loc[own["subject_id"]].to_numpy() / own["time_device_s"].to_numpy())
        parts.append((own.assign(off=off, training=pass_ == records.TRAINING), features))
    joined = pd.concat([own for own, _ in parts], ignore_index=True)
    features = pd.concat([each for _, each in parts], ignore_index=True)
    names = [seconds_by_kernel(text) for text in joined["names"]]
    common = pd.Series([name for each in names for name in each]).value_counts()
    kinds = [name for name, count in common.items() if count >= given.least]
    shown = np.array([[each.get(name, 0) / sum(each.values()) for name in kinds] for each in names], dtype=np.float32)
    classes = pd.get_dummies(features[OPERATION_CLASS], dtype=np.float32).to_numpy()
    numbers = features.drop(columns=[OPERATION_CLASS]).to_numpy(np.float32)
    plain = np.nan_to_num(np.column_stack([numbers, classes, joined["training"]]), posinf=0.0, neginf=0.0)
    off = joined["off"].to_numpy()
    rows = [row_of("as predicted", off)]
    for name, matrix in (("the features", plain), ("features and kernels", np.column_stack([plain, shown]))):
        left = np.empty_like(off)
        for learnt, asked in GroupKFold(FOLDS).split(matrix, off, joined["subject_id"]):
            forest = ExtraTreesRegressor(TREES, max_features=0.5, min_samples_leaf=3, random_state=SEED, n_jobs=2)
            left[asked] = off[asked] - forest.fit(matrix[learnt], off[learnt]).predict(matrix[asked])
        rows.append(row_of(f"less what a forest learns from {name}", left))
    columns = ["error of the logarithm of device time", "mean", "median", "90th percentile"]
    notes = [f"{len(joined):,} operations, {len(kinds)} kernels that run in {given.least} operations or more."]
    result_file.write("predictors", "What knowing the kernels would gain", columns, rows, notes=notes,
                      hardware=f"{given.gpu}, operations measured before; computed without a GPU",
                      file=result_file.RESULTS / "fresh-kernels.json")  # fmt: skip


def row_of(name: str, off: np.ndarray[Any, np.dtype[np.float64]]) -> list[str]:
    """Return a row of the table."""
    sizes = np.abs(off)
    return [name, *(f"{value:.3f}" for value in (sizes.mean(), np.median(sizes), np.quantile(sizes, 0.9)))]


def main() -> int:
    """Do what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--output", type=Path, required=True)
    recording.add_argument("--operations", type=int, default=2500)
    recording.add_argument("--seconds", type=float, default=150.0, help="begin nothing after so long")
    judging = commands.add_parser("judge")
    judging.add_argument("file", type=Path)
    judging.add_argument("--predictors", type=Path, required=True)
    judging.add_argument("--gpu", default="h200")
    judging.add_argument("--least", type=int, default=5, help="operations that must share a kernel for it to count")
    given = parser.parse_args()
    (record if given.command == "record" else judge)(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
