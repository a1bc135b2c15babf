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

_FOR_HOST = [
    NetworkConfig(name=name, input=[1, 3, 64, 64])
    for name in ("mobilenet_v3_small", "shufflenet_v2_x0_5", f"{__name__}:small_transformer")
]
"""Many modules to a call, many calls to a module, and both: too small to keep any device busy."""

_FOR_DEVICE = [
    NetworkConfig(name=name, input=[32, 3, 224, 224])
    for name in ("mobilenet_v3_small", "resnet34", f"{__name__}:tiny_transformer")
]
"""Of usual size: how long a kernel waits for what others have left in the caches depends on it."""

_ROUNDS = 2
"""Far enough apart that what disturbs the host for a second shows."""

Issue = Callable[[], object]


@dataclass(frozen=True)
class CallTimer:
    """Measures the times in s of what a call or a pass consists of; None where it cannot.

    Attributes
    ----------
    host_s, device_s
        Of an operation's call among others of a pass.
    pass_device_s
        Device time of a network's pass.
    """

    host_s: Callable[[Operation, Pass], float | None]
    device_s: Callable[[Operation, Pass], float | None]
    pass_device_s: Callable[[Issue], float | None]


@dataclass(frozen=True)
class _HostPass:
    """A pass of a network on the host, and what of its time in s is not that of its calls."""

    modules: int
    forward_calls: int
    host_s: float
    beyond_s: float


Costs = dict[tuple[str, str | None], Estimate | None]


def call_costs(device: torch.device, timer: CallTimer) -> Costs:
    """Times in s of calls that follow each other, as in a network's pass, and of what a network adds to them.

    What a backward node costs is the slope of the time of a backward pass over its length; what a pass costs beyond
    that is its start.

    Parameters
    ----------
    device
        Where the tiny tensors live.
    timer
        Measures single operations and passes.
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
        found = [
            _host_pass(network, rows, device, pass_, timer) for network, rows in _traced(_FOR_HOST, pass_) * _ROUNDS
        ]
        known = [one for one in found if one is not None]
        costs[HOST_PER_MODULE, pass_], costs[HOST_ADDED_PER_CALL, pass_] = _host_added(known, once_s)
        added = [_device_added(network, rows, device, pass_, timer) for network, rows in _traced(_FOR_DEVICE, pass_)]
        costs[DEVICE_ADDED_PER_CALL, pass_] = mean_estimate([one for one in added if one is not None])
    return costs


def small_transformer() -> torch.nn.Module:
    """A vision transformer of usual depth and negligible width."""
    import torchvision  # only to calibrate: it takes longer to import than torch

    network: torch.nn.Module = torchvision.models.VisionTransformer(
        image_size=64, patch_size=32, num_layers=12, num_heads=2, hidden_dim=16, mlp_dim=32
    )
    return network


def tiny_transformer() -> torch.nn.Module:
    """ViT-Ti/16 (Touvron et al., 2021)."""
    import torchvision

    network: torch.nn.Module = torchvision.models.VisionTransformer(
        image_size=224, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768
    )
    return network


def _traced(networks: list[NetworkConfig], pass_: Pass) -> list[tuple[NetworkConfig, Traced]]:
    return [(network, trace_rows(network, pass_, TrainingConfig())) for network in networks]


def _host_added(passes: list[_HostPass], once_s: float) -> tuple[Estimate | None, Estimate | None]:
    """What entering a module costs, and what a call takes longer in a network than in a loop of its own.

    A call that is measured alone runs from warm caches, which in a network it does not, and modules call it through
    layers of Python. Least squares of what passes of whole networks take beyond the sum of their calls and `once_s`,
    relative to the pass, neither cost below zero; errors from what is left.
    """
    if len(passes) <= 2:  # two costs are sought
        return None, None
    pass_s = np.array([one.host_s for one in passes])
    counts = np.array([[one.modules, one.forward_calls] for one in passes]) / pass_s[:, None]
    beyond = (np.array([one.beyond_s for one in passes]) - once_s) / pass_s
    found, _ = nnls(counts, beyond)
    left = beyond - counts @ found
    variance = float(left @ left) / (len(passes) - 2)
    errors = np.sqrt(np.diag(np.linalg.inv(counts.T @ counts)) * variance)
    module_s, added_s = (
        Estimate(float(cost), float(error), len(passes)) for cost, error in zip(found, errors, strict=True)
    )
    return module_s, added_s


def _host_pass(
    network: NetworkConfig, traced: Traced, device: torch.device, pass_: Pass, timer: CallTimer
) -> _HostPass | None:
    """A network's pass on the host beside its calls alone; None if the time of one is not known."""
    alone = {row.operation_id: timer.host_s(Operation.from_json(row.spec), pass_) for row in traced.operations}
    times = [seconds for call in traced.calls if (seconds := alone[call.operation_id]) is not None]
    with torch.inference_mode(pass_ != TRAINING):
        whole = _issued(build_network(network, device, pass_=pass_, training=TrainingConfig()).call, device)
    if whole is None or len(times) < len(traced.calls):
        return None
    forward = sum(call.phase in (FORWARD, LOSS) for call in traced.calls)
    return _HostPass(traced.network.module_calls, forward, whole.value, whole.value - sum(times))


def _device_added(
    network: NetworkConfig, traced: Traced, device: torch.device, pass_: Pass, timer: CallTimer
) -> float | None:
    """What a call takes longer on the device among others than after itself; None if the time of one is not known.

    Every kernel follows a different one, and finds other data in the caches.
    """
    works = [row for row in traced.operations if row.device_work]
    alone = {row.operation_id: timer.device_s(Operation.from_json(row.spec), pass_) for row in works}
    calls = [call for call in traced.calls if call.operation_id in alone]
    times = [seconds for call in calls if (seconds := alone[call.operation_id]) is not None]
    with torch.inference_mode(pass_ != TRAINING):
        whole_s = timer.pass_device_s(build_network(network, device, pass_=pass_, training=TrainingConfig()).call)
    return (whole_s - sum(times)) / len(calls) if whole_s is not None and len(times) == len(calls) else None


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
