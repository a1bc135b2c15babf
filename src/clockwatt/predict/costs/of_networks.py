"""Costs of the operations of networks that were measured whole: as measured, or predicted with the network left out."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import pandas as pd

from clockwatt.predict.composition.networks import CostsOfNetwork
from clockwatt.predict.composition.pipeline import COST_COLUMNS
from clockwatt.predict.costs.interface import cost_columns, interval_factors
from clockwatt.predict.costs.learnt import HostOnly
from clockwatt.predict.evaluation.intervals import Interval, scale_of
from clockwatt.predict.evaluation.pass_errors import ADDED, ERROR_OF, LOOKED_UP_ERROR, NORMAL_90
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.models.cost_predictor import TARGETS
from clockwatt.schema.costs import BY_CORRECTED

_KEY = ["pass", "point", "tf32"]


def measured_costs(rows: pd.DataFrame) -> CostsOfNetwork:
    """Costs of operations as measured; `rows` of `samples.Samples`."""
    indexed = {
        (str(pass_), str(point), bool(tf32)): group.set_index("operation_id")
        for (pass_, point, tf32), group in rows.groupby(_KEY)
    }
    none = rows.iloc[:0].set_index("operation_id")
    return lambda _name, pass_, point, tf32: indexed.get((pass_, point, tf32), none)


def with_errors(rows: pd.DataFrame, intervals: Mapping[str, Mapping[str, Interval]]) -> pd.DataFrame:
    """Operations of networks left out, with the error of each of `pass_errors.ADDED` in a column `error_…`.

    Parameters
    ----------
    rows
        Of `tables.LEFT_OUT_SCHEMA`.
    intervals
        Target to operation class to interval for a scale of 1.
    """
    factors = interval_factors(rows[OPERATION_CLASS].to_numpy(object), intervals)
    looked_up = (rows["learnt"] & ~rows["unseen"]).to_numpy(bool)
    errors = {}
    for target in ADDED:
        own = factors[:, TARGETS.index(target)]
        scale = scale_of(rows[BY_CORRECTED[target].spread].to_numpy(float))
        error = np.log(own[:, 1] / own[:, 0]) / (2 * NORMAL_90) * scale
        errors[ERROR_OF[target]] = np.where(looked_up & rows[target].notna(), LOOKED_UP_ERROR, error)
    return rows.assign(**errors)


def left_out_costs(
    rows: pd.DataFrame, operations: pd.DataFrame, workless_host_s: Mapping[str, Mapping[str, float]]
) -> CostsOfNetwork:
    """Costs of operations with the network left out: predicted, but for those that another network has too.

    Parameters
    ----------
    rows
        Of `tables.LEFT_OUT_SCHEMA`, one GPU.
    operations
        Of the catalogue.
    workless_host_s
        Pass to host time of calls without device work on that GPU, from `learnt.workless_host_s`.
    """
    looked_up = rows["learnt"] & ~rows["unseen"]
    values = [
        rows[target].where(looked_up).fillna(rows[BY_CORRECTED[target].predicted]).to_numpy(float) for target in TARGETS
    ]
    predicted = pd.DataFrame(cost_columns(np.column_stack(values)), index=rows["operation_id"], columns=COST_COLUMNS)
    keys = [rows[name].to_numpy() for name in ("network", *_KEY)]
    indexed = {
        (str(name), str(pass_), str(point), bool(tf32)): group
        for (name, pass_, point, tf32), group in predicted.groupby(keys)
    }
    none = pd.DataFrame(columns=COST_COLUMNS, dtype=float)

    @functools.cache
    def workless(pass_: str) -> pd.DataFrame:
        if pass_ not in workless_host_s:
            return none
        own = operations[(operations["pass"] == pass_) & ~operations["device_work"]]
        costs = HostOnly(own[OPERATION_CLASS].to_numpy(object), workless_host_s[pass_]).costs
        return pd.DataFrame(costs.pipeline(), index=own["operation_id"], columns=COST_COLUMNS)

    def costs(name: str, pass_: str, point: str, tf32: bool) -> pd.DataFrame:
        parts = [indexed.get((name, pass_, point, tf32), none), workless(pass_)]
        return pd.concat([part for part in parts if len(part)] or [none])

    return costs
