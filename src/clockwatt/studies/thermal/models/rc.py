"""Forecasts by thermal RC networks: one for each card, and one for each GPU model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.inputs import PAST_LOADS_S, Ints, Task, past_loads
from clockwatt.studies.thermal.models.base import Forecaster, Rows, truth, usable_rows
from clockwatt.studies.thermal.models.network import Network, taken_up
from clockwatt.studies.thermal.models.network_fit import fit_network, steady_neighbours
from clockwatt.studies.thermal.traces import Array, Trace

DRIFTS_K_PER_ROOT_S = (0.001, 0.01, 0.05, 0.2)
_JUDGED_AT_S = 30.0
_MOST_FILTERED = 1500
"""Steps that the filter's drift is chosen on: whole traces, until there are so many."""


class RcNetworks(Forecaster):
    """Each card's own network; a card that was never recorded gets that of its model, without neighbours.

    Parameters
    ----------
    task
        What is forecast from what.
    intervals
        Whether intervals of the constants are fitted too.
    """

    name = "rc"
    fits_any_load = True

    def __init__(self, task: Task, *, intervals: bool = False) -> None:
        super().__init__(task)
        self.intervals = intervals

    def fit(self, traces: Sequence[Trace], rows: Rows | None = None) -> RcNetworks:
        """See `Forecaster`."""
        self.cards_: dict[str, Network] = {}
        self.models_: dict[str, Network] = {}
        self.notes_: list[str] = []
        seen = [self.task.seen(trace) for trace in traces]
        chosen = rows if rows is not None else [np.ones(len(trace), bool) for trace in traces]
        for uuid in sorted({trace.gpu for trace in seen}):
            self._fit_one(self.cards_, uuid, [(t, r) for t, r in zip(seen, chosen, strict=True) if t.gpu == uuid])
        for name in sorted({trace.gpu_name for trace in seen}):
            of_model = [(t.alone(), r) for t, r in zip(seen, chosen, strict=True) if t.gpu_name == name]
            cards = {trace.gpu for trace, _ in of_model}
            own = self.cards_.get(min(cards)) if len(cards) == 1 else None
            if own is not None and not own.neighbours_k_per_w:
                self.models_[name] = own
            else:
                self._fit_one(self.models_, name, of_model)
        if not self.models_ and not self.cards_:
            raise ThermalError(" ".join(dict.fromkeys(self.notes_)))
        return self

    def _fit_one(self, into: dict[str, Network], name: str, part: Sequence[tuple[Trace, NDArray[np.bool_]]]) -> None:
        traces, rows = [trace for trace, _ in part], [row for _, row in part]
        try:
            network = fit_network(traces, rows, intervals=self.intervals)
        except ThermalError as error:
            self.notes_.append(str(error))
            return
        if steady := steady_neighbours(traces):
            self.notes_.append(
                f"{name}: the power of {', '.join(steady)} hardly changed, so their effect on its temperature "
                "is unknown."
            )
        weights = {steps: _load_weights(network, traces, rows, steps) for steps in self.task.steps}
        into[name] = replace(network, drift_k_per_root_s=_drift(network, traces, rows), load_weights=weights)

    def network_of(self, gpu: str, gpu_name: str) -> Network | None:
        """Return the network of a card, or of its model; None if neither was recorded."""
        return self.cards_.get(gpu) or self.models_.get(gpu_name)

    def forecast(self, trace: Trace, origins: Ints) -> Array:
        """See `Forecaster`."""
        network = self.network_of(trace.gpu, trace.gpu_name)
        if network is None:
            return np.full((len(origins), len(self.task.steps)), np.nan)
        return network.forecast(self.task.seen(trace), origins, self.task.steps, known=self.task.load == "known")

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Forecaster`."""
        cards = {uuid: network.to_json() for uuid, network in self.cards_.items()}
        models = {name: network.to_json() for name, network in self.models_.items()}
        return {"cards": cards, "models": models}, {}

    def restore(self, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> RcNetworks:  # noqa: ARG002
        """See `Forecaster`."""
        self.cards_ = {str(uuid): Network.from_json(one) for uuid, one in described["cards"].items()}
        self.models_ = {str(name): Network.from_json(one) for name, one in described["models"].items()}
        self.notes_ = []
        return self


def _drift(network: Network, traces: Sequence[Trace], rows: Rows) -> float:
    """Return the drift whose filter forecasts best 30 s ahead, the load known."""
    task = Task(load="known", horizons_s=(_JUDGED_AT_S,), step_s=traces[0].step_s)
    pairs = list(zip(traces, usable_rows(traces, rows), strict=True))
    before = np.cumsum([0, *(len(trace) for trace in traces)])[:-1]
    pairs = [pair for pair, steps in zip(pairs, before, strict=True) if steps < _MOST_FILTERED]
    errors = []
    for drift in DRIFTS_K_PER_ROOT_S:
        trial, squares, count = replace(network, drift_k_per_root_s=drift), 0.0, 0
        for trace, origins in pairs:
            missed = trial.forecast(trace, origins, task.steps, known=True) - truth(trace, origins, task)
            known = np.isfinite(missed)
            squares, count = squares + float((missed[known] ** 2).sum()), count + int(known.sum())
        errors.append(squares / count if count else 0.0)
    return DRIFTS_K_PER_ROOT_S[int(np.argmin(errors))]


def _load_weights(network: Network, traces: Sequence[Trace], rows: Rows, steps: int) -> tuple[float, ...]:
    """Return the weights of past loads in the heat that the slowest mode takes up in so many steps; they sum to 1."""
    tau = max(mode.time_constant_s for mode in network.modes)
    kept = np.array([np.exp(-traces[0].step_s / tau)])
    designs, targets = [np.zeros((0, len(PAST_LOADS_S) - 1))], [np.zeros(0)]
    for trace, origins in zip(traces, usable_rows(traces, rows), strict=True):
        inside = origins[origins + steps < len(trace)]
        past = past_loads(trace.power_w, trace.step_s)[inside]
        coming = taken_up(trace.power_w, inside, steps, kept)[:, 0] / (1 - kept[0] ** steps)
        designs.append(past[:, 1:] - past[:, :1])
        targets.append(coming - past[:, 0])
    design, target = np.concatenate(designs), np.concatenate(targets)
    square = design.T @ design + (1e-3 * len(design) + 1e-9) * np.eye(design.shape[1])
    weights = np.clip(np.linalg.solve(square, design.T @ target), 0.0, 1.0)
    weights /= max(1.0, float(weights.sum()))
    return (float(1 - weights.sum()), *(float(weight) for weight in weights))
