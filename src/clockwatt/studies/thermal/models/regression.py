"""Linear and polynomial regression of the change of temperature, a fit for each horizon."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.studies.thermal.models.table import OfHorizons, Scaling
from clockwatt.studies.thermal.traces import Array


class Regression(OfHorizons[dict[str, Any]]):
    """Ridge regression on standardised features; forecasts stay within the changes in the training data."""

    degree = 1
    ridge = 1e-3  # per row, of unit variance: keeps features that nearly repeat each other from cancelling

    def learn(self, features: dict[str, Array], change: Array) -> dict[str, Any]:
        """See `OfHorizons`."""
        scaling = Scaling.of(features)
        matrix = self._terms(scaling.matrix(features, len(change)))
        square = matrix.T @ matrix + self.ridge * len(change) * np.diag([0.0] + [1.0] * (matrix.shape[1] - 1))
        weights = np.linalg.solve(square, matrix.T @ change)
        return {
            "columns": scaling.columns, "mean": scaling.mean.tolist(), "scale": scaling.scale.tolist(),
            "weights": weights.tolist(), "least_k": float(change.min()), "most_k": float(change.max()),
        }  # fmt: skip

    def change_k(self, fitted: dict[str, Any], features: dict[str, Array], rows: int) -> Array:
        """See `OfHorizons`."""
        scaling = Scaling(fitted["columns"], np.array(fitted["mean"]), np.array(fitted["scale"]))
        change = self._terms(scaling.matrix(features, rows)) @ np.array(fitted["weights"])
        return np.asarray(np.clip(change, fitted["least_k"], fitted["most_k"]))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Forecaster`."""
        return {"fits": {str(steps): fitted for steps, fitted in self.fits_.items()}}, {}

    def restore(self, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Regression:  # noqa: ARG002
        """See `Forecaster`."""
        self.fits_: dict[int, dict[str, Any]] = {
            int(steps): dict(fitted) for steps, fitted in described["fits"].items()
        }
        for fitted in self.fits_.values():
            columns = len(fitted["columns"])
            numbers = [np.asarray(fitted[name], float) for name in ("mean", "scale", "weights")]
            expected = (columns, columns, self._terms(np.zeros((1, columns))).shape[1])
            if tuple(len(each) for each in numbers) != expected or not all(np.isfinite(each).all() for each in numbers):
                raise ValueError("weights and features differ in number")
            float(fitted["least_k"]), float(fitted["most_k"])
        return self

    def _terms(self, matrix: Array) -> Array:
        """Return features with a constant and, for degree 2, all products of two features."""
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
