"""Write the shipped profile of links between H100.

    python benchmarks/links_h100.py

`calibrate --links` measured it on the host on which `parallel_truth.py` then measured steps. The host's factor follows
from its steps on one GPU.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import parallel_truth

import clockwatt
from clockwatt.io.resources import resource
from clockwatt.predict.parallel.links import LinkProfile

DATA = Path(__file__).parent / "parallel"
ORIGIN = "Measured on 2 NVIDIA H100 80GB HBM3 of one host, 2026-11-25. Its host: from training steps of ten networks."


def main() -> None:
    """Write the profile."""
    lines = [json.loads(line) for line in (DATA / "measured-h100.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = {(line["network"], line["strategy"]): line for line in reversed(lines) if line["kind"] == "step"}
    ratios = [host_seconds(steps[name, "one"]) / median_host_s(name) for name in parallel_truth.FIRST]
    factor = float(np.median(ratios))
    print(f"host {factor:.3f}")
    profile = replace(
        LinkProfile.read(DATA / "links-h100.json"), origin=ORIGIN, rows=(), host_relative_to_median=factor
    )
    profile.write(resource("links/h100-nvlink.json"))


def median_host_s(name: str) -> float:
    """Return the predicted host time of a step on one GPU and the median host."""
    constructor, (shape, below), precision, optimizer, _ = parallel_truth.NETWORKS[name]
    inputs: Any = {"shape": shape, "dtype": "int64", "below": below} if below else shape
    settings = {"training": True, "precision": precision, "optimizer": optimizer, "gpu": "h100"}
    return float(clockwatt.predict(constructor, inputs, **settings).expected.host_s)


def host_seconds(line: dict[str, Any]) -> float:
    """Return the measured host time of a step on one GPU."""
    return min(float(line["ranks"][0]["issue_s"]), float(line["time_s"]))


if __name__ == "__main__":
    main()
