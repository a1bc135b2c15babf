"""Write the shipped profile of links between H100: links as calibrated, costs of the host fitted to measured steps.

    python benchmarks/links_h100.py [--left-out FOLDER]

`calibrate --links` measured the links of the host on which `parallel_truth.py` then measured steps. Costs of DDP and
FSDP2 are fitted to steps that take longer than the device alone: two for each strategy. `--left-out` writes a profile
for each network instead, which is fitted without it.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from clockwatt.io.resources import resource
from clockwatt.predict.parallel.links import LinkProfile
from clockwatt.schema.links import HOST_COSTS

DATA = Path(__file__).parent / "parallel"
BUFFERS = {"resnet50": 159, "efficientnet_b0": 147}
COSTS: dict[str, tuple[tuple[str, str], Callable[[dict[str, Any]], float]]] = {
    "ddp": (("ddp_parameter_s", "ddp_buffer_s"), lambda line: BUFFERS.get(line["network"], 0)),
    "fsdp": (("fsdp_parameter_s", "fsdp_group_s"), lambda line: kernels(line, "ReduceScatter") - 1),
}
"""Costs of a strategy that are fitted: for each parameter, and for each buffer or block."""
HOST_BOUND = 1.02
"""Times over device time from which on the host counts as the bottleneck."""
ORIGIN = (
    "Measured on 2 NVIDIA H100 80GB HBM3 of one host, 2026-11-25. Costs of the host: fitted to training steps of ten "
    "networks there."
)


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--left-out", type=Path)
    folder = parser.parse_args().left_out
    lines = [json.loads(line) for line in (DATA / "measured-h100.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = {(line["network"], line["strategy"]): line for line in lines if line["kind"] == "step"}
    blind = json.loads((DATA / "predicted-h100.json").read_text(encoding="utf-8"))["cases"]
    device_s = {(case["network"], case["strategy"]): case["device_s"] for case in blind}
    profile = replace(LinkProfile.read(DATA / "links-h100.json"), origin=ORIGIN, rows=())
    if folder is None:
        replace(profile, host_costs=fitted(steps, device_s, "")).write(resource("links/h100-nvlink.json"))
        return
    folder.mkdir(parents=True, exist_ok=True)
    for network in {name for name, _ in steps}:
        replace(profile, host_costs=fitted(steps, device_s, network)).write(folder / f"{network}.json")


def fitted(steps: dict[Any, Any], device_s: dict[Any, float], left_out: str) -> dict[str, float]:
    """Return the costs of the host, in s, without one network: those that least relative errors of steps need."""
    costs = dict.fromkeys(HOST_COSTS, 0.0)
    for strategy, (names, count) in COSTS.items():
        counts, added = [], []
        for (network, own), line in steps.items():
            time_s, single = line["time_s"], steps[network, "one"]
            if own == strategy and network != left_out and time_s > HOST_BOUND * device_s[network, own]:
                host_s = min(single["ranks"][0]["issue_s"], single["time_s"])
                counts.append([line["ranks"][0]["parameters"] / time_s, count(line) / time_s])
                added.append(max(0.0, 1 - host_s / time_s))
        found, _ = nnls(np.array(counts), np.array(added))
        costs |= dict(zip(names, map(float, found), strict=True))
    print(left_out or "all", {name: float(f"{1e6 * cost:.3g}") for name, cost in costs.items() if cost}, "µs")
    return costs


def kernels(line: dict[str, Any], kind: str) -> float:
    """Return how many kernels of NCCL of one kind a step has."""
    kinds = line["ranks"][0]["profile"]["kinds"]
    return sum(number for name, (number, _) in kinds.items() if kind in name)


if __name__ == "__main__":
    main()
