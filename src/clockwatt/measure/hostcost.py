"""What calls, modules and backward passes cost the host, in PyTorch on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from clockwatt.measure.bench import HOST_PER_BACKWARD_CALL, HOST_PER_BACKWARD_NODE, HOST_PER_CALL, HOST_PER_MODULE
from clockwatt.measure.statistics import Estimate, median_estimate
from clockwatt.records import INFERENCE, TRAINING

_REPEATS = 30
_SHORT, _LONG = 20, 120
_CHANNELS = 8

Chain = Callable[[int], Callable[[], float]]
"""Gives, for a length, a function that issues a chain of that length and returns the seconds it took."""


@dataclass(frozen=True)
class _Line:
    """Seconds that a chain takes to issue: `start_s` and `each_s` per link."""

    start_s: Estimate | None
    each_s: Estimate | None


def host_costs(device: torch.device) -> dict[tuple[str, str | None], Estimate | None]:
    """Host times in s, from the time to issue short and long chains of tiny operations.

    The slope is what a call or a backward node costs; what a chain of backward nodes costs beyond that is the start of
    a backward pass. A module costs what its call takes beyond that of the function it calls: the mean of four common
    ones.

    Parameters
    ----------
    device
        Where the tiny tensors of the chains live.
    """
    x = torch.ones(_CHANNELS, device=device)
    leaf = torch.ones(_CHANNELS, device=device, requires_grad=True)

    def calls(length: int) -> Callable[[], float]:
        return lambda: _timed(lambda: _chain(x, length), device)

    def backward(length: int) -> Callable[[], float]:
        def run() -> float:
            end, gradient = _chain(leaf, length), torch.ones_like(leaf)
            return _timed(lambda: torch.autograd.grad(end, leaf, gradient), device)

        return run

    def both(length: int) -> Callable[[], float]:
        gradient = torch.ones_like(leaf)
        return lambda: _timed(lambda: torch.autograd.grad(_chain(leaf, length), leaf, gradient), device)

    with torch.inference_mode():
        inference, module_s = _line(calls), _module_cost(device)
    nodes = _line(backward)
    return {
        (HOST_PER_CALL, INFERENCE): inference.each_s,
        (HOST_PER_CALL, TRAINING): _line(both).each_s,
        (HOST_PER_MODULE, None): module_s,
        (HOST_PER_BACKWARD_NODE, None): nodes.each_s,
        (HOST_PER_BACKWARD_CALL, None): nodes.start_s,
    }


def _module_cost(device: torch.device) -> Estimate | None:
    """Mean over common modules of the time of their call less that of the function they call."""
    functional = torch.nn.functional
    image = torch.ones(1, _CHANNELS, 4, 4, device=device)
    convolution = torch.nn.Conv2d(_CHANNELS, _CHANNELS, 1, device=device).eval()
    norm = torch.nn.BatchNorm2d(_CHANNELS, device=device).eval()
    linear = torch.nn.Linear(_CHANNELS, _CHANNELS, device=device).eval()
    relu, row = torch.nn.ReLU(), image[:, :, 0, 0]
    # looked up once: finding a parameter is part of what a module costs
    kernel, bias = convolution.weight, convolution.bias
    mean, variance, scale, shift = norm.running_mean, norm.running_var, norm.weight, norm.bias
    weight, offset = linear.weight, linear.bias
    pairs: list[tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = [
        (
            lambda: convolution(image),
            lambda: functional.conv2d(image, kernel, bias),
        ),
        (
            lambda: norm(image),
            lambda: functional.batch_norm(image, mean, variance, scale, shift),
        ),
        (lambda: linear(row), lambda: functional.linear(row, weight, offset)),
        (lambda: relu(image), lambda: functional.relu(image)),
    ]
    slopes = [
        (_line(_repeated(module, device)).each_s, _line(_repeated(function, device)).each_s)
        for module, function in pairs
    ]
    costs = [
        module.value - function.value for module, function in slopes if module is not None and function is not None
    ]
    return Estimate(float(np.mean(costs)), float(np.std(costs) / np.sqrt(len(costs))), len(costs)) if costs else None


def _repeated(function: Callable[[], torch.Tensor], device: torch.device) -> Chain:
    def chain(length: int) -> Callable[[], float]:
        def issue() -> None:
            for _ in range(length):
                function()

        return lambda: _timed(issue, device)

    return chain


def _chain(x: torch.Tensor, length: int) -> torch.Tensor:
    for _ in range(length):
        x = torch.mul(x, 1.0)
    return x


def _timed(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _line(chain: Chain) -> _Line:
    short, long = chain(_SHORT), chain(_LONG)
    short(), long()
    times = np.array([(short(), long()) for _ in range(_REPEATS)])
    each = (times[:, 1] - times[:, 0]) / (_LONG - _SHORT)
    return _Line(median_estimate(times[:, 0] - _SHORT * each), median_estimate(each))
