"""The predictor of a GPU for many networks: what all their operations cost is asked for once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from clockwatt.predict.costs.interface import Costs, CostSource
from clockwatt.predict.gpu_predictor import GpuPredictor


class BulkPredictor(GpuPredictor):
    """Answers as the predictor that it is made from, at the operating points that were measured.

    Parameters
    ----------
    model
        That it is made from.
    operations
        Pass to all operations that will be asked about, as `GpuPredictor.predict` takes them.
    features
        Pass to `features.operations.operation_features` of those with device work.
    """

    def __init__(
        self, model: GpuPredictor, operations: Mapping[str, pd.DataFrame], features: Mapping[str, pd.DataFrame]
    ) -> None:
        super().__init__(model.folder, model.description)
        self._operations, self._features = operations, features
        self._index = {pass_: pd.Index(rows["operation_id"]) for pass_, rows in operations.items()}
        self._known: dict[tuple[str, bool], dict[str, Costs]] = {}

    def costs(
        self,
        operations: pd.DataFrame,
        pass_: str,
        *,
        tf32: bool,
        predictor: str | None = None,
        look_up: bool = True,
        features: pd.DataFrame | None = None,
    ) -> CostSource:
        """See `GpuPredictor.costs`; by the first predictor, looked up where it can be."""
        if predictor is not None or not look_up:
            return super().costs(operations, pass_, tf32=tf32, predictor=predictor, look_up=look_up, features=features)
        if (pass_, tf32) not in self._known:
            source = super().costs(self._operations[pass_], pass_, tf32=tf32, features=self._features[pass_])
            self._known[pass_, tf32] = source.at(list(self.description.points))
        return _Some(self._known[pass_, tf32], self._index[pass_].get_indexer(pd.Index(operations["operation_id"])))


class _Some:
    """Some of the operations whose costs are known, by their positions; a source of costs."""

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
