"""Evaluate forecasts on held-out runs, held-out workloads and, for comparison, shuffled rows.

With shuffled rows a second is held out while the seconds around it are trained on, so its value leaks into training.
That error is reported only for comparison.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.inputs import Task, is_changing
from clockwatt.studies.thermal.intervals import LEVEL, Intervals, Misses, coverage
from clockwatt.studies.thermal.models.base import Forecaster, truth
from clockwatt.studies.thermal.models.registry import MODELS
from clockwatt.studies.thermal.traces import Array, Trace

Split = Literal["rows", "run", "workload"]
SPLITS: dict[Split, str] = {
    "rows": "rows shuffled (leaks)", "run": "runs left out", "workload": "workloads left out",
}  # fmt: skip
FLOOR_C = 1 / np.sqrt(12)
"""Root mean square of the error of rounding to whole degrees, in °C."""

FOLDS = 3
STRIDE_S = 5.0
"""Forecasts are judged each so often, in short traces more often."""

LEAST_JUDGED = 50
"""Fewest forecasts of a trace, if it is long enough."""

Part = tuple[list[NDArray[np.bool_]], list[NDArray[np.bool_]]]
"""Times of each trace that are trained on, and those that are held out."""


@dataclass
class Judged:
    """A model's forecasts of held-out data.

    Attributes
    ----------
    split, model, task
        What was left out, which model, what it was given.
    folds
        Its errors, fold by fold.
    forecasts
        By number of the trace: origins, and forecasts in °C of shape (origins, horizons).
    """

    split: Split
    model: str
    task: Task
    folds: list[Misses] = field(default_factory=list)
    forecasts: dict[int, list[tuple[NDArray[np.intp], Array]]] = field(default_factory=dict)

    @property
    def misses(self) -> Misses:
        """Of all folds."""
        return Misses.joined(self.folds)


def possible_splits(traces: Sequence[Trace]) -> dict[Split, str | None]:
    """Return every split, with why it cannot be made (None: it can)."""
    runs, workloads = len({trace.run for trace in traces}), len({trace.workload for trace in traces})
    return {
        "rows": None,
        "run": None if runs > 1 else "there is one run only",
        "workload": None
        if workloads > 1
        else "there is one workload only (the names of the records name the workloads)",
    }


def parts(traces: Sequence[Trace], split: Split, *, folds: int = FOLDS, seed: int = 0) -> Iterator[Part]:
    """Return the training and held-out times of each fold; every time is held out once.

    GPUs of one run always go together, since they are recorded at the same time.

    Raises
    ------
    ThermalError
        If there are too few runs or workloads.
    """
    if (why := possible_splits(traces)[split]) is not None:
        raise ThermalError(f"{SPLITS[split]}: {why}. Give more records.")
    chance = np.random.default_rng(seed)
    if split == "rows":
        dealt = [chance.integers(folds, size=len(trace)) for trace in traces]
    else:
        names = sorted({getattr(trace, split) for trace in traces})
        fold_of = dict(zip(names, chance.permutation(np.arange(len(names)) % folds), strict=True))
        dealt = [np.full(len(trace), fold_of[getattr(trace, split)]) for trace in traces]
    for fold in range(folds):
        left_out = [own == fold for own in dealt]
        if any(own.any() for own in left_out):
            yield [~own for own in left_out], left_out


Known = dict[tuple[str, str, str, int], Forecaster]
"""Models that were fitted already, by split, name, inputs and fold: those that fit any load need it once."""


def judge(
    traces: Sequence[Trace], split: Split, model: str, task: Task, *, folds: int = FOLDS, known: Known | None = None
) -> Judged:
    """Forecast every time with models fitted without it; `known`, of the same traces and folds, is extended.

    Raises
    ------
    ThermalError
        If the split cannot be made, or a model cannot be fitted to a fold.
    """
    judged = Judged(split, model, task)
    stride = max(1, round(STRIDE_S / task.step_s))
    runs = {run: number for number, run in enumerate(sorted({trace.run for trace in traces}))}
    known = {} if known is None else known
    for fold, (learnt, left_out) in enumerate(parts(traces, split, folds=folds)):
        if (before := known.get((split, model, task.inputs, fold))) is not None:
            fitted = copy.copy(before)
            fitted.task = task
        else:
            used = [(trace, rows) for trace, rows in zip(traces, learnt, strict=True) if rows.any()]
            fitted = MODELS[model](task).fit([trace for trace, _ in used], [rows for _, rows in used])
            if fitted.fits_any_load:
                known[split, model, task.inputs, fold] = fitted
        missed = []
        for place, (trace, rows) in enumerate(zip(traces, left_out, strict=True)):
            origins = np.flatnonzero(rows)
            # of shuffled rows every one is far enough from the next
            origins = origins[origins % max(1, min(stride, len(trace) // LEAST_JUDGED)) == 0]
            if not len(origins):
                continue
            forecast = fitted.forecast(trace, origins)
            judged.forecasts.setdefault(place, []).append((origins, forecast))
            missed.append(
                Misses(
                    forecast - truth(trace, origins, task), is_changing(trace)[origins],
                    np.full(len(origins), runs[trace.run]),
                )
            )  # fmt: skip
        if missed:
            judged.folds.append(Misses.joined(missed))
    return judged


def cross_coverage(judged: Judged, level: float = LEVEL) -> Array:
    """Share of truths within intervals that the other folds' misses gave; NaN where that is unknown; (horizons,)."""
    shares, weights = [], []
    for number, fold in enumerate(judged.folds):
        others = [other for place, other in enumerate(judged.folds) if place != number]
        if others:
            shares.append(coverage(fold, Intervals.of(Misses.joined(others), level)))
            weights.append(np.isfinite(fold.errors_c).sum(axis=0))
    if not shares:
        return np.full(len(judged.task.steps), np.nan)
    share, weight = np.array(shares), np.where(np.isfinite(shares), weights, 0)
    total = weight.sum(axis=0)
    held = (np.where(weight > 0, share, 0.0) * weight).sum(axis=0)
    return np.asarray(np.divide(held, total, out=np.full(len(total), np.nan), where=total > 0))


def scores(judged: Sequence[Judged], level: float = LEVEL) -> pd.DataFrame:
    """Return one row for each split, model, inputs, load and horizon.

    Returns
    -------
    Columns `split`, `model`, `inputs`, `load`, `horizon_s`, `rmse_c`, `bias_c`, `persistence_rmse_c` (of the same
    forecasts; NaN where persistence was not judged), `floor_c`, `half_width_steady_k`, `half_width_changing_k`,
    `coverage` (of intervals from other folds), `forecasts`, `runs`. NaN where there was nothing to judge.
    """
    rows = []
    for one in judged:
        misses = one.misses
        intervals, covered = Intervals.of(misses, level), cross_coverage(one, level)
        beside = next(
            (other.misses for other in judged if other.model == "persistence" and other.split == one.split), None
        )
        for column, horizon in enumerate(one.task.horizons_s):
            errors = misses.errors_c[:, column]
            known = np.isfinite(errors)
            persisted = beside.errors_c[known, column] if beside is not None else np.zeros(0)
            rows.append(
                {
                    "split": one.split, "model": one.model, "inputs": one.task.inputs, "load": one.task.load,
                    "horizon_s": horizon, "rmse_c": _rms(errors[known]),
                    "bias_c": float(errors[known].mean()) if known.any() else np.nan,
                    "persistence_rmse_c": _rms(persisted), "floor_c": FLOOR_C,
                    "half_width_steady_k": intervals.half_widths_k[0, column],
                    "half_width_changing_k": intervals.half_widths_k[1, column], "coverage": covered[column],
                    "forecasts": int(known.sum()), "runs": len(np.unique(misses.run[known])),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2))) if len(values) else float("nan")
