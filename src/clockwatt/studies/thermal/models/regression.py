"""Linear and polynomial regression of the change of temperature, a fit for each horizon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.studies.thermal.inputs import Ints
from clockwatt.studies.thermal.models.base import Forecaster, Rows
from clockwatt.studies.thermal.models.table import Scaling, check_learnt, features_at, learning_table
from clockwatt.studies.thermal.traces import Array, Trace


class Regression(Forecaster):
    """Ridge regression on standardised features; forecasts stay within the changes that were learnt from."""

    degree = 1
    ridge = 1e-3  # per row, of unit variance: keeps features that nearly repeat each other from cancelling

    def fit(self, traces: Sequence[Trace], rows: Rows | None = None) -> Regression:
        """See `Forecaster`."""
        self.fits_: dict[int, dict[str, Any]] = {}
        for steps in self.task.steps:
            table = learning_table(traces, self.task, rows, steps)
            if table is None:
                continue
            features, change = table
            scaling = Scaling.of(features)
            matrix = self._terms(scaling.matrix(features, len(change)))
            square = matrix.T @ matrix + self.ridge * len(change) * np.diag([0.0] + [1.0] * (matrix.shape[1] - 1))
            weights = np.linalg.solve(square, matrix.T @ change)
            self.fits_[steps] = {
                "columns": scaling.columns, "mean": scaling.mean.tolist(), "scale": scaling.scale.tolist(),
                "weights": weights.tolist(), "least_k": float(change.min()), "most_k": float(change.max()),
            }  # fmt: skip
        check_learnt(len(self.fits_), self.name)
        return self

    def forecast(self, trace: Trace, origins: Ints) -> Array:
        """See `Forecaster`."""
        found = np.full((len(origins), len(self.task.steps)), np.nan)
        for column, steps in enumerate(self.task.steps):
            inside = origins + steps < len(trace) if self.task.load == "known" else np.ones(len(origins), bool)
            if (fitted := self.fits_.get(steps)) is None or not inside.any():
                continue
            chosen = origins[inside]
            scaling = Scaling(fitted["columns"], np.array(fitted["mean"]), np.array(fitted["scale"]))
            matrix = self._terms(scaling.matrix(features_at(trace, self.task, chosen, steps), len(chosen)))
            change = np.clip(matrix @ np.array(fitted["weights"]), fitted["least_k"], fitted["most_k"])
            found[inside, column] = trace.temperature_c[chosen] + change
        return found

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Forecaster`."""
        return {"fits": {str(steps): fitted for steps, fitted in self.fits_.items()}}, {}

    def restore(self, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Regression:  # noqa: ARG002
        """See `Forecaster`."""
        self.fits_ = {int(steps): dict(fitted) for steps, fitted in described["fits"].items()}
        for fitted in self.fits_.values():
            columns = len(fitted["columns"])
            numbers = [np.asarray(fitted[name], float) for name in ("mean", "scale", "weights")]
            expected = (columns, columns, self._terms(np.zeros((1, columns))).shape[1])
            if tuple(len(each) for each in numbers) != expected or not all(np.isfinite(each).all() for each in numbers):
                raise ValueError("weights and features differ in number")
            float(fitted["least_k"]), float(fitted["most_k"])
        return self

    def _terms(self, matrix: Array) -> Array:
        """With a constant, and with all products of two features where the degree is 2."""
        parts = [np.ones((len(matrix), 1)), matrix]
        if self.degree == 2:
            first, second = np.triu_indices(matrix.shape[1])
            parts.append(matrix[:, first] * matrix[:, second])
        return np.concatenate(parts, axis=1)


class Linear(Regression):
    """The change is a sum of features."""

    name = "linear"


class Polynomial(Regression):
    """The change is a sum of features and of products of two."""

    name = "polynomial"
    degree = 2
    ridge = 1e-2
