"""Write the shipped profile of links between H100: links as calibrated, costs of the host fitted to measured steps.

    python benchmarks/links_h100.py [--left-out FOLDER]

`calibrate --links` measured the links of the host on which `parallel_truth.py` then measured steps. What DDP and FSDP2
add is fitted to steps that take longer than the device alone: a share of the host time on one GPU, and for FSDP2 a cost
of each block. The host's factor follows from steps on one GPU. `--left-out` writes a profile for each network instead,
which is fitted without it.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from clockwatt.io.resources import resource
from clockwatt.predict.parallel.links import LinkProfile
from clockwatt.schema.links import HOST_COSTS

DATA = Path(__file__).parent / "parallel"
HOST_BOUND = 1.02
"""Times over device time from which on the host counts as the bottleneck."""
ORIGIN = (
    "Measured on 2 NVIDIA H100 80GB HBM3 of one host, 2026-11-25. Host: fitted to training steps of ten networks there."
)


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--left-out", type=Path)
    folder = parser.parse_args().left_out
    lines = [json.loads(line) for line in (DATA / "measured-h100.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = {(line["network"], line["strategy"]): line for line in reversed(lines) if line["kind"] == "step"}
    cases = json.loads((DATA / "predicted-h100.json").read_text(encoding="utf-8"))["cases"]
    blind = {(case["network"], case["strategy"]): case for case in cases}
    profile = replace(LinkProfile.read(DATA / "links-h100.json"), origin=ORIGIN, rows=())
    if folder is None:
        of_host(profile, steps, blind, "").write(resource("links/h100-nvlink.json"))
        return
    folder.mkdir(parents=True, exist_ok=True)
    for network in {name for name, _ in steps}:
        of_host(profile, steps, blind, network).write(folder / f"{network}.json")


def of_host(profile: LinkProfile, steps: dict[Any, Any], blind: dict[Any, Any], left_out: str) -> LinkProfile:
    """Return the profile with shares, costs and factor of the host, without one network.

    Shares and costs are those that least relative errors of steps need.
    """
    rows: dict[str, list[list[float]]] = {"ddp": [], "fsdp": []}
    for (network, strategy), line in steps.items():
        time_s = line["time_s"]
        if strategy not in rows or network == left_out or time_s <= HOST_BOUND * blind[network, strategy]["device_s"]:
            continue
        host_s = host_seconds(steps[network, "one"])
        blocks = kernels(line, "ReduceScatter") - 1 if strategy == "fsdp" else 0
        rows[strategy].append([host_s / time_s, blocks / time_s, max(0.0, 1 - host_s / time_s)])
    (ddp, _), (fsdp, group_s) = (nnls(np.array(of)[:, :2], np.array(of)[:, 2])[0] for of in rows.values())
    factor = host_factor(steps, blind, left_out)
    print(left_out or "all", f"shares {ddp:.3f}, {fsdp:.3f}; block {1e3 * group_s:.3g} ms; host {factor:.3f}")
    return replace(
        profile, host_shares={"ddp": float(ddp), "fsdp": float(fsdp)}, host_relative_to_median=factor,
        host_costs=dict.fromkeys(HOST_COSTS, 0.0) | {"fsdp_group_s": float(group_s)},
    )  # fmt: skip


def host_factor(steps: dict[Any, Any], predicted: dict[Any, Any], left_out: str = "") -> float:
    """Return the host time of steps on one GPU relative to that predicted for the median host: the median network's."""
    return float(
        np.median([
            host_seconds(line) / predicted[key]["host_s"]
            for key, line in steps.items() if key[1] == "one" and key[0] != left_out
        ])
    )  # fmt: skip


def host_seconds(line: dict[str, Any]) -> float:
    """Return the measured host time of a step on one GPU."""
    return min(float(line["ranks"][0]["issue_s"]), float(line["time_s"]))


def kernels(line: dict[str, Any], kind: str) -> float:
    """Return how many kernels of NCCL of one kind a step has."""
    kinds = line["ranks"][0]["profile"]["kinds"]
    return sum(number for name, (number, _) in kinds.items() if kind in name)


if __name__ == "__main__":
    main()
