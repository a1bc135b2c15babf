"""Run batches a little below and above the predicted largest one on this machine's GPU.

python benchmarks/memory_gpu.py                       # about 1 minute on an H100 or H200
python benchmarks/memory_gpu.py --device cpu          # only tries whether it runs: small batches
"""

from __future__ import annotations

import argparse
from typing import Any

import result_file
import torch

import clockwatt
from clockwatt.config import TrainingConfig
from clockwatt.gpu.specs import find_spec
from clockwatt.measure.fit_memory import run_pass
from clockwatt.predict.fit_memory import fit_memory
from clockwatt.predict.memory import CONTEXT_BYTES
from clockwatt.predict.request import Request

LARGEST = (("resnet50", "training"), ("vit_b_16", "training"), ("convnext_tiny", "training"), ("resnet50", "inference"))
BELOW, ABOVE = 0.97, 1.03
"""Sizes relative to the predicted largest that should run, and should not."""


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
    """Try the largest batches, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = torch.device(parser.parse_args().device)
    on_gpu = device.type == "cuda"
    gpu = torch.cuda.get_device_name(device) if on_gpu else "h200"
    rows = [largest(name, pass_, device, gpu) for name, pass_ in LARGEST[: None if on_gpu else 1]]
    for row in rows:
        print(*row, flush=True)
    if not on_gpu:
        return
    right = sum(row[5] for row in rows) + sum(not row[6] for row in rows)
    result_file.write(
        "memory", "Largest batch that fits",
        ["network", "pass", "largest, predicted", "a little less", "a little more", "less fits", "more fits"], rows,
        targets=[result_file.target("largest batch foreseen", 100 * right / (2 * len(rows)), at_least=99, unit="%")],
    )  # fmt: skip


if __name__ == "__main__":
    main()
