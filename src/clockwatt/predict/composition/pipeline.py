"""Compose a network's pass from the costs of its calls.

The host issues calls one after another, the device executes them in order: each starts when it has been issued and the
one before it has ended, Lindley's recursion for a queue with one server (Proc. Cambridge Phil. Soc. 48, 1952). If
passes follow each other without synchronisation, the host runs ahead of the device. The time of a pass then tends to
the larger of its host time and its device time. If the mean power would exceed the limit, the device slows down until
it does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from numpy.typing import NDArray

from clockwatt.io import files
from clockwatt.schema import layout
from clockwatt.schema.execution import COMPILED_MODES, CUDA_GRAPH, REDUCE_OVERHEAD, mode_of_variant
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import ACCUMULATION, CALIBRATION_SCHEMA, FORWARD, INFERENCE, LOSS, TRAINING, NetworkRow


@dataclass(frozen=True)
class HostOverheads:
    """Host times of one pass beyond its calls; None where not known.

    Attributes
    ----------
    call_s
        Time to issue one call.
    module_s
        Time that entering a module's forward adds.
    forward_call_s
        Extra time of a forward call in a network, where different calls follow each other, compared with a loop of the
        same call.
    backward_start_s
        Time to start a backward pass, once per pass.
    """

    call_s: float | None = None
    module_s: float | None = None
    forward_call_s: float | None = None
    backward_start_s: float | None = None

    def completed(self, other: HostOverheads) -> HostOverheads:
        """Return the overheads with those of another GPU where they are not known."""
        return HostOverheads(
            **{
                name: other_s if (own_s := getattr(self, name)) is None else own_s
                for name, other_s in vars(other).items()
            }
        )

    def scaled(self, factor: float) -> HostOverheads:
        """Return the overheads of a host whose calls cost `factor` times as much."""
        known = (self.call_s, self.module_s, self.forward_call_s, self.backward_start_s)
        return HostOverheads(*(None if value is None else factor * value for value in known))


@dataclass(frozen=True)
class PassOverheads:
    """Overheads of one pass beyond its calls; None where not known.

    Attributes
    ----------
    host
        Host overheads.
    gap_s
        Extra device time of a call with device work in a network, compared with repetitions of the same call.
    grouped_gap_s
        The same in training of networks with grouped convolutions. cuDNN computes some of their gradients on several
        streams at once; while such work waits in the queue, a device starts all other kernels later too.
    dynamic_factor
        Dynamic energy in a network relative to that of its operations alone, whose random inputs have no zeros.
    """

    host: HostOverheads = HostOverheads()
    gap_s: float | None = None
    grouped_gap_s: float | None = None
    dynamic_factor: float | None = None

    def completed(self, other: PassOverheads) -> PassOverheads:
        """Return the overheads with those of another GPU where they are not known."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **known | {"host": self.host.completed(other.host)})

    def gap_of(self, *, grouped: bool) -> float:
        """Return device time between calls of a network, with or without grouped convolutions; 0 if unknown."""
        known_s = self.grouped_gap_s if grouped and self.grouped_gap_s is not None else self.gap_s
        return max(0.0, known_s or 0.0)


@dataclass(frozen=True)
class Overheads:
    """Overheads at one operating point, calibrated or estimated from networks; None where not known.

    Attributes
    ----------
    inference, training
        Overheads of each pass.
    power_idle_w
        Idle power, context alive, clock locked.
    power_limit_w
        Observed while measuring; else that of the operating point, or the GPU model's default.
    """

    inference: PassOverheads = PassOverheads()
    training: PassOverheads = PassOverheads()
    power_idle_w: float | None = None
    power_limit_w: float | None = None

    def of(self, pass_: str) -> PassOverheads:
        """Return the overheads of one pass."""
        return self.training if pass_ == TRAINING else self.inference

    def completed(self, other: Overheads) -> Overheads:
        """Return the overheads with those of another GPU where they are not known; powers are the card's own."""
        inference, training = self.inference.completed(other.inference), self.training.completed(other.training)
        return replace(self, inference=inference, training=training)

    def on_host(self, factor: float) -> Overheads:
        """Return the overheads on a host whose calls cost `factor` times as much."""
        if factor == 1.0:
            return self
        inference, training = (replace(own, host=own.host.scaled(factor)) for own in (self.inference, self.training))
        return replace(self, inference=inference, training=training)


def read_calibrated(dataset_dir: Path, gpu: str) -> dict[str, Overheads]:
    """Return calibrated overheads of one GPU by operating point.

    DataFileError if the dataset has no calibration or it is damaged.
    """
    columns = ["gpu", "point", "quantity", "subject", "value"]
    table = files.read_table(dataset_dir / layout.CALIBRATION_FILE, CALIBRATION_SCHEMA, columns)
    values: dict[str, dict[tuple[str, str | None], float]] = {}
    for row in table.filter(pc.equal(table["gpu"], gpu)).to_pylist():
        of_point = values.setdefault(row["point"], {})
        if row["value"] is not None:
            of_point[row["quantity"], row["subject"]] = row["value"]
    return {
        point: Overheads(
            _of_pass(found, INFERENCE), _of_pass(found, TRAINING), found.get((CalibrationQuantity.IDLE_POWER, None))
        )
        for point, found in values.items()
    }


def _of_pass(found: Mapping[tuple[str, str | None], float], pass_: str) -> PassOverheads:
    host = HostOverheads(
        call_s=found.get((CalibrationQuantity.HOST_PER_CALL, pass_)),
        module_s=found.get((CalibrationQuantity.HOST_PER_MODULE, pass_)),
        forward_call_s=found.get((CalibrationQuantity.HOST_ADDED_PER_CALL, pass_)),
        backward_start_s=found.get((CalibrationQuantity.HOST_PER_BACKWARD_CALL, None)) if pass_ == TRAINING else None,
    )
    return PassOverheads(host, found.get((CalibrationQuantity.DEVICE_ADDED_PER_CALL, pass_)))


COST_COLUMNS = [
    "time_device_corrected_s",
    "time_host_corrected_s",
    "time_eager_corrected_s",
    "energy_dynamic_corrected_j",
    "energy_corrected_j",
]
"""Costs of an operation per call; `energy_corrected_j`, with idle power, is needed for the plain sum only."""


_GRAPH_SAVES_S = 1.0e-6
"""Device time between two kernels that a CUDA graph saves."""
COMPILED_TRAINING_GAP_S = 1.46e-6
"""Further device time of each call of a compiled training pass: TorchInductor's gradients take more kernels than those
traced. `benchmarks/compiled/intervals.py gap` fits it."""
COMPILED_TRAINING_CALLS = (30.0, 3.8)
"""Host time of a compiled training pass beyond its calls, in times to issue one call: of its wrapper, and of each batch
normalisation, whose statistics it writes back. `benchmarks/compiled/intervals.py host` fits it."""
_LEAST_SHARE = 0.3
"""Least share of its time that a call in a CUDA graph keeps."""


@dataclass(frozen=True)
class Composition:
    """Time, energy and power of a network's pass, composed from its calls.

    Attributes
    ----------
    time_s
        Of one pass among many that follow each other: the larger of `device_s` and `host_s`, more if power-capped.
        Where the two are not known, the sum of back-to-back times.
    latency_s
        Of a single inference pass, from the first call issued to the last one ended; None in training, where the order
        of the backward kernels is not that of the calls.
    device_s, host_s
        Time of the device without the power limit, and of the host; None where they were not measured separately.
    energy_dynamic_j, energy_j
        Sum over calls (None where that of one is not known), and with idle power over `time_s` (None without that).
    power_w
        Mean over the pass.
    plain_time_s, plain_energy_j
        The sum of back-to-back times and their energies over the traced calls, as the thesis composed networks. It
        lacks gradient accumulation, which is not among the traced calls. None where a summand is not known.
    calls, calls_without_cost
        Number of calls, and of calls without a known time, which the sums then lack.
    """

    time_s: float
    latency_s: float | None
    device_s: float | None
    host_s: float | None
    energy_dynamic_j: float | None
    energy_j: float | None
    power_w: float | None
    plain_time_s: float | None
    plain_energy_j: float | None
    calls: int
    calls_without_cost: int

    @property
    def complete(self) -> bool:
        """Whether every call has a cost."""
        return self.calls_without_cost == 0

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for tables and JSON."""
        return asdict(self)


def pipeline_ends(issued_s: NDArray[np.float64], device_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time at which the device finishes each call.

    Parameters
    ----------
    issued_s
        Times at which the host has issued each call, ascending; shape (calls,).
    device_s
        Device time of each call; shape (calls,).

    Returns
    -------
    numpy.ndarray
        Shape (calls,). Solves end = max(end before, issued) + device time.
    """
    done = np.cumsum(device_s)
    idle = np.maximum.accumulate(issued_s - (done - device_s))
    return done + idle


class Composer:
    """Compose one pass of a network from costs at any operating point.

    Parameters
    ----------
    calls
        Its calls in order, with `operation_id` and `phase`.
    network
        Its module calls and its pass.
    operation_ids
        Operations in the order in which their costs are passed.

    Attributes
    ----------
    positions
        Of each call's operation among them, -1 for one that is missing; shape (calls,).
    times_called
        How often each of the operations is called; shape (operations,).
    """

    def __init__(self, calls: pd.DataFrame, network: NetworkRow, operation_ids: pd.Index) -> None:
        self._network = network
        self.positions = operation_ids.get_indexer(pd.Index(calls["operation_id"]))
        known = self.positions[self.positions >= 0]
        self.times_called = np.bincount(known, minlength=len(operation_ids)).astype(np.float64)
        phase = calls["phase"].to_numpy(str)
        self._traced: NDArray[np.bool_] = np.not_equal(phase, ACCUMULATION)
        self._forward: NDArray[np.bool_] = np.isin(phase, (FORWARD, LOSS))
        mode = mode_of_variant(network.dtype)
        self._compiled = mode == REDUCE_OVERHEAD
        self._in_graph: NDArray[np.bool_] = (
            np.isin(phase, FORWARD) if self._compiled else np.full(len(phase), mode == CUDA_GRAPH)
        )
        self._compiled_training = mode in COMPILED_MODES and network.pass_ == TRAINING
        self._gaps_s = COMPILED_TRAINING_GAP_S * self._compiled_training - np.where(self._in_graph, _GRAPH_SAVES_S, 0.0)

    def compose(self, costs: NDArray[np.float64], overheads: Overheads) -> Composition:
        """Compose at one operating point.

        Parameters
        ----------
        costs
            `COST_COLUMNS` of the operations; shape (operations, 5).
        overheads
            Costs beyond the calls (modules, start of a backward pass, gaps between kernels), idle power and power
            limit.
        """
        of_calls = self._of_calls(costs)
        known = np.asarray(np.isfinite(of_calls[:, :2]).all(axis=1))
        device, host, eager, dynamic, energy = np.where(known[:, None], of_calls, 0.0).T
        of_power = bool(np.isfinite(dynamic).all())
        if not of_power:
            dynamic = np.zeros_like(dynamic)
        per_call_host = self._host_times(host, overheads)
        grouped = bool(self._network.grouped_convolutions)
        of_pass = overheads.of(self._network.pass_)
        device, dynamic = _with_gaps(device, dynamic, of_pass.gap_of(grouped=grouped) + self._gaps_s)
        dynamic = dynamic * (of_pass.dynamic_factor or 1.0)
        host_s, device_s = float(per_call_host.sum()), float(device.sum())
        time_s, dynamic_j = _under_limit(device, eager, dynamic, host_s, overheads)
        latency_s = None
        if self._network.pass_ != TRAINING and known.size:
            latency_s = float(pipeline_ends(np.cumsum(per_call_host), device)[-1])
        energy_j = None
        if of_power and overheads.power_idle_w is not None:
            energy_j = dynamic_j + overheads.power_idle_w * time_s
        return Composition(
            time_s=time_s,
            latency_s=latency_s,
            device_s=device_s,
            host_s=host_s,
            energy_dynamic_j=dynamic_j if of_power else None,
            energy_j=energy_j,
            power_w=energy_j / time_s if energy_j is not None and time_s > 0 else None,
            plain_time_s=_sum_of(eager[self._traced]),
            plain_energy_j=_sum_of(np.where((device > 0) | np.isfinite(energy), energy, 0.0)[self._traced]),
            calls=known.size,
            calls_without_cost=int(np.sum(~known)),
        )

    def add_up(self, costs: NDArray[np.float64]) -> Composition:
        """Sum back-to-back times and their energies, where device and host were not measured separately.

        Parameters
        ----------
        costs
            As in `compose`. An unknown energy of a call without device work counts as zero.
        """
        of_calls = self._of_calls(costs)
        device, _, eager, dynamic, energy = of_calls.T
        energy = np.where((device == 0) & ~np.isfinite(energy), 0.0, energy)
        known = np.isfinite(eager)
        time_s, energy_j = math.fsum(eager[known]), _sum_of(energy)
        return Composition(
            time_s=time_s,
            latency_s=None,
            device_s=None,
            host_s=None,
            energy_dynamic_j=_sum_of(dynamic),
            energy_j=energy_j,
            power_w=energy_j / time_s if energy_j is not None and time_s > 0 else None,
            plain_time_s=_sum_of(eager[self._traced]),
            plain_energy_j=_sum_of(energy[self._traced]),
            calls=known.size,
            calls_without_cost=int(np.sum(~known)),
        )

    def _of_calls(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the costs of each call, NaN where they are missing; shape (calls, 5)."""
        missing = np.full((1, costs.shape[1]), np.nan)
        return np.vstack([costs, missing])[self.positions]

    def _host_times(self, host: NDArray[np.float64], overheads: Overheads) -> NDArray[np.float64]:
        """Return the host time of each call within a network.

        The overheads of modules and of starting the backward pass are spread evenly over the forward calls. A CUDA
        graph is one launch; a compiled network checks its modules before.
        """
        known = overheads.of(self._network.pass_).host
        around_s = (known.module_s or 0.0) * self._network.module_calls + (known.backward_start_s or 0.0)
        if self._compiled_training:
            once, each = COMPILED_TRAINING_CALLS
            around_s += (known.call_s or 0.0) * (once + each * (self._network.batch_norms or 0))
        per_call_s = (known.forward_call_s or 0.0) + around_s / max(int(self._forward.sum()), 1)
        times_s = host + np.where(self._forward, per_call_s, 0.0)
        if self._in_graph.any():
            times_s[self._in_graph] = 0.0
            times_s[self._in_graph.argmax()] = (known.call_s or 0.0) + (around_s if self._compiled else 0.0)
        return times_s


def _sum_of(values: NDArray[np.float64]) -> float | None:
    """Return the sum; None where a value is not known."""
    return math.fsum(values) if np.isfinite(values).all() else None


def _with_gaps(
    device: NDArray[np.float64], dynamic: NDArray[np.float64], gaps_s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return device time and dynamic energy of calls with the gaps between them.

    In a gap, the device draws its mean power.
    """
    with_gaps = np.maximum(device + np.where(device > 0, gaps_s, 0.0), _LEAST_SHARE * device)
    busy_s = float(device.sum())
    return with_gaps, dynamic * (float(with_gaps.sum()) / busy_s if busy_s > 0 else 1.0)


def _under_limit(
    device: NDArray[np.float64],
    eager: NDArray[np.float64],
    dynamic: NDArray[np.float64],
    host_s: float,
    overheads: Overheads,
) -> tuple[float, float]:
    """Apply the power limit: return time and dynamic energy of a pass, given its calls' costs without the limit.

    Calls that reach the limit when run alone take longer back to back, and draw just the limit. If the mean power of
    the pass is below the limit, none of them slows down. If it is above, they slow down until the mean is at the limit;
    if that is not enough, the whole pass slows down.
    """
    device_s, dynamic_j = float(device.sum()), float(dynamic.sum())
    time_s = max(host_s, device_s)
    if overheads.power_limit_w is None or overheads.power_idle_w is None:
        return time_s, dynamic_j
    above_w = overheads.power_limit_w - overheads.power_idle_w
    if above_w <= 0 or dynamic_j <= above_w * time_s:
        return time_s, dynamic_j
    slowed = np.maximum(np.fmin(eager, dynamic / above_w), device)
    longer_s = float((slowed - device).sum())
    less_j = float(np.maximum(dynamic - above_w * slowed, 0.0).sum())
    possible_j = less_j + above_w * longer_s
    share = min(1.0, (dynamic_j - above_w * device_s) / possible_j) if possible_j > 0 else 0.0
    if less_j > 0:  # if host-bound, calls slow down only until the mean is at the limit
        share = min(share, (dynamic_j - above_w * host_s) / less_j)
    dynamic_j -= share * less_j
    return max(host_s, device_s + share * longer_s, dynamic_j / above_w), dynamic_j


def compose(calls: pd.DataFrame, network: NetworkRow, costs: pd.DataFrame, overheads: Overheads) -> Composition:
    """Compose one pass of a network at one operating point; see `Composer`.

    Parameters
    ----------
    calls, network, overheads
        See `Composer`.
    costs
        Indexed by operation id, with `COST_COLUMNS`; at one operating point, in this pass.
    """
    return Composer(calls, network, costs.index).compose(costs[COST_COLUMNS].to_numpy(float), overheads)
