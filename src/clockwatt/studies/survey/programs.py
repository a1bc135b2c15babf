"""Run one program on one GPU, step after step, and time its steps on request.

    python -m clockwatt.studies.survey.programs sgemm --seconds 5

It prints `ready` when it is warm, waits for a line, times its steps, and prints the median in seconds. It goes on until
its input is closed, so that programs beside it are disturbed to their end.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable

import torch

from clockwatt.config import CONDITION_PROGRAMS

_WARM_STEPS = 3


def step_of(name: str, device: str, scale: float) -> Callable[[], object]:
    """Return what a program does in each step.

    Parameters
    ----------
    name
        One of `CONDITION_PROGRAMS`.
    device
        Where it computes.
    scale
        Factor of its size; 1 for a GPU.
    """
    torch.manual_seed(0)
    if name == "sgemm":
        size = max(1, round(8192 * scale))
        a, b = torch.randn(2, size, size, device=device)
        return lambda: a @ b
    if name == "dlrm":
        batch, rows = max(2, round(16384 * scale)), max(2, round(1_000_000 * scale))
        tables = [torch.nn.EmbeddingBag(rows, 64, mode="sum", device=device) for _ in range(26)]
        top = torch.nn.Sequential(
            torch.nn.Linear(26 * 64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.ReLU(),
            torch.nn.Linear(256, 1),
        ).to(device)  # fmt: skip
        indices = torch.randint(rows, (26, batch, 4), device=device)
        return lambda: top(torch.cat([table(own) for table, own in zip(tables, indices, strict=True)], dim=1))
    if name == "bert":
        from clockwatt.operations.transformer_networks import bert_base

        bert, tokens = bert_base().to(device).eval(), torch.randint(30_000, (max(1, round(16 * scale)), 128))
        tokens = tokens.to(device)
        return lambda: bert(tokens)
    import torchvision

    network = torchvision.models.resnet50().to(device).eval()
    images = torch.randn(max(1, round(64 * scale)), 3, 224, 224, device=device)
    return lambda: network(images)


def main() -> None:
    """Run the program that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONDITION_PROGRAMS)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = step_of(options.name, device, options.scale)

    def seconds() -> float:
        began = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    with torch.inference_mode():
        for _ in range(_WARM_STEPS):
            seconds()
        print("ready", flush=True)
        sys.stdin.readline()
        ends, timed = time.perf_counter() + options.seconds, [seconds()]
        while time.perf_counter() < ends:
            timed.append(seconds())
        print(statistics.median(timed), flush=True)
        waiting = threading.Thread(target=sys.stdin.read, daemon=True)
        waiting.start()
        while waiting.is_alive():
            seconds()


if __name__ == "__main__":
    main()
