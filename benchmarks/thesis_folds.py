"""R² of fifteen folds on the operations of the thesis's A30, as the thesis states it: mean and deviation over folds.

    python benchmarks/thesis_folds.py [--trees 50]

Reads 929 operations in both passes with TF32 on and off (C. Nicolai, master thesis, Heidelberg). Folds are random, as
in the thesis, and R² is of back-to-back time, power and energy themselves. Energy is predicted time × predicted power.
Learners are the forest of the thesis, ExtraTrees and XGBoost on its encoding, in which each attribute is a pair of
value and flag; the forest on one-hot classes with missing attributes as zero; and our roofline predictor on random
folds and on folds that hold out class and channels. Last, the forest on its most important attributes alone.
"""

from __future__ import annotations

import argparse

import numpy as np
import others
import pandas as pd
import result_file
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.metrics import r2_score
from thesis_a30 import (
    FOLDS,
    Predict,
    at_default_clock,
    forest,
    precision,
    prepared,
    roofline,
    thesis_encoding,
)
from xgboost import XGBRegressor

from clockwatt.predict.evaluation.leave_out import grouped_folds
from clockwatt.predict.features import channel_groups
from clockwatt.schema.execution import of_tf32

FLAGS = 8
"""Sizes of input and weight, each followed by its flag in the encoding."""
FEWEST = (3, 5, 8, 12)


def main() -> None:
    """Write R² of all learners, and of the forest on fewer attributes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=50)
    trees = parser.parse_args().trees
    rows = others.read("thesis-a30-operations.parquet")
    found, fewer = [], []
    for (pass_, tf32), group in rows.groupby(["mode", "tf32"]):
        of = prepared(group, str(pass_))
        targets, works, random = of.targets, of.works, of.single
        encoded, ours = thesis_encoding(of.operations), at_default_clock(of.features, of_tf32(bool(tf32)))
        encoded.columns = encoded.columns.astype(str)
        learners: dict[str, tuple[pd.DataFrame, pd.Series, Predict]] = {
            "forest, (value, flag)": (encoded, random, forest(trees)),
            "ExtraTrees, (value, flag)": (encoded, random, extra_trees(trees)),
            "XGBoost, (value, flag)": (encoded, random, xgboost(trees)),
            "forest, one-hot": (without_flags(encoded), random, forest(trees)),
            "roofline (ours)": (ours, random, roofline(trees)),
            "roofline (ours), channels held out": (ours, channel_groups(of.features), roofline(trees)),
        }
        configuration = f"{pass_}, {precision(bool(tf32))}"
        for name, (matrix, groups, predict) in learners.items():
            found.append([configuration, name, *scores(matrix, targets, groups, works, predict)])
            print(*found[-1], sep=" | ", flush=True)
        order = importance(encoded[works], targets[works], trees)
        for number in (*FEWEST, len(order)):
            shown = scores(encoded[order[:number]], targets, random, works, forest(trees))
            fewer.append([configuration, number, *shown[:2]])
            print(*fewer[-1], sep=" | ", flush=True)
    write(found, fewer)


def write(found: list[list[object]], fewer: list[list[object]]) -> None:
    """Write both tables."""
    hardware = "NVIDIA A30 (thesis)"
    columns = ["pass, convolutions", "learner", "R² time", "R² power", "R² energy"]
    result_file.write(
        "reproductions", "Thesis: R² of fifteen folds", columns, found, hardware=hardware,
        notes=["Mean ± deviation over folds, of back-to-back time.", "Rows whose repetitions contradict are left out."],
    )  # fmt: skip
    result_file.write(
        "reproductions", "Thesis: the forest with fewer attributes", [columns[0], "attributes", *columns[2:4]],
        fewer, hardware=hardware, file=result_file.RESULTS / "thesis_folds-attributes.json",
        notes=["Attributes in the order of their importance to time and power, found on all rows."],
    )  # fmt: skip


def extra_trees(trees: int) -> Predict:
    """Extremely randomised trees on each quantity itself."""
    return alone(lambda: ExtraTreesRegressor(trees, random_state=0, n_jobs=1))


def xgboost(trees: int) -> Predict:
    """Boosted trees on each quantity itself, scaled: XGBoost's regularisation is absolute."""
    return alone(lambda: XGBRegressor(n_estimators=4 * trees, max_depth=6, learning_rate=0.1, n_jobs=1, random_state=0))


def alone(make: object) -> Predict:
    """Return predictions of one regressor for each quantity."""

    def predict(features: pd.DataFrame, targets: pd.DataFrame, wanted: pd.DataFrame) -> pd.DataFrame:
        columns = {}
        for name in targets:
            scale = targets[name].std()
            model = make().fit(features.to_numpy(float), targets[name] / scale)
            columns[name] = scale * model.predict(wanted.to_numpy(float))
        return pd.DataFrame(columns, index=wanted.index)

    return predict


def without_flags(encoded: pd.DataFrame) -> pd.DataFrame:
    """Return the encoding with missing attributes as zero alone."""
    return encoded.drop(columns=[str(2 * number + 1) for number in range(FLAGS)])


def scores(
    matrix: pd.DataFrame, targets: pd.DataFrame, groups: pd.Series, works: np.ndarray, predict: Predict
) -> list[str]:
    """Return R² of time, power and energy of operations with device work; `targets` has columns of time and power."""
    time, power = targets.columns
    fold = grouped_folds(pd.Series(groups.to_numpy()), FOLDS, 0)
    found: list[list[float]] = []
    for number in range(FOLDS):
        out = (fold == number) & works
        if out.sum() < 2:
            continue
        learnt = (fold != number) & works
        predicted, measured = predict(matrix[learnt], targets[learnt], matrix[out]), targets[out]
        both = [(measured[name], predicted[name]) for name in (time, power)]
        both.append((measured[time] * measured[power], predicted[time] * predicted[power]))
        found.append([float(r2_score(*pair)) for pair in both])
    return [
        f"{mean:.3f} ± {deviation:.3f}" for mean, deviation in zip(np.mean(found, 0), np.std(found, 0), strict=True)
    ]


def importance(encoded: pd.DataFrame, targets: pd.DataFrame, trees: int) -> list[str]:
    """Return attributes, those that matter most for time and power first."""
    total = np.zeros(encoded.shape[1])
    for name in targets:
        model = RandomForestRegressor(trees, random_state=0, n_jobs=1).fit(encoded.to_numpy(float), targets[name])
        total += model.feature_importances_
    return [str(name) for name in encoded.columns[np.argsort(-total)]]


if __name__ == "__main__":
    main()
