"""Features of many origins as one matrix, for models that learn from rows."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np

from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.inputs import Ints, Task, coming_features, history_features
from clockwatt.studies.thermal.models.base import Forecaster, Rows, usable_rows
from clockwatt.studies.thermal.traces import Array, Trace

LEAST_ROWS = 30
MOST_ROWS = 3000
"""Largest number of origins, evenly spread, that a horizon is fitted to: neighbouring seconds are redundant."""


@dataclass(frozen=True)
class Scaling:
    """Names, means and deviations of features; a missing value is replaced by the mean."""

    columns: list[str]
    mean: Array
    scale: Array

    @classmethod
    def of(cls, features: dict[str, Array]) -> Scaling:
        """Leave out features that are never known or never change."""
        columns, means, scales = [], [], []
        for name, values in features.items():
            known = values[np.isfinite(values)]
            if len(known) and known.std() > 1e-9 * max(1.0, abs(known.mean())):
                columns.append(name)
                means.append(known.mean())
                scales.append(known.std())
        return cls(columns, np.array(means), np.array(scales))

    def matrix(self, features: dict[str, Array], rows: int) -> Array:
        """Return standardised features; shape (rows, columns)."""
        unknown = np.full(rows, np.nan)
        values = np.array([features.get(name, unknown) for name in self.columns], float)
        values = values.reshape(len(self.columns), rows).T
        return np.nan_to_num((values - self.mean) / self.scale, nan=0.0, posinf=0.0, neginf=0.0)


def features_at(trace: Trace, task: Task, origins: Ints, steps: int) -> dict[str, Array]:
    """All features of a horizon, known at the origins; with a known load these must lie `steps` before the end."""
    found = {name: values[origins] for name, values in history_features(trace, task.inputs).items()}
    if task.load == "known":
        found |= coming_features(trace, task.inputs, origins, steps)
    return found


def learning_table(
    traces: Sequence[Trace], task: Task, rows: Rows | None, steps: int
) -> tuple[dict[str, Array], Array] | None:
    """Return the features and changes of temperature in K over a horizon; None if there are too few.

    Returns
    -------
    Features by name and changes, of shape (rows,) each, at most `MOST_ROWS`.
    """
    origins = [chosen[chosen + steps < len(trace)] for trace, chosen in _zipped(traces, rows)]
    total = sum(map(len, origins))
    if total < LEAST_ROWS:
        return None
    stride = max(1, -(-total // MOST_ROWS))
    parts, changes = [], []
    for trace, chosen in zip(traces, origins, strict=True):
        kept = chosen[::stride]
        if len(kept):
            parts.append((features_at(trace, task, kept, steps), len(kept)))
            changes.append(trace.temperature_c[kept + steps] - trace.temperature_c[kept])
    names = list(dict.fromkeys(name for part, _ in parts for name in part))
    features = {
        name: np.concatenate([part.get(name, np.full(count, np.nan)) for part, count in parts]) for name in names
    }
    return features, np.concatenate(changes)


Fit = TypeVar("Fit")


class OfHorizons(Forecaster, Generic[Fit]):
    """A fit for each horizon, of the change of temperature to features of the origin: `fits_`, by its steps."""

    fits_: dict[int, Fit]

    @abc.abstractmethod
    def learn(self, features: dict[str, Array], change: Array) -> Fit | None:
        """Fit a horizon to features and changes in K, of shape (rows,) each; None where they carry no information."""

    @abc.abstractmethod
    def change_k(self, fitted: Fit, features: dict[str, Array], rows: int) -> Array:
        """Return changes in K at a horizon from features; shape (rows,)."""

    def fit(self, traces: Sequence[Trace], rows: Rows | None = None) -> Self:
        """See `Forecaster`."""
        self.fits_ = {}
        for steps in self.task.steps:
            table = learning_table(traces, self.task, rows, steps)
            if table is not None and (fitted := self.learn(*table)) is not None:
                self.fits_[steps] = fitted
        check_learnt(len(self.fits_), self.name)
        return self

    def forecast(self, trace: Trace, origins: Ints) -> Array:
        """See `Forecaster`."""
        found = np.full((len(origins), len(self.task.steps)), np.nan)
        for column, steps in enumerate(self.task.steps):
            inside = origins + steps < len(trace) if self.task.load == "known" else np.ones(len(origins), bool)
            if (fitted := self.fits_.get(steps)) is not None and inside.any():
                chosen = origins[inside]
                change = self.change_k(fitted, features_at(trace, self.task, chosen, steps), len(chosen))
                found[inside, column] = trace.temperature_c[chosen] + change
        return found


def check_learnt(learnt: int, name: str) -> None:
    """Raise a `ThermalError` if no horizon could be fitted."""
    if not learnt:
        raise ThermalError(
            f"{name}: the records are too short; they must last {LEAST_ROWS} s "
            "longer than the horizon. Record for longer, or take a shorter --horizon."
        )


def _zipped(traces: Sequence[Trace], rows: Rows | None) -> list[tuple[Trace, Ints]]:
    return list(zip(traces, usable_rows(traces, rows), strict=True))
