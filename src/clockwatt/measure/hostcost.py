"""What calls, modules and backward passes cost the host, in PyTorch on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from clockwatt.measure.bench import HOST_PER_BACKWARD_CALL, HOST_PER_BACKWARD_NODE, HOST_PER_CALL, HOST_PER_MODULE
from clockwatt.measure.statistics import Estimate, median_estimate
from clockwatt.records import INFERENCE, TRAINING

_REPEATS, _WARM = 30, 3
_IN_A_ROW = 4
_SHORT, _LONG = 2, 60
_BLOCKS = 20
_CHANNELS = 8

Pass = Callable[[], object]


def host_costs(device: torch.device) -> dict[tuple[str, str | None], Estimate | None]:
    """Host times in s, all of calls that follow each other, as in a network's pass.

    What a backward node costs is the slope of the time of a backward pass over its length; what a pass costs beyond
    that is its start. A module costs what a pass of many different ones takes beyond the functions that they call: an
    operation that is measured alone runs from a warm cache, which in a network it does not.

    Parameters
    ----------
    device
        Where the tiny tensors live.
    """
    x = torch.ones(_CHANNELS, device=device)
    leaf = torch.ones(_CHANNELS, device=device, requires_grad=True)
    gradient = torch.ones_like(leaf)
    with torch.inference_mode():
        call_s = _issued(lambda: _chain(x, _LONG), device, each=_LONG)
        module_s = _module_cost(device)
    training_s = _issued(lambda: torch.autograd.grad(_chain(leaf, _LONG), leaf, gradient), device, each=_LONG)
    short, long = (_issued(_backward(_chain(leaf, length), leaf, gradient), device) for length in (_SHORT, _LONG))
    node_s = start_s = None
    if short is not None and long is not None:
        slope_s = (long.value - short.value) / (_LONG - _SHORT)
        error_s = float(np.hypot(short.standard_error, long.standard_error)) / (_LONG - _SHORT)
        node_s = Estimate(slope_s, error_s, long.samples)
        start_s = Estimate(short.value - _SHORT * slope_s, short.standard_error + _SHORT * error_s, short.samples)
    return {
        (HOST_PER_CALL, INFERENCE): call_s,
        (HOST_PER_CALL, TRAINING): training_s,
        (HOST_PER_MODULE, None): module_s,
        (HOST_PER_BACKWARD_NODE, None): node_s,
        (HOST_PER_BACKWARD_CALL, None): start_s,
    }


def _module_cost(device: torch.device) -> Estimate | None:
    """What entering a module costs: a pass of many less the functions that they call, over the modules entered."""
    functional = torch.nn.functional
    image = torch.ones(1, _CHANNELS, 4, 4, device=device)
    convolutions = [torch.nn.Conv2d(_CHANNELS, _CHANNELS, 1, device=device) for _ in range(_BLOCKS)]
    norms = [torch.nn.BatchNorm2d(_CHANNELS, device=device) for _ in range(_BLOCKS)]
    blocks = (torch.nn.Sequential(*pair, torch.nn.ReLU()) for pair in zip(convolutions, norms, strict=True))
    network = torch.nn.Sequential(*blocks).eval()
    kernel, bias, norm = convolutions[0].weight, convolutions[0].bias, norms[0]
    mean, variance, scale, shift = norm.running_mean, norm.running_var, norm.weight, norm.bias
    functions: list[Pass] = [
        lambda: functional.conv2d(image, kernel, bias),
        lambda: functional.batch_norm(image, mean, variance, scale, shift),
        lambda: functional.relu(image),
    ]
    whole = _issued(lambda: network(image), device)
    alone = [_issued(lambda f=f: [f() for _ in range(_LONG)], device, each=_LONG) for f in functions]  # type: ignore[misc]
    if whole is None or None in alone:
        return None
    modules = sum(1 for _ in network.modules())
    apart = sum(part.value for part in alone if part is not None) * _BLOCKS
    return Estimate((whole.value - apart) / modules, whole.standard_error / modules, whole.samples)


def _chain(x: torch.Tensor, length: int) -> torch.Tensor:
    for _ in range(length):
        x = torch.mul(x, 1.0)
    return x


def _backward(end: torch.Tensor, leaf: torch.Tensor, gradient: torch.Tensor) -> Pass:
    """The same backward pass, again and again."""
    return lambda: torch.autograd.grad(end, leaf, gradient, retain_graph=True)


def _issued(issue: Pass, device: torch.device, each: int = 1) -> Estimate | None:
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
