"""Compare predicted training steps on several GPUs with measured ones.

python benchmarks/several_gpus.py MEASURED.jsonl --links LINKS.json [--gpu h100] [--host NAME]

Each line of MEASURED.jsonl is a step: `network` (torchvision, or a function of `transformer_networks`), `strategy`
(`one` for one GPU), `precision`, `optimizer`, `gpus`, `time_s` of the slowest rank, and `ranks`, each perhaps with
`energy_j`, `allocated_bytes`, `stages` and `microbatches`. Lines with `error` are counted.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import result_file

import clockwatt

TRANSFORMERS = "clockwatt.operations.transformer_networks"
INPUTS: dict[str, Any] = {
    "gpt2": {"shape": (8, 512), "dtype": "int64", "below": 50257},
    "gpt2_medium": {"shape": (8, 256), "dtype": "int64", "below": 50257},
    "bert_base": {"shape": (32, 128), "dtype": "int64", "below": 30522},
    **dict.fromkeys(("vit_b_16", "convnext_tiny"), (32, 3, 224, 224)),
}
"""Inputs of a rank; of a network that is not here 64 images."""
LIMITS = {"time": (5.0, 12.0), "energy": (8.0, 20.0), "memory": (4.0, None)}
"""Largest median and 90th percentile of errors, in percent."""


def main() -> None:
    """Predict all steps and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("measured", type=Path)
    parser.add_argument("--links", required=True)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--host")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.measured.read_text(encoding="utf-8").splitlines()]
    rows, errors = [], {name: [] for name in LIMITS}
    for line in [one for one in lines if "error" not in one]:
        rank, predicted = line["ranks"][0], predict(line, options)
        seen = [rank.get("energy_j"), rank.get("allocated_bytes")]
        seen = [line["time_s"], *(None if value is None else float(value) for value in seen)]
        cells: list[Any] = [line["network"], line["strategy"]]
        for name, value, own, scale in zip(LIMITS, seen, predicted, (1e3, 1, 1e-9), strict=True):
            if value is None or own is None:
                cells += ["–"] * 3
                continue
            off = 100 * (own / value - 1)
            cells += [float(f"{scale * value:.4g}"), float(f"{scale * own:.4g}"), f"{off:+.1f}"]
            if line["strategy"] != "one":
                errors[name].append(abs(off))
        rows.append(cells)
    result_file.write(
        "several-gpus",
        f"Steps measured on {lines[0]['gpus']} {lines[0]['gpu']}",
        (
            *(
                "network",
                "strategy",
                "measured, ms",
                "predicted, ms",
                "off, %",
                "measured, J",
                "predicted, J",
                "off, %",
            ),
            *("measured, GB", "predicted, GB", "off, %"),
        ),
        rows,
        targets=[target for name, values in errors.items() if values for target in targets(name, values)],
        notes=("Energy and memory are those of the first rank.", f"{len(lines) - len(rows)} steps failed."),
        hardware=f"{lines[0]['gpus']} × {lines[0]['gpu']}",
    )


def predict(line: dict[str, Any], options: argparse.Namespace) -> tuple[float, float | None, float | None]:
    """Return time, energy and memory of the first rank."""
    name = line["network"]
    network = f"{TRANSFORMERS}:{name}" if name.startswith(("gpt2", "bert")) else name
    asked = {"training": True, **{key: line[key] for key in ("precision", "optimizer")}}
    asked |= {"gpu": options.gpu, "host": options.host}
    inputs = INPUTS.get(name, (64, 3, 224, 224))
    if line["strategy"] == "one":
        answer = clockwatt.predict(network, inputs, **asked)
        return answer.time_s, answer.energy_j, answer.memory and answer.memory.allocated_bytes
    asked |= {"gpus_per_node": line["gpus"], "strategy": line["strategy"], "links": options.links}
    if line["strategy"] == "pipeline":
        asked |= {"stages": tuple(line["ranks"][0]["stages"]), "microbatches": line["ranks"][0]["microbatches"]}
    answer = clockwatt.predict(network, inputs, **asked)
    return answer.time_s, answer.energies_j[0], answer.memory_bytes and answer.memory_bytes[0]


def targets(name: str, values: list[float]) -> list[dict[str, Any]]:
    """Return the targets of a quantity for its errors in percent."""
    limits = zip(("median", "90th percentile"), LIMITS[name], (0.5, 0.9), strict=True)
    return [
        result_file.target(f"{words} error of {name}", float(np.quantile(values, share)), at_most=limit, unit="%")
        for words, limit, share in limits
        if limit is not None
    ]


if __name__ == "__main__":
    main()
