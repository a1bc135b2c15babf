"""Compare predicted training steps on one and two GPUs with measured ones.

    python benchmarks/several_gpus.py predict [--links LINKS] [--gpu h100] [--host NAME] --output PREDICTED.json
    python benchmarks/several_gpus.py score MEASURED.jsonl PREDICTED.json

`predict` predicts the cases of `parallel_truth.py`, which measures them. `score` compares; errors of one GPU are not
counted among those of several.
"""

import argparse
import datetime
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import parallel_truth
import result_file

import clockwatt
from clockwatt.predict import api

LIMITS = {"time": (5.0, 12.0), "energy": (8.0, 20.0), "memory": (4.0, None)}
"""Largest median and 90th percentile of errors, in percent."""
FACTORS = {"time": (1e3, "ms"), "energy": (1, "J"), "memory": (1e-9, "GB")}


def main() -> None:
    """Predict or score."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    of_predict, of_score = commands.add_parser("predict"), commands.add_parser("score")
    of_predict.add_argument("--links", default="h100-nvlink")
    of_predict.add_argument("--gpu", default="h100")
    of_predict.add_argument("--host")
    of_predict.add_argument("--output", type=Path, required=True)
    of_score.add_argument("measured", type=Path)
    of_score.add_argument("predicted", type=Path)
    options = parser.parse_args()
    if options.command == "predict":
        write_predictions(options)
    else:
        score(options.measured, options.predicted)


def write_predictions(options: argparse.Namespace) -> None:
    """Predict all cases and write them with commit and time."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    content: dict[str, Any] = {
        "commit": commit,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **{name: getattr(options, name) for name in ("links", "gpu", "host")},
        "cases": [],
    }
    api._Question._trace = keeping(api._Question._trace)
    for name in parallel_truth.NETWORKS:
        content["cases"] += predict(name, options)
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(name, flush=True)


def keeping(trace: Any) -> Any:
    """Return a function that traces each network once."""
    kept: dict[Any, Any] = {}

    def traced(question: Any, predictors: Any, network: Any, pass_: str) -> Any:
        key = (network.network_id, pass_)
        if key not in kept:
            kept[key] = trace(question, predictors, network, pass_)
        return kept[key]

    return traced


def predict(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the cases of a network: time of a step, energy and memory of each rank, and what they follow from."""
    constructor, (shape, below), precision, optimizer, begins = parallel_truth.NETWORKS[name]
    inputs: Any = {"shape": shape, "dtype": "int64", "below": below} if below else shape
    asked = {"training": True, "precision": precision, "optimizer": optimizer, "gpu": options.gpu, "host": options.host}
    asked |= {"gpus_per_node": 2, "links": options.links}
    stages = {"stages": (begins,), "microbatches": parallel_truth.MICROBATCHES, "schedule": parallel_truth.SCHEDULE}
    cases = []
    for strategy in parallel_truth.STRATEGIES[1:]:
        of_strategy = stages if strategy == "pipeline" else {}
        answer = clockwatt.predict(constructor, inputs, strategy=strategy, **asked, **of_strategy)
        names = ("time_s", "energies_j", "memory_bytes", "device_s", "host_s", "communication_s", "exposed_s")
        cases.append({"network": name, "strategy": strategy, **{one: getattr(answer, one) for one in names}})
    one = answer.single
    memory = one.memory and [one.memory.allocated_bytes]
    single = {"time_s": one.time_s, "energies_j": [one.energy_j], "memory_bytes": memory}
    single |= {"device_s": one.expected.device_s, "host_s": one.expected.host_s}
    return [{"network": name, "strategy": "one", **single}, *cases]


def score(measured: Path, predicted: Path) -> None:
    """Write the table of measured and predicted steps."""
    lines = [json.loads(line) for line in measured.read_text(encoding="utf-8").splitlines()]
    content = json.loads(predicted.read_text(encoding="utf-8"))
    cases = {(case["network"], case["strategy"]): case for case in content["cases"]}
    steps = {(line["network"], line["strategy"]): line for line in reversed(lines) if line["kind"] == "step"}
    rows, errors = [], {name: [] for name in LIMITS}
    for (network, strategy), line in sorted(steps.items()):
        if "error" in line:
            continue
        case, ranks = cases[network, strategy], line["ranks"]
        pairs = {
            "time": (line["time_s"], case["time_s"]),
            "energy": (sum(rank["energy_j"] for rank in ranks), sum(case["energies_j"])),
            "memory": (max(rank["allocated_bytes"] for rank in ranks), max(case["memory_bytes"] or [np.nan])),
        }
        cells: list[Any] = [network, strategy]
        for name, (seen, stated) in pairs.items():
            off = 100 * (stated / seen - 1)
            cells += [float(f"{FACTORS[name][0] * value:.4g}") for value in (seen, stated)] + [f"{off:+.1f}"]
            if strategy != "one":
                errors[name].append(abs(off))
        rows.append(cells)
    failed = sum("error" in line for line in steps.values())
    gpus, host = lines[0]["gpus"], f"host {content['host']}" if content["host"] else "the usual host"
    result_file.write(
        "several-gpus",
        f"Steps on {len(gpus)} {gpus[0]['name']}, predicted before they were measured",
        ("network", "strategy", *(
            column for _, unit in FACTORS.values() for column in (f"measured, {unit}", f"predicted, {unit}", "off, %")
        )),
        rows,
        targets=[target for name, values in errors.items() for target in targets(name, values)],
        notes=(
            "Time of the slowest rank, energy of all GPUs in use, memory of the rank with most.",
            f"Predicted at commit {content['commit'][:10]}, {content['date']}, with links {content['links']}, {host}.",
            f"{failed} steps failed.",
        ),
        file=result_file.RESULTS / f"several_gpus-{predicted.stem}.json",
        hardware=f"{len(gpus)} × {gpus[0]['name']}, PyTorch {lines[0]['versions']['torch']}",
    )  # fmt: skip


def targets(name: str, values: list[float]) -> list[dict[str, Any]]:
    """Return the targets of a quantity for its errors in percent."""
    limits = zip(("median", "90th percentile"), LIMITS[name], (0.5, 0.9), strict=True)
    return [
        result_file.target(f"{words} error of {name}", float(np.nanquantile(values, share)), at_most=limit, unit="%")
        for words, limit, share in limits
        if limit is not None
    ]


if __name__ == "__main__":
    main()
