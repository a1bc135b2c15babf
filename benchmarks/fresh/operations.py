"""Fresh operations, measured one by one: how far off they are over how much was learnt from, and from what.

    python benchmarks/fresh/operations.py [--gpu h200] [--shares 0.5 1] [--trees 20] [--perceptrons 2]

Of the groups of like operations in the shipped data of the GPU a share is learnt from: by the forest alone, with
perceptrons beside it, and with perceptrons that learn from the other pass too. Writes of device time the errors of all
operations of `operations-GPU-day*.parquet` that were not learnt from. Nothing of them is learnt from.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.dataset.build import join_sources
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.io import files
from clockwatt.io.former_settings import with_settings
from clockwatt.io.resources import resource
from clockwatt.predict.features import OPERATION_CLASS, Setting, features_at, operation_features
from clockwatt.predict.models.predictors import RooflinePredictor
from clockwatt.predict.models.training_data import TrainingData, read_samples, training_data
from clockwatt.schema import layout, records
from clockwatt.schema.execution import ExecutionSettings

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of this script is what Python looks into
sys.path.insert(0, str(Path(__file__).parents[2]))
import result_file
from benchmarks.fresh.draw import SETS
from learning_curve import source

HERE = Path(__file__).parent
DEVICE = "time_device_corrected_s"


def fresh_operations(gpu: str, pass_: str, spec: GpuSpec) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """Features of the operations of all sets in a pass, and the device time that each took."""
    paths = sorted(HERE.glob(f"operations-{gpu}-day*.parquet"))
    rows = pd.concat([with_settings(pq.read_table(path)).to_pandas() for path in paths], ignore_index=True)
    rows = rows[(rows["status"] == records.OK) & (rows["pass"] == pass_) & (rows["time_device_s"] > 0)]
    rows = rows.drop_duplicates(["subject_id", "execution"])
    tables = [files.read_table(one.catalogue / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA).to_pandas()
              for one in SETS.values()]  # fmt: skip
    described = pd.concat(tables, ignore_index=True)
    described = described[described["pass"] == pass_].drop_duplicates("operation_id")
    operations = operation_features(described[described["operation_id"].isin(rows["subject_id"])])
    parts, seconds = [], []
    for execution, own in rows.groupby("execution"):
        setting = Setting(spec, OperatingPoint.parse("default"), ExecutionSettings(str(execution)))
        parts.append(features_at(operations.loc[own["subject_id"]], setting))
        seconds.append(own["time_device_s"].to_numpy(float))
    return pd.concat(parts), np.concatenate(seconds)


def share_of(data: TrainingData, share: float) -> NDArray[np.bool_]:
    """Cells to learn from if only a share of their groups is."""
    groups = sorted(set(data.groups))
    kept = np.random.default_rng(0).permutation(len(groups)) < share * len(groups)
    chosen: NDArray[np.bool_] = data.learnt & data.groups.map(dict(zip(groups, kept, strict=True))).to_numpy(bool)
    return chosen


def row_of(
    name: str, predicted: NDArray[np.float64], seconds: NDArray[np.float64], features: pd.DataFrame
) -> list[str]:
    """Return a row of the table."""
    cells = [name]
    convolutions = features[OPERATION_CLASS].str.startswith("conv").to_numpy(bool)
    for chosen in (np.ones(len(seconds), dtype=bool), convolutions):
        errors = np.abs(predicted[chosen] / seconds[chosen] - 1) * 100
        logarithms = np.abs(np.log(predicted[chosen] / seconds[chosen]))
        cells += [f"{np.median(errors):.1f} / {np.quantile(errors, 0.9):.0f}", f"{logarithms.mean():.3f}"]
    return cells


def main() -> int:
    """Learn and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--perceptrons", type=int, default=2)
    given = parser.parse_args()
    references = [path.name for path in sorted(resource("reference").iterdir()) if path.name.startswith(given.gpu)]
    with tempfile.TemporaryDirectory() as folder:
        join_sources("fresh", [source(name) for name in references], Path(folder))
        samples = read_samples(Path(folder), given.gpu)
    spec = find_spec(samples.gpu_name)
    known = {pass_: training_data(samples, pass_) for pass_ in (records.INFERENCE, records.TRAINING)}
    rows = []
    for pass_, data in known.items():
        features, seconds = fresh_operations(given.gpu, pass_, spec)
        new = ~features.index.isin(data.cells["operation_id"])
        features, seconds = features[new], seconds[new]
        (other,) = [one for name, one in known.items() if name != pass_]
        for share in given.shares:
            mine, theirs = share_of(data, share), share_of(other, share)
            beside = other.features[theirs], other.targets.loc[theirs, [DEVICE]]
            for kind, more in (("forest", None), ("perceptrons", None), ("both passes", beside)):
                number = 0 if kind == "forest" else given.perceptrons
                predictor = RooflinePredictor(trees=given.trees, leaf=2, perceptrons=number)
                predictor.fit(data.features[mine], data.targets.loc[mine, [DEVICE]], more)
                name = f"{pass_}, {int(mine.sum()):,}, {'MLPs' if kind == 'perceptrons' else kind}"
                rows.append(row_of(name, predictor.predict(features)[DEVICE].to_numpy(), seconds, features))
                print(*rows[-1], sep=" | ", flush=True)
    columns = ["trained on", "device time: median / 90th, %", "mean error of the logarithm",
               "convolutions: median / 90th, %", "mean error of the logarithm, convolutions"]  # fmt: skip
    result_file.write("predictors", "Forest and MLP ensemble on operations of held-out test sets", columns, rows,
                      hardware=f"{given.gpu}, operations measured before; computed without a GPU",
                      file=result_file.RESULTS / "fresh-operations.json")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
