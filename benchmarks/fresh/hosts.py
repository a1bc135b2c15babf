"""The host of a day of the fresh set, told from passes that were measured on it.

On two of the three machines no profile (`clockwatt calibrate --host`) was measured; `score.py report --host` answers
for that of the third. So the networks of a day are dealt out to two halves by name, and each half is answered for the
host that the other half tells: how its host times, where nothing blocked, compare with predicted ones in the median,
and how far that is off for nine in ten of the passes that tell it, which is the range of the host.
Device times are not looked at. A profile would tell the same from operations of its own. A machine of another day is
another host, even if it has the same card. A pass takes at least its host time: a longer one was measured in parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from clockwatt.predict.answerer import predict_network
from clockwatt.predict.evaluation.errors import COVERAGE
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts import HostCosts
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema.execution import ExecutionSettings

LEAST_PASSES = 8
"""So many passes with a host time tell a host."""


@dataclass(frozen=True)
class ToldHost:
    """A host as half of a day's networks tell it; stands for a `HostProfile`."""

    told: HostCosts

    def costs(self, model: GpuPredictor, pass_: str) -> HostCosts:  # noqa: ARG002  # the interface of a profile
        """Its costs."""
        return self.told


_NORMALISED = ToldHost(HostCosts(name="normalised"))
"""The host that the dataset is normalised to."""


def half_of(network_id: str) -> int:
    """Which half a network belongs to: the same at any shape, in any pass, on any day."""
    name = network_id.split("-")[0]
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2


def hosts_of(rows: pd.DataFrame, traces: Sequence[TracedNetwork], model: GpuPredictor) -> list[ToldHost | None]:
    """For each pass the host of its day, told by the other half; None where too few passes tell it."""
    if "host" not in rows:
        return [None] * len(rows)
    known = rows[["host", "day", "pass"]].assign(
        seen_s=rows[["time_host_s", "time_eager_s"]].astype(float).min(axis=1, skipna=False),
        half=[half_of(name) for name in rows["subject_id"]],
        stated_s=[
            predict_network(model, traced, "default", execution=ExecutionSettings(execution), host=_NORMALISED)
            .expected.host_s
            for traced, execution in zip(traces, rows["execution"], strict=True)
        ],
    )  # fmt: skip
    told = {
        (host, day, 1 - half, pass_): _told(part, str(host))
        for (host, day, half, pass_), part in known[known["seen_s"] > 0].groupby(["host", "day", "half", "pass"])
    }
    keys = zip(*(known[name] for name in ("host", "day", "half", "pass")), strict=True)
    found = [told.get(key) for key in keys]
    return [None if one is None else ToldHost(one) for one in found]


def _told(passes: pd.DataFrame, name: str) -> HostCosts | None:
    if len(passes) < LEAST_PASSES:
        return None
    logs = np.log(passes["seen_s"] / passes["stated_s"])
    width = float(np.exp(np.quantile(np.abs(logs - logs.median()), COVERAGE)))
    return HostCosts(name=name, overall=float(np.exp(logs.median())), low=1 / width, high=width)
