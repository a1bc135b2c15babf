"""Leave one network out: its operations predicted by a predictor that never saw those that it alone has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import pyarrow as pa

from clockwatt.gpu.specs import GpuSpec
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.predictors import ROWS_PER_TREE, TARGETS, CostPredictor
from clockwatt.predict.problem import Problem
from clockwatt.schema.costs import BY_CORRECTED

LEFT_OUT_FILE = "networks-left-out.parquet"

FOLDS_AT_MOST, FOLDS_OF_LARGE_DATA = 20, 10
"""More networks than this are left out several at a time, which bounds the time of a fit; then those that share fewest
operations. Data are large from `predictors.ROWS_PER_TREE` rows on."""

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
        *(pa.field(name, pa.float64()) for name in TARGETS),
        *(pa.field(BY_CORRECTED[name].predicted, pa.float64()) for name in TARGETS),
    ],
    metadata={"kind": "networks left out"},
)
"""Each operation of each network left out, measured or not, with its prediction."""


def leave_networks_out(
    make: Callable[[], CostPredictor],
    problem: Problem,
    spec: GpuSpec,
    called: Mapping[str, frozenset[str]],
    names: list[str],
    *,
    seed: int,
) -> pd.DataFrame:
    """Predict every operation of each network with a predictor fitted without that network.

    A network is left out with all its inputs and dtypes. An operation that only it calls is not learnt from; one that
    another network calls too stays among the data, as it would had this network never been measured; it is predicted
    all the same here, though who asks for a network finds it looked up. Operations that no network calls stay too.

    Parameters
    ----------
    make
        Gives a fresh predictor.
    problem
        What was measured in one pass, and what is to be predicted beside it (`problem.with_unmeasured`).
    spec
        The GPU.
    called
        Name of every network of the catalogue to the operations it calls in this pass.
    names
        Those to leave out, one after another; more than `FOLDS_AT_MOST`, or `FOLDS_OF_LARGE_DATA`, are dealt out to so
        many folds: an operation that two networks of a fold have alone would be missed by both.
    seed
        Of that deal.

    Returns
    -------
    pandas.DataFrame
        Columns of `LEFT_OUT_SCHEMA` but `gpu` and `virtual`; a row for each network, operation and operating point.
        Empty where a single network leaves nothing to learn from.
    """
    parts = []
    folds = FOLDS_OF_LARGE_DATA if problem.learnt.sum() > ROWS_PER_TREE else FOLDS_AT_MOST
    for left_out in _dealt(names, called, folds, seed):
        others = frozenset().union(*(ids for name, ids in called.items() if name not in left_out))
        only_here = frozenset().union(*(called[name] for name in left_out)) - others
        predictions = _predictions(make, problem, spec, only_here, frozenset().union(*(called[n] for n in left_out)))
        if predictions is not None:
            parts += [_of_network(problem, predictions, name, called[name], only_here) for name in sorted(left_out)]
    columns = [name for name in LEFT_OUT_SCHEMA.names if name not in ("gpu", "virtual")]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _dealt(names: list[str], called: Mapping[str, frozenset[str]], folds: int, seed: int) -> list[set[str]]:
    """Networks in as many folds, each in the one with which it shares fewest operations, the emptiest of those."""
    dealt: list[set[str]] = [set() for _ in range(min(folds, len(names)))]
    held: list[set[str]] = [set() for _ in dealt]
    at_most = -(-len(names) // len(dealt)) if dealt else 0
    for position in np.random.default_rng(seed).permutation(len(names)):
        name = names[position]
        open_ = [number for number, fold in enumerate(dealt) if len(fold) < at_most]
        chosen = min(open_, key=lambda number: (len(held[number] & called[name]), len(dealt[number])))
        dealt[chosen].add(name)
        held[chosen] |= called[name]
    return dealt


def _predictions(
    make: Callable[[], CostPredictor], problem: Problem, spec: GpuSpec, unseen: frozenset[str], wanted: frozenset[str]
) -> pd.DataFrame | None:
    """Predictions of `wanted` operations at the problem's rows, missing for others, by one that saw no `unseen`."""
    ids = problem.cells["operation_id"]
    training = problem.learnt & ~ids.isin(unseen).to_numpy(bool)
    asked = ids.isin(wanted).to_numpy(bool)
    if not training.any() or not asked.any():
        return None
    predictor = make().fit(problem.features[training], problem.targets[training])
    at_cells = pd.DataFrame(np.nan, index=problem.cells.index, columns=list(TARGETS))
    at_cells.iloc[np.flatnonzero(asked)] = predictor.predict(problem.features[asked])[list(TARGETS)].to_numpy()
    return problem.at_rows(at_cells, spec)


def _of_network(
    problem: Problem, predictions: pd.DataFrame, name: str, ids: frozenset[str], unseen: frozenset[str]
) -> pd.DataFrame:
    own = problem.rows["operation_id"].isin(ids).to_numpy(bool)
    rows = problem.rows.loc[own, ["pass", "point", "tf32", "operation_id", OPERATION_CLASS, *TARGETS]]
    return rows.assign(
        network=name,
        unseen=rows["operation_id"].isin(unseen),
        learnt=problem.usable[own],
        **{BY_CORRECTED[target].predicted: predictions.loc[own, target] for target in TARGETS},
    )
