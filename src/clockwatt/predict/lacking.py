"""What the predictors of a pass do not hold, and why: declared once, before anything is learnt.

- Costs that too few operations have, beside the others that were measured. A forest of a few energies says nearly the
  same power of everything, and times are then slowed by the power limit. So such a cost is put out of sight altogether:
  all else is as if it had never been measured.
- Device and host time, where back-to-back times alone were measured: these are learnt, and a pass is their sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from clockwatt.dataset.corrections import BACK_TO_BACK_ALONE, NOT_ABOVE_IDLE
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.samples import Samples, error_of
from clockwatt.schema.costs import BACK_TO_BACK, ENERGY_CORRECTED, EXCLUDED, NEEDED

FEWEST = 150
"""So many operations with a cost it takes to learn it (`benchmarks/few_energies.py`) …"""
SHARE = 0.5
"""… or so large a share of those that are learnt from: where all are few, no cost is worse off than the others."""

ENERGY = "energy"
DEVICE_AND_HOST = "device and host time"
"""What may be lacking."""

Lacks = dict[str, dict[str, str]]
"""Pass to quantity to why it is not held."""

_DYNAMIC, _POWER = "energy_dynamic_corrected_j", "power_corrected_w"
_SUMMED = "back-to-back times alone were measured, and a pass is their sum"


def held(samples: Samples, passes: Sequence[str], lender: Samples | None = None) -> tuple[Samples, Lacks]:
    """The samples with what is to be learnt, and what each pass lacks.

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
        Without costs that too few operations have. Rows that only such a cost kept from being learnt from are learnt
        from, and back-to-back times where nothing else was measured.
    lacks
        See `description.PassDescription.lacks`.
    """
    samples = replace(samples, rows=samples.rows.copy())
    lacks: Lacks = {}
    for pass_ in passes:
        lacks[pass_] = {}
        if _free(samples.rows, pass_, BACK_TO_BACK_ALONE):
            lacks[pass_][DEVICE_AND_HOST] = _SUMMED
        lacks[pass_] |= _without_scarce(samples.rows, pass_, lender, summed=bool(lacks[pass_]))
        _free(samples.rows, pass_, NOT_ABOVE_IDLE, beside=True)
    return samples, lacks


def _free(rows: pd.DataFrame, pass_: str, reason: str, *, beside: bool = False) -> bool:
    """Have rows learnt from that were excluded for a reason alone, in place; whether there are any.

    Without `beside`, only where nothing else is learnt from.
    """
    here = rows["pass"] == pass_
    if not beside and not _learnt(rows, pass_).empty:
        return False
    freed = here & (rows[EXCLUDED] == reason) & ~(rows[list(TARGETS)] <= 0).any(axis=1)
    rows.loc[freed, EXCLUDED] = ""
    return bool(freed.any())


def _without_scarce(rows: pd.DataFrame, pass_: str, lender: Samples | None, *, summed: bool) -> dict[str, str]:
    """Put what too few operations have out of sight, in place; why energy is lacking, empty where it is not."""
    times = (BACK_TO_BACK,) if summed else NEEDED
    parts = [rows] if lender is None or summed else [rows, lender.rows]
    learnt = pd.concat([_learnt(part, pass_) for part in parts])
    counts = {name: int(learnt.loc[learnt[name].notna(), "operation_id"].nunique()) for name in TARGETS}
    needed = min(FEWEST, math.ceil(SHARE * counts[times[0]]))
    for target in TARGETS:
        if target not in times and counts[target] < needed:
            columns = [target, error_of(target), *([ENERGY_CORRECTED] if target == _POWER else [])]
            rows.loc[rows["pass"] == pass_, columns] = math.nan
    count = counts[_POWER if summed else _DYNAMIC]
    if count >= max(needed, 1):
        return {}
    return {ENERGY: f"only {count} operations have one, and {needed} are needed" if count else "none was measured"}


def _learnt(rows: pd.DataFrame, pass_: str) -> pd.DataFrame:
    return rows[(rows["pass"] == pass_) & rows["device_work"].astype(bool) & (rows[EXCLUDED] == "")]
