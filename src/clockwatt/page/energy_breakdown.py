"""Break the energy of a pass down by the operations of a network, below the modules that call them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.predict.answer import Answer
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema.records import FORWARD

_LEVELS = 2
"""Levels of modules that are shown."""
_DYNAMIC = TARGETS.index("energy_dynamic_corrected_j")
_PHASES = {"loss": "loss", "accumulation": "sums of gradients", "optimizer": "optimizer step"}


@dataclass(frozen=True)
class Parts:
    """The parts of a pass, in the order in which they first run, alike on every GPU.

    Attributes
    ----------
    modules
        The module that calls: a path of at most two levels, or what the optimizer and such do.
    operation_ids
        What it calls, each once.
    calls
        How often.
    positions
        The positions of the operations among those of the pass; shape (parts,).
    """

    modules: list[str]
    operation_ids: list[str]
    calls: list[int]
    positions: NDArray[np.intp]

    @classmethod
    def of(cls, traced: TracedNetwork) -> Parts:
        """Return the parts of a pass, without calls that have no work on the device."""
        operations = traced.operations
        works = set(operations["operation_id"].to_numpy(object)[operations["device_work"].to_numpy(bool)])
        columns = (traced.calls[name].to_numpy(object) for name in ("module_path", "phase", "operation_id"))
        counts: dict[tuple[str, str], int] = {}
        for path, phase, operation_id in zip(*columns, strict=True):
            if operation_id in works:
                module = ".".join((path or "").split(".")[:_LEVELS]) if phase == FORWARD else _PHASES[phase]
                counts[module, operation_id] = counts.get((module, operation_id), 0) + 1
        ids = [operation_id for _, operation_id in counts]
        positions = pd.Index(operations["operation_id"]).get_indexer(pd.Index(ids, dtype=object))
        return cls([module for module, _ in counts], ids, list(counts.values()), positions)


@dataclass(frozen=True)
class Shares:
    """Shares of a pass's energy; what is left to one is idle power over the pass.

    Attributes
    ----------
    point
        Operating point that they hold for.
    share
        Of each part; shape (parts,).
    measured
        Whether its operation was measured there, else predicted; shape (parts,).
    """

    point: str
    share: NDArray[np.float64]
    measured: NDArray[np.bool_]


def shares_of(model: GpuPredictor, traced: TracedNetwork, parts: Parts, prediction: Answer) -> Shares:
    """Return the shares of the parts of a pass on one GPU at the operating point of a prediction.

    What the calls cost by themselves is scaled to what they cost together, gaps and power limit included.
    """
    source = model.costs(traced.operations, prediction.pass_, execution=prediction.execution, features=traced.features)
    costs = source.at([prediction.point])[prediction.point]
    energy_j = costs.mean[parts.positions, _DYNAMIC] * np.array(parts.calls, dtype=float)
    expected, modelled_j = prediction.expected, prediction.modelled.energy_j
    share = np.full(len(parts.calls), np.nan)
    total_j = float(np.nansum(energy_j))
    if modelled_j and expected.energy_dynamic_j is not None and total_j > 0:
        share = energy_j / total_j * (expected.energy_dynamic_j / modelled_j)
    return Shares(prediction.point, share, costs.measured[parts.positions])
