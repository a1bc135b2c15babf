"""What a call, a module and a backward node cost the host, in PyTorch on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from clockwatt.measure.bench import HOST_PER_BACKWARD_NODE, HOST_PER_CALL, HOST_PER_MODULE
from clockwatt.measure.statistics import Estimate, median_estimate
from clockwatt.records import INFERENCE, TRAINING

_REPEATS = 30
_SHORT, _LONG = 20, 120
_ELEMENTS = 16


def host_costs(device: torch.device) -> dict[tuple[str, str | None], Estimate | None]:
    """Host times in s, each the slope between a short and a long chain, so that what both share drops out.

    Parameters
    ----------
    device
        Where the tiny tensors of the chains live.
    """
    x = torch.ones(_ELEMENTS, device=device)
    leaf = torch.ones(_ELEMENTS, device=device, requires_grad=True)

    def calls(length: int) -> Callable[[], float]:
        return lambda: _timed(lambda: _chain(x, length), device)

    def modules(length: int) -> Callable[[], float]:
        sequence = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(length)))
        return lambda: _timed(lambda: sequence(x), device)

    def nodes(length: int) -> Callable[[], float]:
        def backward() -> float:
            end = _chain(leaf, length).sum()
            return _timed(lambda: torch.autograd.grad(end, leaf), device)

        return backward

    def whole(length: int) -> Callable[[], float]:
        return lambda: _timed(lambda: torch.autograd.grad(_chain(leaf, length).sum(), leaf), device)

    with torch.inference_mode():
        inference, module = _slope(calls), _slope(modules)
    return {
        (HOST_PER_CALL, INFERENCE): inference,
        (HOST_PER_CALL, TRAINING): _slope(whole),
        (HOST_PER_MODULE, None): module,
        (HOST_PER_BACKWARD_NODE, None): _slope(nodes),
    }


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


def _slope(chain: Callable[[int], Callable[[], float]]) -> Estimate | None:
    short, long = chain(_SHORT), chain(_LONG)
    short(), long()
    return median_estimate([(long() - short()) / (_LONG - _SHORT) for _ in range(_REPEATS)])
