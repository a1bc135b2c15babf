"""How well operations never seen are predicted, on measurements that others made on an NVIDIA A30.

    python benchmarks/thesis_a30.py [--trees 100] [--seeds 3]

Reads 929 operations of torchvision networks in both passes, TF32 on and off (C. Nicolai, master thesis, Heidelberg),
into our operations, and predicts each with its class and channel configuration held out, in 15 folds: by the roofline
predictor, and by the thesis's own way (a random forest on the time, from class, shapes and attributes) on the same
folds. Beside it stands what two measurements of one operation differ by, and R² on random folds, as the thesis has it.

Operations whose own repetitions contradict each other are left out and counted: most are stochastic depth, the identity
in inference, which ran as in training in some of the campaigns (40 µs at 165 W instead of 5 µs at 37 W).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import others
import pandas as pd
import result_file
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.operations.cost import cost
from clockwatt.operations.printed_modules import operation_of
from clockwatt.operations.spec.operation import Operation
from clockwatt.predict.evaluation.errors import metrics
from clockwatt.predict.evaluation.leave_out import grouped_folds
from clockwatt.predict.features import (
    CATALOGUE_COLUMNS,
    OPERATION_CLASS,
    Setting,
    channel_groups,
    features_at,
    operation_features,
)
from clockwatt.predict.models.predictors import RooflinePredictor
from clockwatt.schema.execution import FP32, ExecutionSettings, of_tf32

FOLDS = 15
TARGETS = {"time_eager_corrected_s": "time_per_iter_s", "power_corrected_w": "power_w"}
CONTRADICTION = 5
"""Slowest over fastest repetition from which on an operation has no one time."""

FULL_PRECISION_CLASSES = ("linear",)
"""The switch for TF32 was cuDNN's alone: these ran in float32 either way."""

FOLDS_OF = {"grouped": "class and channels held out", "random": "random"}

Predict = Callable[[pd.DataFrame, pd.DataFrame, pd.DataFrame], pd.DataFrame]


def main() -> None:
    """Print one table for each pass and TF32 setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3, help="folds are drawn anew with each")
    given = parser.parse_args()
    rows = others.read("thesis-a30-operations.parquet")
    table = []
    for (pass_, tf32), group in rows.groupby(["mode", "tf32"]):
        of = prepared(group, str(pass_))
        learners: dict[str, tuple[pd.DataFrame, Predict]] = {
            "roofline": (at_default_clock(of.features, of_tf32(bool(tf32))), roofline(given.trees)),
            "thesis's": (thesis_encoding(of.operations), forest(given.trees)),
        }
        for kind, groups in (("grouped", channel_groups(of.features)), ("random", of.single)):
            for name, (encoded, predict) in learners.items():
                runs = [
                    evaluate(encoded, of.targets, groups.to_numpy(), of.works, predict, seed)
                    for seed in range(given.seeds)
                ]
                row = [f"{pass_}, {precision(bool(tf32))}", FOLDS_OF[kind], name, *errors_of(of.targets, runs)]
                table.append(row)
                print(*row, sep=" | ", flush=True)
        table.append([f"{pass_}, {precision(bool(tf32))}", "", "repetitions differ by (median)", *floor(of.measured)])
    columns = ["pass, precision of convolutions", "folds", "predictor", "time: mean / median (R²)",
               "power: mean / median (R²)"]  # fmt: skip
    result_file.write("measurements-by-others", "929 operations on an NVIDIA A30, measured by C. Nicolai", columns,
                      table, hardware="NVIDIA A30 (public table); computed without a GPU",
                      notes=[f"Means over {given.seeds} draws of {FOLDS} folds; {given.trees} trees.",
                             "Operations whose own repetitions differ more than fivefold are left out."])  # fmt: skip


def precision(tf32: bool) -> str:
    """Of convolutions."""
    return "TF32" if tf32 else "float32"


@dataclass(frozen=True)
class Prepared:
    """Operations of the thesis that a predictor learns from, all in the same order.

    Attributes
    ----------
    measured, operations, features
        Rows of the public table, and their rows in a catalogue and as features.
    targets, works
        What is predicted, and whether the operation works on the device.
    """

    measured: pd.DataFrame
    operations: pd.DataFrame
    features: pd.DataFrame
    targets: pd.DataFrame
    works: NDArray[np.bool_]

    @property
    def single(self) -> pd.Series:
        """Groups of one operation each, for random folds."""
        return self.measured.index.to_series().astype(str)


def prepared(rows: pd.DataFrame, pass_: str) -> Prepared:
    """Prepare the operations of a pass, without those whose repetitions contradict each other."""
    measured = rows[rows["repeat_time_ratio"] < CONTRADICTION].reset_index(drop=True)
    operations = catalogue(measured, pass_)
    return Prepared(
        measured,
        operations,
        operation_features(operations[CATALOGUE_COLUMNS]),
        pd.DataFrame({name: measured[column] for name, column in TARGETS.items()}),
        operations["device_work"].to_numpy(bool),
    )


def catalogue(measured: pd.DataFrame, pass_: str) -> pd.DataFrame:
    """What the catalogue would hold of these operations, in their order."""
    rows = []
    for printed, shape in zip(measured["operator"], measured["input_shape"], strict=True):
        operation = operation_of(printed, [int(size) for size in shape.split("x")], pass_)
        costs = cost(operation, pass_)
        rows.append(
            {
                "operation_id": operation.operation_id,
                "operation_class": operation.operation_class,
                "dtype": operation.dtype,
                "spec": operation.to_json(),
                "flops": costs.flops,
                "bytes_read": costs.bytes_read,
                "bytes_written": costs.bytes_written,
                "parameter_bytes": sum(tensor.bytes for tensor in operation.tensors if tensor.parameter),
                "device_work": costs.device_work,
            }
        )
    return pd.DataFrame(rows)


def at_default_clock(features: pd.DataFrame, execution: ExecutionSettings) -> pd.DataFrame:
    """Features on the A30 at its default clock; shape (rows, features)."""
    numbered = features.reset_index(drop=True)
    full = numbered[OPERATION_CLASS].isin(FULL_PRECISION_CLASSES)
    spec = find_spec("NVIDIA A30")
    parts = [
        features_at(numbered[chosen], Setting(spec, OperatingPoint(), settings))
        for chosen, settings in ((full, FP32), (~full, execution))
    ]
    return pd.concat(parts).sort_index()


def thesis_encoding(operations: pd.DataFrame) -> pd.DataFrame:
    """Class, and each size and attribute as a pair of its value and whether it applies; no physics."""
    encoded = []
    for text in operations["spec"]:
        operation = Operation.from_json(text)
        sizes = [
            *_padded(operation.tensors[0].shape),
            *_padded(operation.tensors[1].shape if _weighted(operation) else ()),
        ]
        encoded.append([value for size in sizes for value in (size or 0, size is not None)])
    classes = pd.get_dummies(operations[OPERATION_CLASS], dtype=float)
    return pd.concat([pd.DataFrame(encoded, dtype=float), _strides(operations), classes], axis=1)


def _weighted(operation: Operation) -> bool:
    return len(operation.tensors) > 1


def _padded(shape: tuple[int, ...]) -> list[int | None]:
    return [*shape, *[None] * (4 - len(shape))]


def _strides(operations: pd.DataFrame) -> pd.DataFrame:
    described = operation_features(operations[CATALOGUE_COLUMNS]).reset_index(drop=True)
    names = ("kernel_size", "stride", "padding", "dilation", "groups")
    return described[list(names)]


def roofline(trees: int) -> Predict:
    """Ours, with its default settings."""

    def predict(features: pd.DataFrame, targets: pd.DataFrame, wanted: pd.DataFrame) -> pd.DataFrame:
        return RooflinePredictor(trees=trees).fit(features, targets).predict(wanted)

    return predict


def forest(trees: int) -> Predict:
    """A random forest on each quantity itself."""

    def predict(features: pd.DataFrame, targets: pd.DataFrame, wanted: pd.DataFrame) -> pd.DataFrame:
        columns = {
            name: RandomForestRegressor(trees, random_state=0, n_jobs=-1)
            .fit(features.to_numpy(float), targets[name])
            .predict(wanted.to_numpy(float))
            for name in targets
        }
        return pd.DataFrame(columns, index=wanted.index)

    return predict


def evaluate(
    features: pd.DataFrame, targets: pd.DataFrame, groups: np.ndarray, works: np.ndarray, predict: Predict, seed: int
) -> pd.DataFrame:
    """Each row predicted from the other folds; those without device work are known by their median there."""
    fold = grouped_folds(pd.Series(groups), FOLDS, seed)
    predictions = pd.DataFrame(np.nan, index=targets.index, columns=targets.columns)
    for number in range(FOLDS):
        out = fold == number
        learnt = ~out & works
        if (out & works).any():
            predictions.loc[out & works] = predict(features[learnt], targets[learnt], features[out & works])
        if (out & ~works).any():
            predictions.loc[out & ~works] = targets[~works & (fold != number)].median().to_numpy()
    return predictions


def errors_of(targets: pd.DataFrame, runs: list[pd.DataFrame]) -> list[str]:
    """Return mean and median error and R² of each quantity, as cells."""
    cells = []
    for name in targets:
        errors = pd.DataFrame([metrics(targets[name].to_numpy(float), run[name].to_numpy(float)) for run in runs])
        shown = errors[["r2", "mape", "median_ape"]].mean()
        cells.append(f"{shown['mape']:.1%} / {shown['median_ape']:.2%} ({shown['r2']:.3f})")
    return cells


def floor(measured: pd.DataFrame) -> list[str]:
    """Return what measurements of one operation differ by: no predictor can be better."""
    return [f"{(measured[column] - 1).median():.2%}" for column in ("repeat_time_ratio", "repeat_power_ratio")]


if __name__ == "__main__":
    main()
