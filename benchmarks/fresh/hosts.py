"""The host of a day of the fresh set, told from passes that were measured on it.

On two of the three machines no profile (`clockwatt calibrate --host`) was measured; `score.py report --host` answers
for that of the third. So the networks of a day are dealt out to two halves by name, and each half is answered for the
host that the other half tells: what its calls cost relative to the median host, what modules, forward calls and the
start of a backward pass add, from host times where nothing blocked, and how far that is off for nine in ten of the
passes that tell it, which is the range of the host.
Device times are not looked at. A profile would tell the same from networks and operations of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from clockwatt.predict.composition.pipeline import HostOverheads
from clockwatt.predict.evaluation.errors import COVERAGE
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts import HostCosts
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema.costs import TIME_HOST_CORRECTED
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import FORWARD, LOSS, TRAINING

LEAST_PASSES = 8
"""So many passes with a host time tell a host."""


@dataclass(frozen=True)
class ToldHost:
    """A host as half of a day's networks tell it; stands for a `HostProfile`."""

    of_passes: dict[str, HostCosts]

    def costs(self, model: GpuPredictor, pass_: str) -> HostCosts:  # noqa: ARG002  # the interface of a profile
        """Its costs in a pass."""
        return self.of_passes[pass_]


def half_of(network_id: str) -> int:
    """Which half a network belongs to: the same at any shape, in any pass, on any day."""
    name = network_id.split("-")[0]
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2


def hosts_of(rows: pd.DataFrame, traces: Sequence[TracedNetwork], model: GpuPredictor) -> list[ToldHost | None]:
    """For each pass the host of its day, told by the other half; None where too few passes tell it."""
    if "host" not in rows:
        return [None] * len(rows)
    known = pd.DataFrame(
        [
            _costs(traced, model, ExecutionSettings(execution))
            for traced, execution in zip(traces, rows["execution"], strict=True)
        ]
    )
    known = known.assign(
        host=rows["host"].to_numpy(), pass_=rows["pass"].to_numpy(), seen_s=rows["time_host_s"].to_numpy(float),
        half=[half_of(name) for name in rows["subject_id"]],
    )  # fmt: skip
    told = {
        (host, 1 - half, pass_): _told(part, str(host), pass_)
        for (host, half, pass_), part in known[known["seen_s"] > 0].groupby(["host", "half", "pass_"])
    }
    found = [told.get((row.host, row.half, row.pass_)) for row in known.itertuples()]
    return [
        None if one is None else ToldHost({row.pass_: one}) for one, row in zip(found, known.itertuples(), strict=True)
    ]


def _costs(traced: TracedNetwork, model: GpuPredictor, execution: ExecutionSettings) -> dict[str, float]:
    """What the calls of a pass cost the median host, and how many there are of what a host pays for beside."""
    source = model.costs(traced.operations, traced.network.pass_, execution=execution, features=traced.features)
    host_s = source.at(["default"])["default"].mean[:, TARGETS.index(TIME_HOST_CORRECTED)]
    return {
        "calls_s": float(host_s[traced.composer.positions].sum()),
        "modules": float(traced.network.module_calls),
        "forward_calls": float(traced.calls["phase"].isin((FORWARD, LOSS)).sum()),
        "starts": float(traced.network.pass_ == TRAINING),
    }


def _told(passes: pd.DataFrame, name: str, pass_: str) -> HostCosts | None:
    """Least squares relative to each pass, no cost below zero."""
    if len(passes) < LEAST_PASSES:
        return None
    seen_s = passes["seen_s"].to_numpy(float)
    counts = passes[["calls_s", "modules", "forward_calls", "starts"]].to_numpy(float)
    factor, module_s, forward_call_s, start_s = nnls(counts / seen_s[:, None], np.ones(len(seen_s)))[0]
    overheads = HostOverheads(
        module_s=module_s, forward_call_s=forward_call_s, backward_start_s=start_s if pass_ == TRAINING else None
    )
    missed = np.log(counts @ [factor, module_s, forward_call_s, start_s] / seen_s)
    width = float(np.exp(np.quantile(np.abs(missed), COVERAGE)))
    return HostCosts(name=name, overall=float(factor), overheads=overheads, low=1 / width, high=width)
