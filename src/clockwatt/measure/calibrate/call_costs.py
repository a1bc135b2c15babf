"""Measure the costs of calls, modules and backward passes that single operations do not show."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.measure.calibrate.module_costs import COSTS, module_and_call_costs
from clockwatt.measure.statistics import Estimate, mean_estimate, median_estimate
from clockwatt.operations.catalogue import trace_rows
from clockwatt.operations.constructors import torchvision_models
from clockwatt.operations.networks import build_network
from clockwatt.operations.spec.operation import Operation
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import FORWARD, INFERENCE, LOSS, TRAINING

_REPEATS, _WARM = 30, 3
_IN_A_ROW = 4
_SHORT, _LONG = 2, 60
_ELEMENTS = 8

NETWORKS = [
    NetworkConfig(name=name, input=[32, 3, 224, 224])
    for name in ("mobilenet_v3_small", "resnet34", "squeezenet1_0", f"{__name__}:tiny_transformer")
]
"""Many modules to a call, and few. Of usual size: in small ones memory is found sooner, and caches hold more."""

Issue = Callable[[], object]


@dataclass(frozen=True)
class CallTimer:
    """Measures the times in s of what a call or a pass consists of; None where it cannot.

    Attributes
    ----------
    host_s, device_s
        Host and device time of an operation's call among others of a pass.
    pass_s
        Time of a network's pass, on the host and on the device.
    """

    host_s: Callable[[Operation, Pass], float | None]
    device_s: Callable[[Operation, Pass], float | None]
    pass_s: Callable[[Issue], tuple[float, float] | None]


@dataclass(frozen=True)
class _WholePass:
    """A pass of a network, and what of its times in s is not its calls'; None where one of those is not known."""

    modules: int
    forward_calls: int
    device_calls: int
    host_s: float
    host_overhead_s: float | None
    device_overhead_s: float | None


Costs = dict[tuple[str, str | None], Estimate | None]


def call_costs(device: torch.device, timer: CallTimer) -> Costs:
    """Times in s of calls that follow each other, as in a network's pass, and of what a network adds to them.

    The start of a backward pass is what it takes beyond its nodes, whose cost is the slope of its time over its length.

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
    start_s = None
    if short is not None and long is not None:
        slope_s = (long.value - short.value) / (_LONG - _SHORT)
        error_s = float(np.hypot(short.standard_error, long.standard_error)) / (_LONG - _SHORT)
        start_s = Estimate(short.value - _SHORT * slope_s, short.standard_error + _SHORT * error_s, short.samples)
    costs: Costs = {
        (CalibrationQuantity.HOST_PER_CALL, INFERENCE): call_s,
        (CalibrationQuantity.HOST_PER_CALL, TRAINING): training_s,
        (CalibrationQuantity.HOST_PER_BACKWARD_CALL, None): start_s,
    }
    passes: list[tuple[Pass, float]] = [("inference", 0.0), ("training", start_s.value if start_s else 0.0)]
    for pass_, once_s in passes:
        found = [_pass_or_none(network, device, pass_, timer) for network in NETWORKS]
        known = [one for one in found if one is not None]
        costs[CalibrationQuantity.HOST_PER_MODULE, pass_], costs[CalibrationQuantity.HOST_ADDED_PER_CALL, pass_] = (
            _host_overhead(known, once_s)
        )
        costs[CalibrationQuantity.DEVICE_ADDED_PER_CALL, pass_] = _device_overhead(known)
    return costs


def tiny_transformer() -> torch.nn.Module:
    """Build ViT-Ti/16 (Touvron et al., 2021)."""
    network: torch.nn.Module = torchvision_models().VisionTransformer(
        image_size=224, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768
    )
    return network


def _pass_or_none(network: NetworkConfig, device: torch.device, pass_: Pass, timer: CallTimer) -> _WholePass | None:
    """Run `_pass_of` and free its memory; None also where the device has too little memory."""
    try:
        return _pass_of(network, device, pass_, timer)
    except torch.OutOfMemoryError:
        return None
    finally:
        if device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


def _pass_of(network: NetworkConfig, device: torch.device, pass_: Pass, timer: CallTimer) -> _WholePass | None:
    """Return a network's pass beside its calls alone; None if it cannot be timed."""
    traced = trace_rows(network, pass_, TrainingConfig())
    operations = {row.operation_id: Operation.from_json(row.spec) for row in traced.operations}
    works = {row.operation_id for row in traced.operations if row.device_work}
    with torch.inference_mode(pass_ != TRAINING):
        whole = timer.pass_s(build_network(network, device, pass_=pass_, training=TrainingConfig()).call)
    if whole is None:
        return None
    host_s, device_s = whole
    calls = [call.operation_id for call in traced.calls]
    device_calls = [name for name in calls if name in works]
    on_host = {name: timer.host_s(operation, pass_) for name, operation in operations.items()}
    on_device = {name: timer.device_s(operations[name], pass_) for name in works}
    return _WholePass(
        modules=traced.network.module_calls,
        forward_calls=sum(call.phase in (FORWARD, LOSS) for call in traced.calls),
        device_calls=len(device_calls),
        host_s=host_s,
        host_overhead_s=_overhead_of(host_s, calls, on_host),
        device_overhead_s=_overhead_of(device_s, device_calls, on_device),
    )


def _overhead_of(whole_s: float, calls: list[str], alone_s: Mapping[str, float | None]) -> float | None:
    """Return the time of a pass minus the sum of its calls; None if the time of one call is not known."""
    times = [seconds for name in calls if (seconds := alone_s[name]) is not None]
    return whole_s - sum(times) if len(times) == len(calls) else None


def _host_overhead(passes: list[_WholePass], once_s: float) -> tuple[Estimate | None, Estimate | None]:
    """Return the host time to enter a module, and the extra host time of a call in a network over one in a loop.

    A call that is measured alone runs from warm caches, which in a network it does not, and modules call it through
    layers of Python. Estimated from what passes of whole networks take more than the sum of their calls and `once_s`.
    """
    known = [(one, one.host_overhead_s - once_s) for one in passes if one.host_overhead_s is not None]
    if len(known) <= COSTS:
        return None, None
    of_passes = [(one.host_s, one.modules, one.forward_calls, overhead_s) for one, overhead_s in known]
    found, errors = module_and_call_costs(*np.array(of_passes, dtype=float).T)
    module_s, call_s = (
        Estimate(float(cost), float(error), len(known)) for cost, error in zip(found, errors, strict=True)
    )
    return module_s, call_s


def _device_overhead(passes: list[_WholePass]) -> Estimate | None:
    """Return the extra device time of a call among others over one repeated back to back.

    Every kernel follows a different one, and finds other data in the caches.
    """
    return mean_estimate(
        [one.device_overhead_s / one.device_calls for one in passes if one.device_overhead_s is not None]
    )


def _chain(x: torch.Tensor, length: int) -> torch.Tensor:
    for _ in range(length):
        x = torch.mul(x, 1.0)
    return x


def _backward(end: torch.Tensor, leaf: torch.Tensor, gradient: torch.Tensor) -> Issue:
    """Return the same backward pass, again and again."""
    return lambda: torch.autograd.grad(end, leaf, gradient, retain_graph=True)


def _issued(issue: Issue, device: torch.device, each: int = 1) -> Estimate | None:
    """Return the time on the host of one of the `each` equal parts of `issue`, which is called back to back."""
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
