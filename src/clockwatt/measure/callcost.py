"""What calls, modules and backward passes cost beyond what single operations show, in PyTorch on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.measure.bench import (
    DEVICE_ADDED_PER_CALL,
    HOST_ADDED_PER_CALL,
    HOST_PER_BACKWARD_CALL,
    HOST_PER_BACKWARD_NODE,
    HOST_PER_CALL,
    HOST_PER_MODULE,
)
from clockwatt.measure.statistics import Estimate, mean_estimate, median_estimate
from clockwatt.operations.catalogue import Traced, trace_rows
from clockwatt.operations.networks import build_network
from clockwatt.operations.operation import Operation
from clockwatt.records import FORWARD, INFERENCE, LOSS, TRAINING

_REPEATS, _WARM = 30, 3
_IN_A_ROW = 4
_SHORT, _LONG = 2, 60
_ELEMENTS = 8

_NETWORKS = [
    NetworkConfig(name=name, input=[1, 3, 64, 64])
    for name in ("mobilenet_v3_small", "shufflenet_v2_x0_5", f"{__name__}:small_transformer")
]
"""Many modules to a call, many calls to a module, and both: too small to keep any device busy."""

_ROUNDS = 2
"""Far enough apart that what disturbs the host for a second shows."""


@dataclass(frozen=True)
class CallTimes:
    """Times in s of an operation's call among others of a pass; `device_s` is None where it cannot be queued."""

    host_s: float
    device_s: float | None


@dataclass(frozen=True)
class _Whole:
    """A pass of a network, and what of its times in s is not that of its calls."""

    modules: int
    forward_calls: int
    device_calls: int
    host_s: float
    host_beyond_s: float
    device_beyond_s: float | None


Issue = Callable[[], object]
Alone = Callable[[Operation, str], CallTimes | None]
DeviceTime = Callable[[Issue], float | None]
Costs = dict[tuple[str, str | None], Estimate | None]


def call_costs(device: torch.device, alone: Alone, device_time_s: DeviceTime) -> Costs:
    """Times in s of calls that follow each other, as in a network's pass, and of what a network adds to them.

    What a backward node costs is the slope of the time of a backward pass over its length; what a pass costs beyond
    that is its start.

    Parameters
    ----------
    device
        Where the tiny tensors live.
    alone
        Times of an operation's call among others of a pass, as they are measured; None where they cannot be.
    device_time_s
        Device time of a network's pass; None where it cannot be measured.
    """
    x = torch.ones(_ELEMENTS, device=device)
    leaf = torch.ones(_ELEMENTS, device=device, requires_grad=True)
    gradient = torch.ones_like(leaf)
    with torch.inference_mode():
        call_s = _issued(lambda: _chain(x, _LONG), device, each=_LONG)
    training_s = _issued(lambda: torch.autograd.grad(_chain(leaf, _LONG), leaf, gradient), device, each=_LONG)
    short, long = (_issued(_backward(_chain(leaf, length), leaf, gradient), device) for length in (_SHORT, _LONG))
    node_s = start_s = None
    if short is not None and long is not None:
        slope_s = (long.value - short.value) / (_LONG - _SHORT)
        error_s = float(np.hypot(short.standard_error, long.standard_error)) / (_LONG - _SHORT)
        node_s = Estimate(slope_s, error_s, long.samples)
        start_s = Estimate(short.value - _SHORT * slope_s, short.standard_error + _SHORT * error_s, short.samples)
    costs: Costs = {
        (HOST_PER_CALL, INFERENCE): call_s,
        (HOST_PER_CALL, TRAINING): training_s,
        (HOST_PER_BACKWARD_NODE, None): node_s,
        (HOST_PER_BACKWARD_CALL, None): start_s,
    }
    passes: list[tuple[Pass, float]] = [("inference", 0.0), ("training", start_s.value if start_s else 0.0)]
    for pass_, once_s in passes:
        traced = [(network, trace_rows(network, pass_, TrainingConfig())) for network in _NETWORKS]
        found = [_whole(network, rows, device, pass_, alone, device_time_s) for network, rows in traced * _ROUNDS]
        wholes = [whole for whole in found if whole is not None]
        costs[HOST_PER_MODULE, pass_], costs[HOST_ADDED_PER_CALL, pass_] = _host_added(wholes, once_s)
        costs[DEVICE_ADDED_PER_CALL, pass_] = _device_added(wholes)
    return costs


def small_transformer() -> torch.nn.Module:
    """A vision transformer of usual depth and negligible width."""
    import torchvision  # only to calibrate: it takes longer to import than torch

    network: torch.nn.Module = torchvision.models.VisionTransformer(
        image_size=64, patch_size=32, num_layers=12, num_heads=2, hidden_dim=16, mlp_dim=32
    )
    return network


def _host_added(wholes: list[_Whole], once_s: float) -> tuple[Estimate | None, Estimate | None]:
    """What entering a module costs, and what a call takes longer in a network than in a loop of its own.

    A call that is measured alone runs from warm caches, which in a network it does not, and modules call it through
    layers of Python. Least squares of what passes of whole networks take beyond the sum of their calls and `once_s`,
    relative to the pass, neither cost below zero; errors from what is left.
    """
    if len(wholes) <= 2:  # two costs are sought
        return None, None
    pass_s = np.array([whole.host_s for whole in wholes])
    counts = np.array([[whole.modules, whole.forward_calls] for whole in wholes]) / pass_s[:, None]
    beyond = (np.array([whole.host_beyond_s for whole in wholes]) - once_s) / pass_s
    found, _ = nnls(counts, beyond)
    left = beyond - counts @ found
    variance = float(left @ left) / (len(wholes) - 2)
    errors = np.sqrt(np.diag(np.linalg.inv(counts.T @ counts)) * variance)
    module_s, added_s = (
        Estimate(float(cost), float(error), len(wholes)) for cost, error in zip(found, errors, strict=True)
    )
    return module_s, added_s


def _device_added(wholes: list[_Whole]) -> Estimate | None:
    """What a call takes longer on the device between others than after itself: every kernel follows a different one."""
    found = [whole.device_beyond_s / whole.device_calls for whole in wholes if whole.device_beyond_s is not None]
    added = mean_estimate(found)
    return Estimate(max(0.0, added.value), added.standard_error, added.samples) if added else None


def _whole(
    network: NetworkConfig, traced: Traced, device: torch.device, pass_: Pass, alone: Alone, device_time_s: DeviceTime
) -> _Whole | None:
    """A network's pass beside its calls measured alone; None if the time of one is not known."""
    times = {row.operation_id: alone(Operation.from_json(row.spec), pass_) for row in traced.operations}
    of_calls = [known for call in traced.calls if (known := times[call.operation_id]) is not None]
    with torch.inference_mode(pass_ != TRAINING):
        built = build_network(network, device, pass_=pass_, training=TrainingConfig())
        host = _issued(built.call, device)
        device_s = device_time_s(built.call)
    if host is None or len(of_calls) < len(traced.calls):
        return None
    works = {row.operation_id for row in traced.operations if row.device_work}
    working_s = [
        known.device_s for call, known in zip(traced.calls, of_calls, strict=True) if call.operation_id in works
    ]
    known_s = [seconds for seconds in working_s if seconds is not None]
    return _Whole(
        modules=traced.network.module_calls,
        forward_calls=sum(call.phase in (FORWARD, LOSS) for call in traced.calls),
        device_calls=len(working_s),
        host_s=host.value,
        host_beyond_s=host.value - sum(known.host_s for known in of_calls),
        device_beyond_s=device_s - sum(known_s) if device_s is not None and len(known_s) == len(working_s) else None,
    )


def _chain(x: torch.Tensor, length: int) -> torch.Tensor:
    for _ in range(length):
        x = torch.mul(x, 1.0)
    return x


def _backward(end: torch.Tensor, leaf: torch.Tensor, gradient: torch.Tensor) -> Issue:
    """The same backward pass, again and again."""
    return lambda: torch.autograd.grad(end, leaf, gradient, retain_graph=True)


def _issued(issue: Issue, device: torch.device, each: int = 1) -> Estimate | None:
    """Time on the host of one of the `each` equal parts of `issue`, which is called back to back."""
    for _ in range(_WARM):
        issue()
    times = []
    for _ in range(_REPEATS):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        issue()  # the first one after a wait finds threads asleep
        start = time.perf_counter()
        for _ in range(_IN_A_ROW):
            issue()
        times.append((time.perf_counter() - start) / (_IN_A_ROW * each))
    return median_estimate(times)
