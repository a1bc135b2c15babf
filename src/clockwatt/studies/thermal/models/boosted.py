"""Gradient-boosted trees on the change of temperature, a model for each horizon; stored as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.predict.models.trees import Trees
from clockwatt.studies.thermal.models.table import OfHorizons, Scaling
from clockwatt.studies.thermal.traces import Array

TREES = 60
RATE = 0.1


@dataclass(frozen=True)
class Boosted:
    """The trees of one horizon: what they add to the mean change `centre_k`, from features scaled so."""

    scaling: Scaling
    centre_k: float
    trees: Trees


class BoostedTrees(OfHorizons[Boosted]):
    """`sklearn.ensemble.GradientBoostingRegressor` on the features of the regressions."""

    name = "trees"

    def learn(self, features: dict[str, Array], change: Array) -> Boosted | None:
        """See `OfHorizons`."""
        from sklearn.ensemble import GradientBoostingRegressor

        scaling = Scaling.of(features)
        if not scaling.columns:
            return None
        booster = GradientBoostingRegressor(
            n_estimators=TREES, learning_rate=RATE, max_depth=4, subsample=0.5, max_features=0.5,
            min_samples_leaf=max(1, min(20, len(change) // 10)), init="zero", random_state=0,
        )  # fmt: skip
        centre = float(change.mean())
        booster.fit(scaling.matrix(features, len(change)).astype(np.float32), change - centre)
        return Boosted(scaling, centre, Trees.from_forest(SimpleNamespace(estimators_=list(booster.estimators_[:, 0]))))

    def change_k(self, fitted: Boosted, features: dict[str, Array], rows: int) -> Array:
        """See `OfHorizons`."""
        trees, matrix = fitted.trees, fitted.scaling.matrix(features, rows).astype(np.float32)
        # the forest gives the mean over its trees; a boosted one is their sum
        return np.asarray(fitted.centre_k + RATE * len(trees.roots) * trees.predict(matrix)[:, 0])

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Forecaster`."""
        described = {
            str(steps): {
                "columns": fitted.scaling.columns, "mean": fitted.scaling.mean.tolist(),
                "scale": fitted.scaling.scale.tolist(), "centre_k": fitted.centre_k,
            } for steps, fitted in self.fits_.items()
        }  # fmt: skip
        arrays = {
            f"{steps}/{name}": array
            for steps, fitted in self.fits_.items()
            for name, array in fitted.trees.arrays().items()
        }
        return {"fits": described}, arrays

    def restore(self, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> BoostedTrees:
        """See `Forecaster`."""
        self.fits_ = {}
        for text, fitted in described["fits"].items():
            steps, prefix = int(text), f"{int(text)}/"
            columns = [str(name) for name in fitted["columns"]]
            scaling = Scaling(columns, np.array(fitted["mean"], float), np.array(fitted["scale"], float))
            if len(scaling.mean) != len(columns) or len(scaling.scale) != len(columns):
                raise ValueError("features and their scales differ in number")
            own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            trees = Trees.from_arrays(own, features=len(columns))
            self.fits_[steps] = Boosted(scaling, float(fitted["centre_k"]), trees)
        return self
