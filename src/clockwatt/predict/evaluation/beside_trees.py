"""What perceptrons beside the forest are worth: groups of like operations held out, told with them and without.

All else that judges a predictor judges its forest, since perceptrons take ten times as long to teach. They are taught
once more here, without a fifth of the groups, and how much nearer they come there is by how much the forest's
intervals of device time are too wide for both together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.evaluation.intervals import ANY_CLASS, COVERAGE, GROUPS_OF_A_CLASS, Interval, scale_of
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.cost_predictor import CostPredictor
from clockwatt.predict.models.predictors import LEFT_TO_TREES
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import TIME_DEVICE_CORRECTED

HELD_OUT = 0.2
_NARROWEST, _WIDEST = 0.5, 2.0
"""Of what one draw of groups says."""


@dataclass(frozen=True)
class BesideTrees:
    """Errors of device time of operations held out, relative to what was measured.

    Attributes
    ----------
    rows
        How many they are: those that perceptrons tell.
    forest_median, forest_percentile_90, median, percentile_90
        Without perceptrons, and with them.
    width
        What the forest's intervals are to be taken to the power of, so that as many are inside as were; 1 where too
        few groups were held out to say.
    """

    rows: int
    forest_median: float
    forest_percentile_90: float
    median: float
    percentile_90: float
    width: float


def judge_perceptrons(
    make: Callable[[], CostPredictor], data: TrainingData, other: TrainingData | None, *, seed: int
) -> BesideTrees | None:
    """Teach once more without a fifth of the groups; None where too little is left to teach perceptrons.

    Parameters
    ----------
    make
        Gives a fresh predictor that teaches perceptrons.
    data
        Of the pass.
    other
        Of the other pass, if there is any; the same groups are held out of it.
    seed
        Decides the groups.
    """
    names = sorted(set(data.groups) | set(() if other is None else other.groups))
    drawn = np.random.default_rng(seed).random(len(names)) < HELD_OUT
    out = frozenset(name for name, chosen in zip(names, drawn, strict=True) if chosen)
    known = data.learnt & data.targets[TIME_DEVICE_CORRECTED].notna().to_numpy()
    taught = known & ~data.groups.isin(out).to_numpy()
    left = data.features[OPERATION_CLASS].isin(LEFT_TO_TREES).to_numpy()
    held = known & ~taught & ~left & data.own
    if not taught.any() or not held.any():
        return None
    beside = None if other is None else _rows(other, other.learnt & ~other.groups.isin(out).to_numpy())
    predictor = make().fit(*_rows(data, taught), beside)
    if predictor.perceptrons_ is None:
        return None
    features, targets = _rows(data, held)
    told = predictor.predict(features)[TIME_DEVICE_CORRECTED].to_numpy()
    predictor.perceptrons_ = None
    of_forest, spread = (table[TIME_DEVICE_CORRECTED].to_numpy() for table in predictor.predict_with_spread(features))
    measured, scale = targets[TIME_DEVICE_CORRECTED].to_numpy(float), scale_of(spread)
    wide, both = (_high(np.abs(np.log(measured / one)) / scale) for one in (of_forest, told))
    told_by_enough = data.groups[held].nunique() >= GROUPS_OF_A_CLASS
    errors = [np.abs(one / measured - 1) for one in (of_forest, told)]
    return BesideTrees(
        rows=int(held.sum()),
        forest_median=float(np.median(errors[0])),
        forest_percentile_90=_high(errors[0]),
        median=float(np.median(errors[1])),
        percentile_90=_high(errors[1]),
        width=float(np.clip(both / max(wide, 1e-9), _NARROWEST, _WIDEST)) if told_by_enough else 1.0,
    )


def as_wide_as(intervals: Mapping[str, Interval], width: float) -> dict[str, Interval]:
    """Intervals of device time by class, to the power of `width` but for classes that are left to the forest."""
    rest = intervals[ANY_CLASS]
    kept = {name: intervals.get(name, rest) for name in sorted(LEFT_TO_TREES)}
    found = {name: replace(one, lower=one.lower**width, upper=one.upper**width) for name, one in intervals.items()}
    return found | kept


def _rows(data: TrainingData, chosen: NDArray[np.bool_]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Features and device times of some cells."""
    return data.features[chosen], data.targets.loc[chosen, [TIME_DEVICE_CORRECTED]]


def _high(values: NDArray[np.float64]) -> float:
    return float(np.quantile(values, COVERAGE))
