"""One forest with the clock as a feature against a forest for each clock, on kernels of a Tesla V100.

    python benchmarks/clock_feature.py

Reads 158 CUDA kernels at nine core clocks with their activity counters (Wang and Chu, HKBU; rows labelled 405 MHz,
which ran at another clock, left out). Attributes of a kernel are its counters and power at the highest clock. Predicted
are time over that at the highest clock, power and relative energy. Fifteen folds hold out programs with all their
kernels and inputs. Last, each clock in turn is left out too: only the clock as a feature can answer there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import others
import pandas as pd
import result_file
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import GroupKFold

FOLDS, TREES = 15, 100
KERNEL = ["benchmark", "kernel", "arg_no"]
COUNTERS = ["smact", "smocc", "tenso", "drama", "fp64a", "fp32a", "fp16a"]
TARGETS = ["relative time", "power", "relative energy"]
Predict = Callable[[pd.DataFrame, pd.DataFrame], np.ndarray]


def main() -> None:
    """Write R² of both, and of the one at clocks left out."""
    rows = prepared()
    features = [name for name in rows if name.startswith("at_highest")]

    def forest(train: pd.DataFrame, test: pd.DataFrame, names: list[str]) -> np.ndarray:
        model = RandomForestRegressor(TREES, min_samples_leaf=1, max_features=0.5, random_state=0)
        return np.asarray(model.fit(train[names], train[TARGETS]).predict(test[names]))

    def one(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
        return forest(train, test, [*features, "core_mhz"])

    def per_clock(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
        found = np.empty((len(test), len(TARGETS)))
        for clock in test["core_mhz"].unique():
            here = (test["core_mhz"] == clock).to_numpy()
            found[here] = forest(train[train["core_mhz"] == clock], test[here], features)
        return found

    def elsewhere(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
        found = np.empty((len(test), len(TARGETS)))
        for clock in test["core_mhz"].unique():
            here = (test["core_mhz"] == clock).to_numpy()
            found[here] = one(train[train["core_mhz"] != clock], test[here])
        return found

    learners: dict[str, Predict] = {
        "clock as a feature": one,
        "a forest for each clock": per_clock,
        "clock as a feature, clock left out": elsewhere,
    }
    result_file.write(
        "reproductions", "Thesis: clock as a feature against a model for each clock",
        ["learner", *(f"R² {name}" for name in TARGETS)],
        [[name, *scores(rows, predict)] for name, predict in learners.items()],
        notes=[f"{rows.groupby(KERNEL).ngroups} kernels, 9 clocks; {FOLDS} folds by program."],
        hardware="NVIDIA Tesla V100 (Wang and Chu)",
    )  # fmt: skip


def prepared() -> pd.DataFrame:
    """Return a row for each kernel and clock, with what it does at its highest clock."""
    rows = others.read("dvfs-v100.parquet")
    rows = rows[~rows["label_suspect"]].sort_values("core_mhz")
    highest = rows.groupby(KERNEL).last()
    known = highest[[*(f"dcgm_{name}" for name in COUNTERS), "power_w"]].add_prefix("at_highest_")
    rows = rows.merge(known.reset_index(), on=KERNEL).merge(
        highest[["time_s", "energy_j"]].add_suffix("_highest").reset_index(), on=KERNEL
    )
    return rows.assign(
        **{
            "relative time": rows["time_s"] / rows["time_s_highest"],
            "power": rows["power_w"],
            "relative energy": rows["energy_j"] / rows["energy_j_highest"],
        }
    )


def scores(rows: pd.DataFrame, predict: Predict) -> list[str]:
    """Return mean ± deviation over folds of R² of each target."""
    found = []
    for train, test in GroupKFold(FOLDS, shuffle=True, random_state=0).split(rows, groups=rows["benchmark"]):
        predicted = predict(rows.iloc[train], rows.iloc[test])
        measured = rows.iloc[test][TARGETS].to_numpy()
        found.append([r2_score(measured[:, number], predicted[:, number]) for number in range(len(TARGETS))])
    return [
        f"{mean:.3f} ± {deviation:.3f}" for mean, deviation in zip(np.mean(found, 0), np.std(found, 0), strict=True)
    ]


if __name__ == "__main__":
    main()
