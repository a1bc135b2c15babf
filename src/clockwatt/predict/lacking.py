"""Costs that too few operations have, beside the others that were measured: they are not learnt.

A forest of a few energies says nearly the same power of everything, and times are then slowed by the power limit. So
such a cost is put out of sight altogether: all else is as if it had never been measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from clockwatt.dataset.corrections import NOT_ABOVE_IDLE
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.samples import Samples, error_of
from clockwatt.schema.costs import ENERGY_CORRECTED, EXCLUDED, NEEDED

FEWEST = 200
"""So many operations with a cost it takes to learn it (`benchmarks/few_energies.py`) …"""
SHARE = 0.5
"""… or so large a share of those that are learnt from: where all are few, no cost is worse off than the others."""

ENERGY = "energy"
_DYNAMIC, _POWER = "energy_dynamic_corrected_j", "power_corrected_w"


def without_scarce(samples: Samples, passes: Sequence[str], lender: Samples | None = None) -> tuple[Samples, Lacks]:
    """The samples without costs that too few operations have, and what each pass lacks.

    Parameters
    ----------
    samples
        Of one GPU.
    passes
        Those that are fitted.
    lender
        Of another GPU that is learnt from too: its operations count.

    Returns
    -------
    samples
        With such costs missing. Rows that only such a cost kept from being learnt from are learnt from.
    lacks
        Pass to what is not held of it and why; see `description.PassDescription.lacks`.
    """
    rows, lacks = samples.rows.copy(), {}
    for pass_ in passes:
        known = [_learnt(one.rows, pass_) for one in (samples, lender) if one is not None]
        counts = _operations(known)
        needed = min(FEWEST, math.ceil(SHARE * counts[NEEDED[0]]))
        here = rows["pass"] == pass_
        for target in TARGETS:
            if target not in NEEDED and counts[target] < needed:
                columns = [target, error_of(target), *([ENERGY_CORRECTED] if target == _POWER else [])]
                rows.loc[here, columns] = math.nan
        lacks[pass_] = {} if counts[_DYNAMIC] >= max(needed, 1) else {ENERGY: _why(counts[_DYNAMIC], needed)}
    found = rows[list(TARGETS)]
    freed = (rows[EXCLUDED] == NOT_ABOVE_IDLE) & ~(found <= 0).any(axis=1)
    rows[EXCLUDED] = rows[EXCLUDED].mask(freed, "")
    return replace(samples, rows=rows), lacks


Lacks = dict[str, dict[str, str]]
"""Pass to quantity to why it is not held."""


def _learnt(rows: pd.DataFrame, pass_: str) -> pd.DataFrame:
    return rows[(rows["pass"] == pass_) & rows["device_work"].astype(bool) & (rows[EXCLUDED] == "")]


def _operations(parts: Sequence[pd.DataFrame]) -> dict[str, int]:
    """How many operations have each of `TARGETS`."""
    rows = pd.concat(parts)
    return {target: int(rows.loc[rows[target].notna(), "operation_id"].nunique()) for target in TARGETS}


def _why(count: int, needed: int) -> str:
    if not count:
        return "none was measured"
    return f"only {count} operations have one, and {needed} are needed"
