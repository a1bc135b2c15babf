"""Compare predicted with measured memory on this machine's GPU: allocated, reserved, and the largest batch.

python benchmarks/memory_gpu.py [--seconds 170]       # about 3 minutes on an H100 or H200
python benchmarks/memory_gpu.py --device cpu          # only tries whether it runs: small batches, no peaks
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import result_file
import torch

import clockwatt
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.gpu.specs import find_spec
from clockwatt.measure.fit_memory import run_pass
from clockwatt.operations.trace.memory import record_memory
from clockwatt.predict.fit_memory import fit_memory
from clockwatt.predict.memory.estimate import CONTEXT_BYTES, pass_memory
from clockwatt.predict.request import Request

IMAGES = {
    "resnet50": 64, "vit_b_16": 64, "convnext_tiny": 64, "efficientnet_v2_s": 64, "densenet121": 64, "vgg16": 64,
    "swin_t": 64, "regnet_y_8gf": 32, "mobilenet_v3_large": 128, "fcn_resnet50": 8,
}  # fmt: skip
"""torchvision networks and their batch sizes."""
PRECISIONS = ("tf32-conv", "bf16", "bf16-mixed")
LARGEST = (("resnet50", "training"), ("vit_b_16", "training"), ("convnext_tiny", "training"), ("resnet50", "inference"))
BELOW, ABOVE = 0.97, 1.03
"""Sizes relative to the predicted largest that should run, and should not."""


def compared(name: str, batch: int, pass_: str, precision: str, device: torch.device, gpu: str) -> list[Any]:
    """Run one pass and return it with measured and predicted memory, in MiB."""
    network = NetworkConfig(name=name, input=[batch, 3, 224, 224], precision=precision)
    run = run_pass(network, pass_, TrainingConfig(), device)
    events = record_memory(network, pass_, TrainingConfig())
    memory = pass_memory(events, pass_=pass_, execution=network.execution[0], spec=find_spec(gpu))
    pairs = ((run.allocated_bytes, memory.allocated_bytes), (run.reserved_bytes, memory.reserved_bytes))
    sizes = [round(size / 2**20, 1) for pair in pairs for size in pair]
    errors = [f"{100 * (predicted / actual - 1):+.1f}" if actual else "" for actual, predicted in pairs]
    return [name, pass_, precision, batch, *sizes, *errors, run.fits, memory.fits]


def largest(name: str, pass_: str, device: torch.device, gpu: str) -> list[Any]:
    """Run a little below and above the predicted largest batch; return both and whether they fit."""
    request = Request.of(network=name, inputs=("1,3,224,224",), gpus=(gpu,), pass_=pass_)
    other = 0
    if device.type == "cuda":
        torch.cuda.empty_cache()
        other = max(0, find_spec(gpu).memory_bytes - torch.cuda.mem_get_info(device)[0] - CONTEXT_BYTES)
    predicted, sized = fit_memory(clockwatt.load(), request, "batch", other_bytes=other)
    sizes = [int(BELOW * predicted.size), int(ABOVE * predicted.size) + 1]
    if device.type == "cpu":
        sizes = [1, 2]
    fits = [run_pass(sized(size), pass_, TrainingConfig(), device).fits for size in sizes]
    return [name, pass_, predicted.size, *sizes, *fits]


def main() -> None:
    """Measure until the time is over, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    device, ends = torch.device(arguments.device), time.monotonic() + arguments.seconds
    on_gpu = device.type == "cuda"
    gpu = torch.cuda.get_device_name(device) if on_gpu else "h200"
    bounds = [largest(name, pass_, device, gpu) for name, pass_ in LARGEST[: None if on_gpu else 1]]
    for row in bounds:
        print(*row, flush=True)
    rows: list[list[Any]] = []
    for precision in PRECISIONS:
        for pass_ in ("training", "inference"):
            for name, batch in list(IMAGES.items())[: None if on_gpu else 1]:
                if time.monotonic() < ends:
                    rows.append(compared(name, batch if on_gpu else 1, pass_, precision, device, gpu))
                    print(*rows[-1], flush=True)
    if not on_gpu:
        return
    allocated, reserved = (np.abs([float(row[place]) for row in rows]) for place in (8, 9))
    right = sum(row[5] for row in bounds) + sum(not row[6] for row in bounds)
    columns = ["network", "pass", "precision", "batch", "allocated MiB", "predicted", "reserved MiB", "predicted",
               "error %", "error %", "fits", "predicted"]  # fmt: skip
    result_file.write(
        "memory", "Memory of passes on a GPU", columns, rows,
        targets=[
            result_file.target("allocated on a GPU, median", float(np.median(allocated)), at_most=2, unit="%"),
            result_file.target("reserved, median", float(np.median(reserved)), at_most=4, unit="%"),
            result_file.target("reserved, 95th", float(np.quantile(reserved, 0.95)), at_most=10, unit="%"),
        ],
        notes=[f"{right} of {2 * len(bounds)} batches just below and above the largest were foreseen: {bounds}."],
    )  # fmt: skip


if __name__ == "__main__":
    main()
