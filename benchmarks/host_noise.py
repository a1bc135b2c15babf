"""How much a host-bound pass varies on one host: between moments, between processes, on one core and beside another.

    python benchmarks/host_noise.py measure FOLDER [--seconds 40] [--device cuda]
    python benchmarks/host_noise.py report FOLDER --hardware NAME

Each process measures the same small networks in turn, round after round: passes issued back to back for .12 s, and the
time of a loop of plain Python between them, which is the core's speed alone. Processes run free, held to one core, or
two at once. No prediction of pass time can be better than what is left between moments of one process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))  # modules of benchmarks are imported by their place in the checkout

from benchmarks import result_file

SLICE_S = 0.12
PASSES = 2
"""Passes that follow each other between two loops."""
SCENARIOS = {"free": 2, "one-core": 2, "beside-another": 1}
"""Scenario to its number of processes, one after another; `beside-another` runs two at once."""


def _passes(device: str) -> dict[str, Callable[[], None]]:
    """Networks whose passes a fast GPU finishes sooner than a host issues them."""
    import torch
    import torchvision

    def inference(network: torch.nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
        network = network.to(device).eval()
        inputs = inputs.to(device)

        def run() -> None:
            with torch.no_grad():
                network(inputs)

        return run

    def training(network: torch.nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
        network, inputs = network.to(device).train(), inputs.to(device)
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)

        def run() -> None:
            optimizer.zero_grad()
            network(inputs).float().sum().backward()
            optimizer.step()

        return run

    images, tokens = torch.randn(2, 3, 64, 64), torch.randn(2, 32, 128)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    models = torchvision.models
    return {
        "resnet18": inference(models.resnet18(), images),
        "mobilenet_v3_small": inference(models.mobilenet_v3_small(), images),
        "efficientnet_b0": inference(models.efficientnet_b0(), images),
        "encoder": inference(encoder, tokens),
        "resnet18 training": training(models.resnet18(), images),
        "mobilenet_v3_small training": training(models.mobilenet_v3_small(), images),
        "encoder training": training(encoder, tokens),
    }


def core_loop() -> float:
    """Return the time in s of a fixed loop of plain Python, the second of two: the first finds other things cached."""
    start = 0.0
    for _ in range(2):
        found: dict[int, int] = {}
        start = time.perf_counter()
        for number in range(1000):
            found[number & 63] = found.get(number & 63, 0) + number
    return time.perf_counter() - start


def _rounds(file: Path, seconds: float, device: str) -> None:
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    passes = _passes(device)
    for run in passes.values():
        for _ in range(20):
            run()
    rows: list[dict[str, Any]] = []
    begun_s = time.perf_counter()
    for number in range(10**6):
        if time.perf_counter() - begun_s > seconds:
            break
        for name, run in passes.items():
            wait()
            taken_s, loops_s = [], []
            while sum(taken_s) < SLICE_S:
                loops_s.append(core_loop())
                since_s = time.perf_counter()
                for _ in range(PASSES):
                    run()
                wait()
                taken_s.append(time.perf_counter() - since_s)
            rows.append({"round": number, "network": name, "time_s": sum(taken_s) / len(taken_s) / PASSES,
                         "core_loop_s": sum(loops_s) / len(loops_s)})  # fmt: skip
    pd.DataFrame(rows).to_csv(file, index=False)


def measure(output: Path, seconds: float, device: str) -> None:
    """Measure every scenario, a CSV for each process."""
    output.mkdir(parents=True, exist_ok=True)
    core = max(os.sched_getaffinity(0))
    for scenario, processes in SCENARIOS.items():
        for process in range(processes):
            pair = [("a", ["taskset", "-c", str(core)] if scenario == "one-core" else [])]
            pair += [("b", [])] if scenario == "beside-another" else []
            running = [
                subprocess.Popen([
                    *(*held, sys.executable, __file__, "rounds", str(output / f"{scenario}-{process}{one}.csv")),
                    *("--seconds", str(seconds), "--device", device),
                ])
                for one, held in pair
            ]  # fmt: skip
            if any(one.wait() for one in running):
                sys.exit(f"{scenario}: a process failed")


def main() -> None:
    """Measure or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "rounds", "report"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--hardware", default="", help="what it was measured on, for the report")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    if given.what == "report":
        report(given.path, given.hardware)
    elif given.what == "measure":
        measure(given.path, given.seconds, given.device)
    else:
        _rounds(given.path, given.seconds, given.device)


def report(folder: Path, gpu: str) -> None:
    """Write how far a pass is from itself a second later, and how much of that the speed of the core explains."""
    rows = pd.concat(
        [pd.read_csv(file).assign(scenario=file.stem[:-3], process=file.stem[-2:]) for file in folder.glob("*.csv")]
    )
    of_network = [rows[name] for name in ("scenario", "process", "network")]
    for name in ("time_s", "core_loop_s"):
        logs = np.log(rows[name])
        rows[name.removesuffix("_s")] = logs - logs.groupby(of_network).transform("mean")
    table = []
    for scenario in SCENARIOS:
        own = rows[rows["scenario"] == scenario].sort_values(["process", "network", "round"])
        exponent = float((own["time"] * own["core_loop"]).sum() / (own["core_loop"] ** 2).sum())
        known = own["time"] - exponent * own["core_loop"]
        steps = [one.groupby([own["process"], own["network"]]).diff().abs().dropna() for one in (own["time"], known)]
        slow_s, fast_s = own["core_loop_s"].quantile([0.95, 0.05])
        table.append([
            scenario.replace("-", " "), len(own), f"{slow_s / fast_s:.2f}", f"{exponent:.2f}",
            *(f"{np.expm1(one.median()):.1%} / {np.expm1(one.quantile(0.9)):.1%}" for one in steps),
        ])  # fmt: skip
    result_file.write(
        "unseen-networks", "Host-bound passes a second later, and the speed of the core",
        ["process", "moments", "core, slow over fast", "exponent", "a second later", "core's speed known"], table,
        hardware=gpu, notes=[
            "Seven small networks in turn, 0.12 s each. *A second later*: difference to the next turn, median / 90th.",
            "*Core*: 95 % over 5 % quantile of the time of a loop of plain Python between the passes.",
            "*Known*: the same, of times over a power of the loop's time. The exponent was fitted to the same moments.",
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
