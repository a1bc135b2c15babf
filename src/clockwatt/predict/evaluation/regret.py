"""What it costs to choose an operating point by prediction, over the one that measured best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.evaluation.errors import OBJECTIVES, objective_of
from clockwatt.schema.execution import ExecutionSettings


@dataclass(frozen=True)
class Regrets:
    """Of one GPU's networks in one pass under one execution setting, for one objective.

    Attributes
    ----------
    pass_, execution, objective
        Of what.
    at_points
        What a network's objective is over the least measured one, minus one: networks by operating points.
    predicted
        Position of the operating point that prediction chooses; shape (networks,).
    """

    pass_: str
    execution: ExecutionSettings
    objective: str
    at_points: pd.DataFrame
    predicted: NDArray[np.intp]

    @property
    def fixed(self) -> int:
        """Position of the operating point that is best for all networks alike: of least mean regret."""
        return int(self.at_points.to_numpy(float).mean(axis=0).argmin())

    def of(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Regret of each network at the position chosen for it; both of shape (networks,)."""
        return np.take_along_axis(self.at_points.to_numpy(np.float64), chosen[:, None], axis=1)[:, 0]


def regrets(rows: pd.DataFrame) -> Iterator[Regrets]:
    """Regrets of each pass, execution setting and objective with at least two operating points.

    Parameters
    ----------
    rows
        One GPU's compositions from predicted operations, with the measured values beside them, see
        `networks.VALIDATION_SCHEMA`. Networks that lack one of the operating points do not count.
    """
    for (pass_, execution), group in rows.groupby(["pass", "execution"]):
        for objective in OBJECTIVES:
            measured, predicted = (
                group.assign(value=objective_of(objective, *(group[name] for name in names)))
                .pivot_table(index="network_id", columns="point", values="value", dropna=False)
                for names in (("measured_time_s", "measured_energy_j"), ("time_s", "energy_j"))
            )  # fmt: skip
            # an objective may be missing at a point, as energy is where the time alone was measured
            points = measured.notna().any() & predicted.notna().any()
            measured, predicted = measured.loc[:, points], predicted.loc[:, points]
            complete = measured.notna().all(axis=1) & predicted.notna().all(axis=1)
            if not complete.any() or measured.shape[1] < 2:
                continue
            measured = measured[complete]
            at_points = measured.div(measured.min(axis=1), axis=0) - 1
            chosen = predicted[complete].to_numpy(float).argmin(axis=1)
            yield Regrets(str(pass_), ExecutionSettings(str(execution)), objective, at_points, chosen)
