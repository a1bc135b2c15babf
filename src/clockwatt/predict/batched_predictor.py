"""Predictor of a GPU for many networks: predict the costs of all their operations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import pandas as pd

from clockwatt.predict.costs.interface import Costs, CostSource
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema.execution import ExecutionSettings


class BulkPredictor(GpuPredictor):
    """Give the same predictions as `model`, at operating points known beforehand.

    Parameters
    ----------
    model
        Predictor that this one is made from.
    operations
        Pass to all operations to predict, as `GpuPredictor.predict` takes them.
    features
        Pass to the features of those with device work, from `features.operations.operation_features`.
    points
        Operating points to predict at; None for the measured ones.
    """

    def __init__(
        self,
        model: GpuPredictor,
        operations: Mapping[str, pd.DataFrame],
        features: Mapping[str, pd.DataFrame],
        points: Sequence[str] | None = None,
    ) -> None:
        vars(self).update(vars(model))  # what the other has read serves both
        self._operations, self._features = operations, features
        self._points = list(self.description.points if points is None else points)
        self._index = {pass_: pd.Index(rows["operation_id"]) for pass_, rows in operations.items()}
        self._known: dict[tuple[str, ExecutionSettings], dict[str, Costs]] = {}

    @classmethod
    def of(cls, model: GpuPredictor, traced: Sequence[TracedNetwork], points: Sequence[str]) -> Self:
        """Make a predictor for all operations of some networks at some operating points."""
        operations, features = {}, {}
        for pass_ in {one.network.pass_ for one in traced}:
            same = [one for one in traced if one.network.pass_ == pass_]
            rows = pd.concat([one.operations for one in same], ignore_index=True)
            operations[pass_] = rows.drop_duplicates("operation_id", ignore_index=True)
            known = pd.concat([one.features for one in same])
            known = known[~known.index.duplicated()]
            works = operations[pass_].loc[operations[pass_]["device_work"].astype(bool), "operation_id"]
            features[pass_] = known.loc[works]
        return cls(model, operations, features, points)

    def costs(
        self,
        operations: pd.DataFrame,
        pass_: str,
        *,
        execution: ExecutionSettings,
        predictor: str | None = None,
        look_up: bool = True,
        features: pd.DataFrame | None = None,
    ) -> CostSource:
        """See `GpuPredictor.costs`; by the first predictor, with measured costs where there are any."""
        if predictor is not None or not look_up:
            return super().costs(
                operations, pass_, execution=execution, predictor=predictor, look_up=look_up, features=features
            )
        if (pass_, execution) not in self._known:
            source = super().costs(self._operations[pass_], pass_, execution=execution, features=self._features[pass_])
            self._known[pass_, execution] = source.at(self._points)
        return _Some(
            self._known[pass_, execution], self._index[pass_].get_indexer(pd.Index(operations["operation_id"]))
        )


class _Some:
    """Source of costs of some of the operations, by their positions."""

    def __init__(self, known: Mapping[str, Costs], positions: object) -> None:
        self._known, self._positions = known, positions

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        rows = self._positions
        found = {}
        for point in points:
            costs = self._known[point]
            found[point] = Costs(*(getattr(costs, name)[rows] for name in ("mean", "factors", "known", "measured")))
        return found
