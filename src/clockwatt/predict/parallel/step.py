"""A training step on one GPU, split into the forward and backward times of its modules, in their order."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from clockwatt.errors import RequestError
from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import OperationCosts
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema.costs import TIME_DEVICE_CORRECTED, TIME_HOST_CORRECTED
from clockwatt.schema.records import ACCUMULATION, FORWARD, GRADIENTS, LOSS, OPTIMIZER, PARAMETERS

_DEVICE, _HOST = TARGETS.index(TIME_DEVICE_CORRECTED), TARGETS.index(TIME_HOST_CORRECTED)
_NUMBERED = re.compile(r"(?:.*_)?\d+")
"""Part of a module's path that numbers the blocks of a network: `h.0`, `encoder_layer_0`."""
_FORWARD_SHARE = 1 / 3
"""Of a module's time, where the forward pass alone is not predicted."""


@dataclass(frozen=True)
class Unit:
    """Calls of one module that follow each other.

    Attributes
    ----------
    path
        Of the module; empty for the network itself.
    forward_s, backward_s
        Device times.
    gradients
        Bytes of each gradient that is complete when the backward pass of this unit ends.
    output_bytes
        What the last call gives to the next unit.
    """

    path: str
    forward_s: float
    backward_s: float
    gradients: tuple[int, ...]
    output_bytes: int

    @property
    def block(self) -> str:
        """The outermost numbered module that the unit belongs to; empty without one."""
        return block_of(self.path)


@dataclass(frozen=True)
class Step:
    """A training step on one GPU.

    Attributes
    ----------
    units
        In the order of the forward pass.
    optimizer_s
        Device time of the optimizer.
    forward_host_s, host_s, optimizer_host_s
        Host time of the forward pass, of the whole step, and of the optimizer.
    time_s, dynamic_j, idle_w
        Time of the whole step, its energy without idle power, and idle power.
    buffers
        Bytes of each buffer, such as the statistics of a batch norm.
    """

    units: tuple[Unit, ...]
    optimizer_s: float
    forward_host_s: float
    host_s: float
    time_s: float
    dynamic_j: float
    idle_w: float
    buffers: tuple[int, ...]
    optimizer_host_s: float = 0.0

    @property
    def device_s(self) -> float:
        """Device time of the whole step."""
        return math.fsum(unit.forward_s + unit.backward_s for unit in self.units) + self.optimizer_s

    @property
    def gradients(self) -> list[int]:
        """Bytes of each gradient, in the order of the backward pass."""
        return [size for unit in reversed(self.units) for size in unit.gradients]


def block_of(path: str) -> str:
    """Return the outermost module above or at a path whose name has a number, such as `model.h.0`; empty without."""
    parts = path.split(".")
    for place, part in enumerate(parts):
        if _NUMBERED.fullmatch(part):
            return ".".join(parts[: place + 1])
    return ""


def step_of(training: Answer, forward: Answer | None, idle_w: float | None) -> Step:
    """Split the answer for a training step.

    Parameters
    ----------
    training
        With the operations behind it.
    forward
        The answer for inference, whose times are those of the forward pass; None where it is not predicted.
    idle_w
        Idle power of the GPU.

    Raises
    ------
    RequestError
        If device and host time, or the energy, are not known.
    NetworkError
        If its memory cannot be recorded, which its gradients are read from.
    """
    detail, expected = training.detail, training.expected
    assert isinstance(detail, OperationCosts)
    if expected.device_s is None or expected.host_s is None or training.energy_j is None or idle_w is None:
        raise RequestError(
            f"{{strategy}}: on {training.gpu}, device time, host time and energy were not measured apart. Choose a GPU "
            "with all three."
        )
    host_bound = expected.host_s > expected.device_s
    device_s = expected.device_s if host_bound else training.time_s
    calls = _calls(detail, forward)
    scale = device_s / (float(calls[["forward_s", "backward_s"]].to_numpy().sum()) or 1.0)
    optimizer_s = scale * float(calls.loc[calls["phase"] == OPTIMIZER, "backward_s"].sum())
    units = _units(calls[calls["phase"].isin((FORWARD, LOSS))], scale, _gradients(detail))
    host_s = training.time_s if host_bound else expected.host_s
    of_calls = np.nan_to_num(detail.costs.mean[:, _HOST])[detail.traced.composer.positions]
    is_optimizer = (calls["phase"] == OPTIMIZER).to_numpy()
    optimizer_host_s = host_s * float(of_calls[is_optimizer].sum() / (of_calls.sum() or 1.0))
    forward_host_s = _FORWARD_SHARE * (host_s - optimizer_host_s)
    if forward is not None and forward.expected.host_s is not None:
        forward_host_s = min(host_s - optimizer_host_s, forward.expected.host_s)
    dynamic_j = max(0.0, training.energy_j - idle_w * training.time_s)
    return Step(
        units, optimizer_s, forward_host_s, host_s, training.time_s, dynamic_j, idle_w, _buffers(detail),
        optimizer_host_s,
    )  # fmt: skip


def _device_s(detail: OperationCosts) -> pd.DataFrame:
    """Return path, phase and device time of each call."""
    positions, calls = detail.traced.composer.positions, detail.traced.calls
    return pd.DataFrame({
        "path": calls["module_path"].fillna("").to_numpy(object),
        "phase": calls["phase"].to_numpy(object),
        "device_s": np.nan_to_num(detail.costs.mean[:, _DEVICE])[positions],
        "output_bytes": detail.traced.operations["bytes_written"].to_numpy()[positions],
    })  # fmt: skip


def _calls(detail: OperationCosts, forward: Answer | None) -> pd.DataFrame:
    """Return the calls with their forward and backward times, not scaled to the time of the step."""
    calls = _device_s(detail)
    is_forward = calls["phase"].isin((FORWARD, LOSS))
    of_module = calls[is_forward].groupby("path")["device_s"].sum()
    added = calls[calls["phase"] == ACCUMULATION].groupby("path")["device_s"].sum()
    share = pd.Series(_FORWARD_SHARE, of_module.index)
    if forward is not None:
        assert isinstance(forward.detail, OperationCosts)
        alone = _device_s(forward.detail)
        share = alone.groupby("path")["device_s"].sum().reindex(of_module.index).fillna(0.0)
        share = (share / of_module.where(of_module > 0)).fillna(0.0).clip(upper=1.0)
        outputs = alone[alone["output_bytes"] > 0].groupby("path")["output_bytes"].last()
        calls["output_bytes"] = calls["path"].map(outputs).fillna(calls["output_bytes"])
    calls["forward_s"] = np.where(is_forward, calls["device_s"] * calls["path"].map(share).fillna(0.0), 0.0)
    calls["backward_s"] = calls["device_s"] - calls["forward_s"]
    first = calls[is_forward].drop_duplicates("path")
    known = added.reindex(first["path"]).fillna(0.0).to_numpy()
    calls.loc[first.index, "backward_s"] += known
    calls.loc[calls["phase"] == ACCUMULATION, "backward_s"] = 0.0
    calls.loc[first.index[:1], "backward_s"] += float(added.sum() - known.sum())
    return calls


def _units(calls: pd.DataFrame, scale: float, gradients: dict[str, list[int]]) -> tuple[Unit, ...]:
    run = (calls["path"] != calls["path"].shift()).cumsum()
    table = calls.groupby(run, sort=False).agg(
        path=("path", "first"), forward_s=("forward_s", "sum"), backward_s=("backward_s", "sum"),
        output_bytes=("output_bytes", "last"),
    )  # fmt: skip
    paths = list(table["path"])
    owned: defaultdict[int, list[int]] = defaultdict(list)
    for path, sizes in gradients.items():
        owned[_first_user(path, paths)] += sizes
    forward_s, backward_s = (scale * table[name].to_numpy(float) for name in ("forward_s", "backward_s"))
    outputs = table["output_bytes"].to_numpy(int)
    return tuple(
        Unit(path, float(forward_s[place]), float(backward_s[place]), tuple(owned[place]), int(outputs[place]))
        for place, path in enumerate(paths)
    )


def _first_user(path: str, paths: Sequence[str]) -> int:
    """Return the first unit of a module, or of the module above it that uses its parameters."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if (above := ".".join(parts[:length])) in paths:
            return paths.index(above)
    return 0


def _gradients(detail: OperationCosts) -> dict[str, list[int]]:
    """Return the bytes of the gradients of each module, in the order of the backward pass."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    events = [event for event in detail.traced.memory or () if event.kind == GRADIENTS and event.bytes is not None]
    for event in events[len(events) // 2 :]:  # two steps are recorded
        found[event.module_path].append(event.bytes or 0)
    return dict(found)


def _buffers(detail: OperationCosts) -> tuple[int, ...]:
    trained = {path: sorted(sizes) for path, sizes in _gradients(detail).items()}
    found = []
    for event in detail.traced.memory or ():
        if event.kind == PARAMETERS and event.bytes is not None:
            sizes = trained.get(event.module_path, [])
            if event.bytes in sizes:
                sizes.remove(event.bytes)
            else:
                found.append(event.bytes)
    return tuple(found)
