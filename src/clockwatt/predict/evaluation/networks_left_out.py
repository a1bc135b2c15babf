"""Networks left out one after another, and what their errors tell of passes of networks to come.

`leave_networks_out` predicts every operation of a network by a predictor that never saw it. `estimate_pass_errors`
learns from that how errors of operations add up in a pass, see `pass_errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from clockwatt.predict.composition.networks import Catalogue
from clockwatt.predict.evaluation.intervals import (
    COVERAGE,
    NORMAL_90,
    Interval,
    grouped_interval,
    interval_score,
    left_out_coverage,
)
from clockwatt.predict.evaluation.leave_out import (
    LeftOut,
    predict_left_out,
)
from clockwatt.predict.evaluation.pass_errors import (
    ADDED,
    ASSUMED_COMPOSITION,
    ASSUMED_CORRELATION,
    DEVICE,
    ERROR_OF,
    GAP_S,
    NORMAL,
    Added,
    Floats,
    PassErrors,
)
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.cost_predictor import TARGETS, CostPredictor
from clockwatt.predict.models.training_data import TrainingData
from clockwatt.schema.costs import BY_CORRECTED, CORRECTED, MEASURED_WHOLE

LEFT_OUT_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("pass", pa.string()),
        pa.field("network", pa.string()),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        pa.field("operation_id", pa.string()),
        pa.field("operation_class", pa.string()),
        pa.field("unseen", pa.bool_()),  # False: another network calls it too, so its measurement was learnt from
        pa.field("learnt", pa.bool_()),  # False: excluded from fitting and from the metrics
        *(pa.field(name, pa.float64()) for name in CORRECTED),
        *(pa.field(BY_CORRECTED[name].predicted, pa.float64()) for name in CORRECTED),
        *(pa.field(BY_CORRECTED[name].spread, pa.float64()) for name in CORRECTED),
    ],
    metadata={"kind": "networks left out"},
)
"""Each operation of each network left out, measured or not, with its prediction and how far the trees disagree."""

_LEAST_CORRELATION = 0.02
FOLDS_AT_MOST = 10
"""More networks than this are left out several at a time, which bounds the time of a fit; then those that share fewest
operations."""


def leave_networks_out(
    make: Callable[[], CostPredictor],
    data: TrainingData,
    called: Mapping[str, frozenset[str]],
    names: list[str],
    *,
    seed: int,
) -> pd.DataFrame:
    """Predict every operation of each network with a predictor fitted without that network.

    A network is left out with all its inputs and dtypes. An operation that only it calls is not learnt from; one that
    another network calls too stays among the data, as it would had this network never been measured; it is predicted
    all the same here, though whoever asks for a network finds it looked up. Operations that no network calls stay too.

    Parameters
    ----------
    make
        Gives a fresh predictor.
    data
        What was measured in one pass, and what is to be predicted beside it (`training_data.with_unmeasured`).
    called
        Name of every network of the catalogue to the operations it calls in this pass.
    names
        Those to leave out, one after another; more than `FOLDS_AT_MOST` are dealt out to so many folds: an operation
        that two networks of a fold have alone would be missed by both.
    seed
        Of that deal.

    Returns
    -------
    pandas.DataFrame
        Columns of `LEFT_OUT_SCHEMA` but `gpu` and `virtual`; a row for each network, operation and operating point.
        Empty where a single network leaves nothing to learn from.
    """
    ids = data.cells["operation_id"]
    together, only_there, parts = _dealt(names, called, FOLDS_AT_MOST, seed), [], []
    for left_out in together:
        own, others = _called_by(left_out, called), _called_by(set(called) - left_out, called)
        only_there.append(own - others)
        training = data.learnt & ~ids.isin(only_there[-1]).to_numpy(bool)
        parts.append(LeftOut(training, ids.isin(own).to_numpy(bool)))
    found = []
    for left_out, unseen, (at_cells, spread) in zip(
        together, only_there, predict_left_out(make, data, parts), strict=True
    ):
        if at_cells.notna().any(axis=None):
            at_rows = (data.at_rows(at_cells), data.spread_at_rows(spread))
            found += [_of_network(data, *at_rows, name, called[name], unseen) for name in sorted(left_out)]
    columns = [name for name in LEFT_OUT_SCHEMA.names if name not in ("gpu", "virtual")]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def _called_by(names: set[str], called: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(called[name] for name in names))


def _dealt(names: list[str], called: Mapping[str, frozenset[str]], folds: int, seed: int) -> list[set[str]]:
    """Networks in as many folds, each in the one with which it shares fewest operations, the emptiest of those."""
    dealt: list[set[str]] = [set() for _ in range(min(folds, len(names)))]
    of_fold: list[set[str]] = [set() for _ in dealt]
    at_most = -(-len(names) // len(dealt)) if dealt else 0
    for position in np.random.default_rng(seed).permutation(len(names)):
        name = names[position]
        open_ = [number for number, fold in enumerate(dealt) if len(fold) < at_most]
        chosen = min(open_, key=lambda number: (len(of_fold[number] & called[name]), len(dealt[number])))
        dealt[chosen].add(name)
        of_fold[chosen] |= called[name]
    return dealt


def _of_network(
    data: TrainingData,
    predictions: pd.DataFrame,
    spread: pd.DataFrame,
    name: str,
    ids: frozenset[str],
    unseen: frozenset[str],
) -> pd.DataFrame:
    own = data.rows["operation_id"].isin(ids).to_numpy(bool)
    rows = data.rows.loc[own, ["pass", "point", "tf32", "operation_id", OPERATION_CLASS, *TARGETS]]
    return rows.assign(
        network=name,
        unseen=rows["operation_id"].isin(unseen),
        learnt=data.usable[own],
        **{BY_CORRECTED[target].predicted: predictions.loc[own, target] for target in TARGETS},
        **{BY_CORRECTED[target].spread: spread.loc[own, target] for target in TARGETS},
    )


def estimate_pass_errors(
    composed: pd.DataFrame, measured: pd.DataFrame, left_out: pd.DataFrame, catalogue: Catalogue
) -> tuple[PassErrors, dict[str, Any]]:
    """From networks left out: the correlation between operations, and intervals for passes of an error of 1.

    Parameters
    ----------
    composed, measured
        Complete compositions of one pass with the network left out, and from measured operations; see
        `networks.VALIDATION_SCHEMA`.
    left_out
        Operations of the networks left out, `LEFT_OUT_SCHEMA`, with the columns of `ERROR_OF`.
    catalogue
        What networks call.

    Returns
    -------
    errors
        Those.
    report
        Intervals for an error of 1, their coverage and interval score of networks left out in turn, and half-widths.
    """
    of_network = dict(iter(left_out.groupby(["network", "point", "tf32"])))
    pass_ = str(left_out["pass"].iloc[0])
    found, seen = [], []
    for row in composed.itertuples(index=False):
        calls = catalogue.calls[str(row.network_id), pass_]["operation_id"].value_counts()
        rows = of_network.get((row.network, row.point, row.tf32), left_out.iloc[:0])
        rows = rows[rows["operation_id"].isin(calls.index)]
        found.append((row, _added(rows, calls, GAP_S[pass_])))
        seen.append(_missed(rows[rows["unseen"] & rows["learnt"]], calls))
    errors = PassErrors(
        correlation=_correlation([one for one in seen if one is not None]),
        composition_time=_composition(measured, "time_s"),
        composition_energy=_composition(measured, "energy_j"),
    )
    report: dict[str, Any] = {"correlation": errors.correlation}
    intervals: dict[str, Interval] = {}
    for name, of_pass in (("time_s", errors.time_error), ("energy_j", errors.energy_error)):
        known = [
            (np.log(whole / stated), of_pass(row, added), row.network)
            for row, added in found
            if (whole := getattr(row, MEASURED_WHOLE[name])) > 0 and (stated := getattr(row, name)) > 0
        ]
        if known:
            residuals, scales = (np.array([one[column] for one in known]) for column in (0, 1))
            groups = np.array([one[2] for one in known], dtype=object)
            intervals[name], report[name] = _judged(residuals, scales, groups)
    time, energy = intervals.get("time_s", errors.time), intervals.get("energy_j", errors.energy)
    return replace(errors, time=time, energy=energy), report


def _added(rows: pd.DataFrame, calls: pd.Series, gap_s: float) -> dict[str, Added]:
    counts = rows["operation_id"].map(calls).to_numpy(float)
    found = {}
    for target in ADDED:
        costs = rows[BY_CORRECTED[target].predicted].to_numpy(float) * counts
        known = np.isfinite(costs)
        found[target] = Added.of(costs[known], rows[ERROR_OF[target]].to_numpy(float)[known])
    device_s = float((rows[BY_CORRECTED[DEVICE].predicted].to_numpy(float) * counts).sum())
    if device_s > 0:
        found[DEVICE] = replace(found[DEVICE], gaps=gap_s * float(counts.sum()) / device_s)
    return found


def _missed(rows: pd.DataFrame, calls: pd.Series) -> tuple[float, Added] | None:
    """Logarithm of measured over predicted device time of operations that only the network has, and what was due."""
    counts = rows["operation_id"].map(calls).to_numpy(float)
    measured, predicted = (
        rows[name].to_numpy(float) * counts for name in (DEVICE, BY_CORRECTED[DEVICE].predicted)
    )  # fmt: skip
    known = np.isfinite(measured) & np.isfinite(predicted)
    if known.sum() < 2:
        return None
    missed = float(np.log(measured[known].sum() / predicted[known].sum()))
    return missed, Added.of(predicted[known], rows[ERROR_OF[DEVICE]].to_numpy(float)[known])


def _correlation(seen: list[tuple[float, Added]]) -> float:
    """By the method of moments; each network counts alike, however large its errors are."""
    if not seen:
        return ASSUMED_CORRELATION
    missed = np.array([one[0] for one in seen])
    independent, together = (np.array([getattr(one[1], name) for one in seen]) for name in ("independent", "together"))
    varies = together**2 - independent**2
    weight = varies / np.maximum(together, 1e-9) ** 4
    estimated = float(np.sum(weight * (missed**2 - independent**2)) / max(np.sum(weight * varies), 1e-9))
    return min(max(estimated, _LEAST_CORRELATION), 1.0)


def _composition(measured: pd.DataFrame, name: str) -> float:
    """Error of networks composed from measured operations: the root mean square, extremes cut off."""
    whole, stated = (measured[column].to_numpy(float) for column in (MEASURED_WHOLE[name], name))
    known = (whole > 0) & (stated > 0)
    if known.sum() < 3:
        return ASSUMED_COMPOSITION
    return float(np.quantile(np.abs(np.log(whole[known] / stated[known])), COVERAGE) / NORMAL_90)


def _interval(standard: Floats, groups: NDArray[np.object_]) -> Interval:
    """Interval for an error of 1 that is not narrower than the errors of operations make it.

    The networks left out are kin of those that remain, which a network that nobody measured need not be: they may tell
    that errors are larger than is due, not that they are smaller.
    """
    interval = grouped_interval(standard, groups)
    return replace(interval, lower=min(interval.lower, NORMAL.lower), upper=max(interval.upper, NORMAL.upper))


def _judged(residuals: Floats, scales: Floats, groups: NDArray[np.object_]) -> tuple[Interval, dict[str, Any]]:
    """The interval, and what it is worth over networks left out in turn."""
    interval = _interval(residuals / scales, groups)
    half = np.log(interval.upper) * scales
    return interval, {
        **asdict(interval),
        "left_out_coverage": left_out_coverage(residuals / scales, groups, _interval),
        "median_half_width": float(np.median(np.expm1(half))),
        "interval_score": interval_score(residuals, -half, half),
    }
