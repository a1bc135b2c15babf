"""Gradient-boosted trees on the change of temperature, a model for each horizon; stored as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.predict.models.trees import Trees
from clockwatt.studies.thermal.inputs import Ints
from clockwatt.studies.thermal.models.base import Forecaster, Rows
from clockwatt.studies.thermal.models.table import Scaling, check_learnt, features_at, learning_table
from clockwatt.studies.thermal.traces import Array, Trace

TREES = 60
RATE = 0.1


class BoostedTrees(Forecaster):
    """`sklearn.ensemble.GradientBoostingRegressor` on the features of the regressions."""

    name = "trees"

    def fit(self, traces: Sequence[Trace], rows: Rows | None = None) -> BoostedTrees:
        """See `Forecaster`."""
        from sklearn.ensemble import GradientBoostingRegressor

        self.scalings_: dict[int, Scaling] = {}
        self.trees_: dict[int, Trees] = {}
        self.centres_: dict[int, float] = {}
        for steps in self.task.steps:
            table = learning_table(traces, self.task, rows, steps)
            if table is None:
                continue
            features, change = table
            scaling = Scaling.of(features)
            if not scaling.columns:
                continue
            matrix = scaling.matrix(features, len(change)).astype(np.float32)
            booster = GradientBoostingRegressor(
                n_estimators=TREES, learning_rate=RATE, max_depth=4, subsample=0.5, max_features=0.5,
                min_samples_leaf=max(1, min(20, len(change) // 10)), init="zero", random_state=0,
            )  # fmt: skip
            centre = float(change.mean())
            booster.fit(matrix, change - centre)
            self.scalings_[steps], self.centres_[steps] = scaling, centre
            self.trees_[steps] = Trees.from_forest(SimpleNamespace(estimators_=list(booster.estimators_[:, 0])))
        check_learnt(len(self.trees_), self.name)
        return self

    def forecast(self, trace: Trace, origins: Ints) -> Array:
        """See `Forecaster`."""
        found = np.full((len(origins), len(self.task.steps)), np.nan)
        for column, steps in enumerate(self.task.steps):
            inside = origins + steps < len(trace) if self.task.load == "known" else np.ones(len(origins), bool)
            if (trees := self.trees_.get(steps)) is None or not inside.any():
                continue
            chosen = origins[inside]
            features = features_at(trace, self.task, chosen, steps)
            matrix = self.scalings_[steps].matrix(features, len(chosen)).astype(np.float32)
            # the forest gives the mean over its trees; a boosted one is their sum
            change = self.centres_[steps] + RATE * len(trees.roots) * trees.predict(matrix)[:, 0]
            found[inside, column] = trace.temperature_c[chosen] + change
        return found

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Forecaster`."""
        described = {
            str(steps): {
                "columns": scaling.columns, "mean": scaling.mean.tolist(), "scale": scaling.scale.tolist(),
                "centre_k": self.centres_[steps],
            } for steps, scaling in self.scalings_.items()
        }  # fmt: skip
        arrays = {
            f"{steps}/{name}": array for steps, trees in self.trees_.items() for name, array in trees.arrays().items()
        }
        return {"fits": described}, arrays

    def restore(self, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> BoostedTrees:
        """See `Forecaster`."""
        self.scalings_, self.trees_, self.centres_ = {}, {}, {}
        for text, fitted in described["fits"].items():
            steps, prefix = int(text), f"{int(text)}/"
            columns = [str(name) for name in fitted["columns"]]
            scaling = Scaling(columns, np.array(fitted["mean"], float), np.array(fitted["scale"], float))
            if len(scaling.mean) != len(columns) or len(scaling.scale) != len(columns):
                raise ValueError("features and their scales differ in number")
            own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            self.trees_[steps] = Trees.from_arrays(own, features=len(columns))
            self.scalings_[steps], self.centres_[steps] = scaling, float(fitted["centre_k"])
        return self
