"""Whether a pass fits this machine's GPU, found by running it."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations import numerics
from clockwatt.operations.networks import build_network
from clockwatt.schema.records import TRAINING

_CALLS = 2
"""The first call of training creates the optimizer's state."""


@dataclass(frozen=True)
class Run:
    """A pass that was run on a GPU.

    Attributes
    ----------
    fits
        Whether it ran within the GPU's memory.
    allocated_bytes, reserved_bytes
        Most that PyTorch had allocated and reserved; what there was until memory ended if it does not fit.
    """

    fits: bool
    allocated_bytes: int
    reserved_bytes: int


def free_and_total_bytes(device: str) -> tuple[int, int]:
    """Return the memory of a GPU that no process holds, and all of it."""
    free, total = torch.cuda.mem_get_info(device)
    return int(free), int(total)


def run_pass(network: NetworkConfig, pass_: str, training: TrainingConfig, device: torch.device) -> Run:
    """Build a network on a device and run its pass; what it leaves behind is freed.

    Raises
    ------
    NetworkError
        If the network cannot be found or built.
    """
    on_gpu = device.type == "cuda"
    numerics.apply(network.execution[0])
    _free(device)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    try:
        _run(network, pass_, training, device)
        if on_gpu:
            torch.cuda.synchronize(device)
        fits = True
    except torch.OutOfMemoryError:
        fits = False
    peaks = (torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)) if on_gpu else (0, 0)
    _free(device)
    return Run(fits, *map(int, peaks))


def _run(network: NetworkConfig, pass_: str, training: TrainingConfig, device: torch.device) -> None:
    built = build_network(network, device, pass_=pass_, training=training)
    with torch.inference_mode(pass_ != TRAINING):
        for _ in range(_CALLS):
            built.call()


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
