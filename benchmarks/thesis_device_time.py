"""R² of back-to-back time, the thesis's quantity, beside that of device time, on the shipped operations of an H200.

    python benchmarks/thesis_device_time.py [--trees 30]

Folds, learners and R² are those of `thesis_folds.py`; the operations are those of networks with TF32 whose back-to-back
time, device time and power were all measured. The measured values of an operation are averaged.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import result_file
from thesis_a30 import Predict, forest, roofline, thesis_encoding
from thesis_folds import scores

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.operations.spec.operation import Operation
from clockwatt.predict.features import CATALOGUE_COLUMNS, Setting, features_at, operation_features
from clockwatt.schema.costs import TIME_DEVICE_CORRECTED
from clockwatt.schema.execution import of_tf32
from clockwatt.schema.records import INFERENCE, TRAINING

H200 = Path(__file__).parents[1] / "resources" / "reference" / "h200"
BACK_TO_BACK, POWER = "time_eager_corrected_s", "power_corrected_w"
MEASURED = {"time_eager_s": BACK_TO_BACK, "time_device_s": TIME_DEVICE_CORRECTED, "power_w": POWER}
TIMES = {BACK_TO_BACK: "back to back", TIME_DEVICE_CORRECTED: "device"}
MOST_DIMENSIONS = 4
"""That the thesis's encoding has columns for."""


def main() -> None:
    """Write R² of both times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=30)
    trees = parser.parse_args().trees
    catalogue = pd.read_parquet(H200 / "catalogue" / "operations.parquet")
    catalogue = catalogue[(catalogue["source"] != "design") & catalogue["spec"].map(is_encodable)]
    rows = pd.read_parquet(H200 / "measurements" / "h200" / "default" / "1.parquet")
    found = []
    for pass_ in (INFERENCE, TRAINING):
        own = rows[(rows["pass"] == pass_) & rows["tf32"]].dropna(subset=list(MEASURED))
        measured = own.groupby("subject_id")[list(MEASURED)].mean().rename(columns=MEASURED)
        operations = catalogue[catalogue["pass"] == pass_].merge(measured, left_on="operation_id", right_index=True)
        operations = operations.reset_index(drop=True)
        features = operation_features(operations[CATALOGUE_COLUMNS]).reset_index(drop=True)
        encoded = thesis_encoding(operations)
        encoded.columns = encoded.columns.astype(str)
        setting = Setting(find_spec("NVIDIA H200"), OperatingPoint(), of_tf32(True))
        learners: dict[str, tuple[pd.DataFrame, Predict]] = {
            "forest, (value, flag)": (encoded, forest(trees)),
            "roofline (ours)": (features_at(features, setting), roofline(trees)),
        }
        single = operations["operation_id"]
        works = operations["device_work"].to_numpy(bool)
        for time, title in TIMES.items():
            for name, (matrix, predict) in learners.items():
                shown = scores(matrix, operations[[time, POWER]], single, works, predict)
                found.append([pass_, int(works.sum()), title, name, *shown])
                print(*found[-1], sep=" | ", flush=True)
    result_file.write(
        "reproductions", "Thesis: R² of back-to-back time beside that of device time, on an H200",
        ["pass", "operations", "time", "learner", "R² time", "R² power", "R² time × power"], found,
        hardware="NVIDIA H200 (shipped measurements)",
        notes=[
            "Mean ± deviation over fifteen random folds, with TF32.",
            "Back-to-back time includes gaps between launches; device time does not. Power is that of the loop.",
        ],
    )  # fmt: skip


def is_encodable(spec: str) -> bool:
    """Return whether the sizes of input and weight fit into the thesis's encoding."""
    tensors = Operation.from_json(spec).tensors
    return bool(tensors) and all(len(tensor.shape) <= MOST_DIMENSIONS for tensor in tensors[:2])


if __name__ == "__main__":
    main()
