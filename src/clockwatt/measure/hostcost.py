"""What calls, modules and backward passes cost the host, in PyTorch on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.optimize import nnls

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.measure.bench import (
    HOST_ADDED_PER_CALL,
    HOST_PER_BACKWARD_CALL,
    HOST_PER_BACKWARD_NODE,
    HOST_PER_CALL,
    HOST_PER_MODULE,
)
from clockwatt.measure.statistics import Estimate, median_estimate
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

Issue = Callable[[], object]
HostTime = Callable[[Operation, str], float | None]
Costs = dict[tuple[str, str | None], Estimate | None]


def host_costs(device: torch.device, host_time_s: HostTime) -> Costs:
    """Host times in s of calls that follow each other, as in a network's pass, and of what a network adds to them.

    What a backward node costs is the slope of the time of a backward pass over its length; what a pass costs beyond
    that is its start.

    Parameters
    ----------
    device
        Where the tiny tensors live.
    host_time_s
        Host time of an operation's call among others of a pass, as it is measured; None where it cannot be.
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
        module_s, added_s = _network_costs(device, pass_, host_time_s, once_s)
        costs[HOST_PER_MODULE, pass_], costs[HOST_ADDED_PER_CALL, pass_] = module_s, added_s
    return costs


def small_transformer() -> torch.nn.Module:
    """A vision transformer of usual depth and negligible width."""
    import torchvision  # only to calibrate: it takes longer to import than torch

    network: torch.nn.Module = torchvision.models.VisionTransformer(
        image_size=64, patch_size=32, num_layers=12, num_heads=2, hidden_dim=16, mlp_dim=32
    )
    return network


def _network_costs(
    device: torch.device, pass_: Pass, host_time_s: HostTime, once_s: float
) -> tuple[Estimate | None, Estimate | None]:
    """What entering a module costs, and what a call takes longer in a network than in a loop of its own.

    A call that is measured alone runs from warm caches, which in a network it does not, and modules call it through
    layers of Python. Least squares of what passes of whole networks take beyond the sum of their calls, relative to the
    pass, neither cost below zero; errors from what is left.
    """
    traced = {network.name: trace_rows(network, pass_, TrainingConfig()) for network in _NETWORKS}
    parts = [
        part
        for _ in range(_ROUNDS)
        for network in _NETWORKS
        for part in _beyond_calls(network, traced[network.name], device, pass_, host_time_s)
    ]
    if len(parts) <= 2:  # two costs are sought
        return None, None
    modules, calls, pass_s, beyond_s = np.array(parts).T
    counts = np.column_stack([modules, calls]) / pass_s[:, None]
    found, _ = nnls(counts, (beyond_s - once_s) / pass_s)
    left = (beyond_s - once_s) / pass_s - counts @ found
    variance = float(left @ left) / (len(parts) - 2)
    errors = np.sqrt(np.diag(np.linalg.inv(counts.T @ counts)) * variance)
    module_s, added_s = (
        Estimate(float(cost), float(error), len(parts)) for cost, error in zip(found, errors, strict=True)
    )
    return module_s, added_s


def _beyond_calls(
    network: NetworkConfig, traced: Traced, device: torch.device, pass_: Pass, host_time_s: HostTime
) -> Iterator[tuple[float, float, float, float]]:
    """A network's module calls, forward calls, host time of a pass, and what of that is not its calls'.

    Nothing if the time of a call is not known.
    """
    alone = {row.operation_id: host_time_s(Operation.from_json(row.spec), pass_) for row in traced.operations}
    times = [alone[call.operation_id] for call in traced.calls]
    known = [seconds for seconds in times if seconds is not None]
    with torch.inference_mode(pass_ != TRAINING):
        built = build_network(network, device, pass_=pass_, training=TrainingConfig())
        whole = _issued(built.call, device)
    if whole is not None and len(known) == len(times):
        forward = sum(call.phase in (FORWARD, LOSS) for call in traced.calls)
        yield traced.network.module_calls, forward, whole.value, whole.value - sum(known)


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
