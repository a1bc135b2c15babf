"""The rule of `recommend` applied beforehand, so that the page's script only filters: order, and what is as good."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.page.packing import packed
from clockwatt.predict.evaluation.errors import OBJECTIVES
from clockwatt.predict.recommend import objective_values, within_error


def ranks(candidates: pd.DataFrame) -> dict[str, NDArray[np.int32]]:
    """Return the place of each candidate among those of its question, for each objective; -1 where it is not known.

    Parameters
    ----------
    candidates
        `answers.Answers.candidates`.
    """
    found = {f"rank_{objective}": np.full(len(candidates), -1, dtype=np.int32) for objective in OBJECTIVES}
    for positions in candidates.groupby("question").indices.values():
        rows = candidates.iloc[positions]
        for objective in OBJECTIVES:
            values = objective_values(objective, rows["time_s"].to_numpy(), rows["energy_j"].to_numpy())
            order = np.argsort(values, kind="stable")
            known = order[np.isfinite(values[order])]
            found[f"rank_{objective}"][positions[known]] = np.arange(len(known))
    return found


def as_good(candidates: pd.DataFrame) -> dict[str, list[Any]]:
    """Return bits of each question for each objective: whether candidate j is within error of i, at i · count + j."""
    found: dict[str, list[Any]] = {objective: [] for objective in OBJECTIVES}
    for _, question in candidates.groupby("question"):
        rows = {name: question[name].to_numpy() for name in question.columns}
        for objective, bits in found.items():
            within = [within_error(rows, best, objective) for best in range(len(question))]
            bits.append(packed(np.packbits(within), "u1"))
    return found
