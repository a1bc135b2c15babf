"""Common interface of all sources of operations' costs.

A source has a fixed list of operations in one pass. For each operating point it returns the mean and the interval of
every operation's known costs. `FirstKnown` combines sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.composition.pipeline import COST_COLUMNS
from clockwatt.predict.evaluation.errors import ANY_CLASS, Interval
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema.costs import COSTS, ENERGY_DYNAMIC_CORRECTED, TIME_DEVICE_CORRECTED

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MEASURED = "measured"
"""Column of predictions: whether the cost of an operation is the measured one."""


_AS_GOOD = 1.012
"""Ratio by which times of twins may differ beyond the ratio of their bandwidths."""
_DEVICE = TARGETS.index(TIME_DEVICE_CORRECTED)
_WITH_DEVICE = [_DEVICE, TARGETS.index(ENERGY_DYNAMIC_CORRECTED)]
_COMPOSED = [TARGETS.index(name) for name in COST_COLUMNS if name in TARGETS]


@dataclass(frozen=True)
class Costs:
    """Costs of operations at one operating point; what is not known is nan.

    Attributes
    ----------
    mean
        Each of `TARGETS`; shape (operations, targets).
    factors
        From the mean to the lower and upper end of the 90 % interval, nan where none is known; shape
        (operations, targets, 2).
    known
        Operations that the source knows here, perhaps not all costs of each: some were measured in time alone; shape
        (operations,).
    measured
        Operations whose costs were measured at this operating point; shape (operations,).
    """

    mean: Floats
    factors: Floats
    known: Mask
    measured: Mask

    @property
    def complete(self) -> bool:
        """Whether all costs that a pass is composed from are known."""
        return bool(self.known.all() and np.isfinite(self.mean[:, _COMPOSED]).all())

    def end(self, side: int) -> Floats:
        """Lower (0) or upper (1) ends of the intervals; shape (operations, targets)."""
        values: Floats = self.mean * self.factors[:, :, side]
        return values

    def pipeline(self, side: int | None = None) -> Floats:
        """`pipeline.COST_COLUMNS`, of the means or of one `end`; shape (operations, 5)."""
        return cost_columns(self.mean if side is None else self.end(side))

    def frame(self, ids: pd.Index) -> pd.DataFrame:
        """As a frame: `TARGETS`, `lower_…` and `upper_…` of each, and `MEASURED`."""
        ends = (self.mean[:, :, None] * self.factors).reshape(len(self.mean), -1)
        bounds = [end for cost in COSTS for end in (cost.lower, cost.upper)]
        values = np.hstack([self.mean, ends])
        return pd.DataFrame(values, index=ids, columns=[*TARGETS, *bounds]).assign(**{MEASURED: self.measured})


class CostSource(Protocol):
    """Source of costs of a fixed list of operations."""

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """Return costs at each of these operating points."""


class FirstKnown:
    """Combine sources: each cost comes from the first that knows it. Later sources are called only if needed."""

    def __init__(self, *sources: CostSource) -> None:
        self._sources = sources

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        first, *others = self._sources
        found = first.at(points)
        for source in others:
            lacking = [point for point in points if not found[point].complete]
            if lacking:
                for point, costs in source.at(lacking).items():
                    found[point] = _filled(found[point], costs)
        return found


class BesideTwin:
    """Keep predicted device times within what a GPU with the same chip and another memory bandwidth allows.

    Dynamic energies scale with them. Intervals keep what the source predicts.

    Parameters
    ----------
    source, twin
        Costs on the GPU, and on the other one, which more is known of.
    bandwidths
        Bandwidth of the other GPU over that of this one.
    known_at
        Whether the other GPU is predicted at an operating point.
    """

    def __init__(
        self, source: CostSource, twin: CostSource, bandwidths: float, known_at: Callable[[str], bool]
    ) -> None:
        self._source, self._twin, self._known_at = source, twin, known_at
        self._least, self._most = min(1.0, bandwidths) / _AS_GOOD, max(1.0, bandwidths) * _AS_GOOD

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        found = self._source.at(points)
        both = [point for point in points if self._known_at(point)]
        others = self._twin.at(both) if both else {}
        return found | {point: self._kept(found[point], others[point]) for point in both}

    def _kept(self, costs: Costs, other: Costs) -> Costs:
        device, twin = costs.mean[:, _DEVICE], other.mean[:, _DEVICE]
        compared = ~costs.measured & (device > 0) & (twin > 0)
        ratio = np.divide(device, twin, out=np.ones_like(device), where=compared)
        moved = np.where(compared, np.clip(ratio, self._least, self._most) / ratio, 1.0)[:, None]
        mean, factors = costs.mean.copy(), costs.factors.copy()
        mean[:, _WITH_DEVICE] *= moved
        ends = factors[:, _WITH_DEVICE]
        factors[:, _WITH_DEVICE, 0] = np.minimum(ends[:, :, 0], ends[:, :, 0] / moved)
        factors[:, _WITH_DEVICE, 1] = np.maximum(ends[:, :, 1], ends[:, :, 1] / moved)
        return Costs(mean, factors, costs.known, costs.measured)


class Among:
    """A source of some operations, embedded in a longer list; the costs of the others are unknown."""

    def __init__(self, source: CostSource, rows: Mask) -> None:
        self._source, self._rows = source, rows

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        found = {}
        for point, costs in self._source.at(points).items():
            wide = unknown(len(self._rows))
            for name in ("mean", "factors", "known", "measured"):
                getattr(wide, name)[self._rows] = getattr(costs, name)
            found[point] = wide
        return found


def cost_columns(targets: Floats) -> Floats:
    """`pipeline.COST_COLUMNS` of values of `TARGETS`; shape (operations, targets) to (operations, 5)."""
    values = dict(zip(TARGETS, targets.T, strict=True))
    values["energy_corrected_j"] = values["power_corrected_w"] * values["time_eager_corrected_s"]
    return np.column_stack([values[name] for name in COST_COLUMNS])


def unknown(operations: int) -> Costs:
    """Return costs of `operations` operations, all unknown."""
    targets = len(TARGETS)
    nothing = np.zeros(operations, dtype=bool)
    return Costs(
        np.full((operations, targets), np.nan), np.full((operations, targets, 2), np.nan), nothing, nothing.copy()
    )


def interval_factors(classes: NDArray[np.object_], intervals: Mapping[str, Mapping[str, Interval]]) -> Floats:
    """Return factors from predictions to the ends of their intervals.

    Parameters
    ----------
    classes
        Operation classes; shape (operations,).
    intervals
        Target to operation class, or `ANY_CLASS`, to interval.

    Returns
    -------
    numpy.ndarray
        Lower and upper factor of each of `TARGETS`, nan where there is no interval; shape (operations, targets, 2).
    """
    none = Interval(np.nan, np.nan)
    names, member = np.unique(classes.astype(str), return_inverse=True)
    factors = np.empty((len(names), len(TARGETS), 2))
    for column, target in enumerate(TARGETS):
        of_classes = intervals.get(target, {})
        chosen = [of_classes.get(name, of_classes.get(ANY_CLASS, none)) for name in names.tolist()]
        factors[:, column] = [(interval.lower, interval.upper) for interval in chosen]
    return factors[member]


def _filled(costs: Costs, others: Costs) -> Costs:
    """Return the costs, with unknown ones replaced by those of `others`."""
    kept = costs.known[:, None] & np.isfinite(costs.mean)
    return Costs(
        np.where(kept, costs.mean, others.mean),
        np.where(kept[:, :, None], costs.factors, others.factors),
        costs.known | others.known,
        np.where(costs.known, costs.measured, others.measured),
    )
