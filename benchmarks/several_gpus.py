"""Compare predicted training steps on one and two GPUs with measured ones.

    python benchmarks/several_gpus.py predict [--set SET] [--links LINKS] [--host NAME] --output PREDICTED.json
    python benchmarks/several_gpus.py pack MEASURED.jsonl PACKED.jsonl
    python benchmarks/several_gpus.py score [--blind N] MEASURED.jsonl PREDICTED.json...
    python benchmarks/several_gpus.py seen MEASURED.jsonl
    python benchmarks/several_gpus.py machines MEASURED.jsonl MEASURED.jsonl

`predict` predicts the cases of `parallel_truth.py`, which measures them; `{network}` in LINKS stands for the network's
name. `pack` shortens what was measured. `score` compares it with predictions, of which the first N are blind; errors of
one GPU are not counted among those of several. `seen` writes a table without predictions: GPUs and programs that run
beside each other. `machines` compares the same steps on two machines.
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
from clockwatt.studies.parallel.strategies import SCHEDULE

STRATEGIES = parallel_truth.STRATEGIES[1:]
LIMITS = {"time": (5.0, 12.0), "energy": (8.0, 20.0), "memory": (4.0, None)}
"""Largest median and 90th percentile of errors, in percent."""
COMPUTING = 0.85
"""Share of kernels in a step from which the host hardly decides."""
FACTORS = {"time": (1e3, "ms"), "energy": (1, "J"), "memory": (1e-9, "GB")}

SETS = {
    "measured-h100": "first set, two H100",
    "measured-further-h100": "second set, two H100",
    "measured-third-h200": "third set, two H200",
    "measured-third-h200b": "third set, two H200 of another machine",
}
"""What was measured, by the names of the files."""
NOTES = (
    "`third`: with host costs as before the first two sets; `revised`: with host costs fitted to them.",
    "`calibrated`: with profiles of the host and the links measured minutes before the steps.",
    "`before-calibrated`: the same profiles, with the host costs of `third`.",
)


def main() -> None:
    """Predict or score."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    names = ("predict", "pack", "score", "seen", "machines")
    of_predict, of_pack, of_score, of_seen, of_machines = map(commands.add_parser, names)
    of_predict.add_argument("--links", default="h100-nvlink")
    of_predict.add_argument("--gpu", default="h100")
    of_predict.add_argument("--host")
    of_predict.add_argument("--set", choices=parallel_truth.SETS, default="first")
    of_predict.add_argument("--output", type=Path, required=True)
    of_seen.add_argument("measured", type=Path)
    of_machines.add_argument("measured", type=Path, nargs=2)
    of_pack.add_argument("measured", type=Path)
    of_pack.add_argument("packed", type=Path)
    of_score.add_argument("--blind", type=int, default=1)
    of_score.add_argument("measured", type=Path)
    of_score.add_argument("predicted", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "predict":
        write_predictions(options)
    elif options.command == "pack":
        lines = [json.loads(line) for line in options.measured.read_text(encoding="utf-8").splitlines()]
        options.packed.write_text("".join(f"{json.dumps(packed(line))}\n" for line in lines), encoding="utf-8")
    elif options.command == "seen":
        seen([json.loads(line) for line in options.measured.read_text(encoding="utf-8").splitlines()])
    elif options.command == "machines":
        machines(*options.measured)
    else:
        score(options.measured, options.predicted, options.blind)


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
    for name in parallel_truth.SETS[options.set]:
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
    asked |= {"gpus_per_node": 2, "links": options.links.format(network=name)}
    stages = {"stages": (begins,), "microbatches": parallel_truth.MICROBATCHES, "schedule": SCHEDULE}
    cases = []
    for strategy in STRATEGIES:
        of_strategy = stages if strategy == "pipeline" else {}
        answer = clockwatt.predict(constructor, inputs, strategy=strategy, **asked, **of_strategy)
        names = ("time_s", "energies_j", "memory_bytes", "device_s", "host_s", "communication_s", "exposed_s")
        cases.append({"network": name, "strategy": strategy, **{one: getattr(answer, one) for one in names}})
    one = answer.single
    memory = one.memory and [one.memory.allocated_bytes]
    single = {"time_s": one.time_s, "energies_j": [one.energy_j], "memory_bytes": memory}
    single |= {"device_s": one.expected.device_s, "host_s": one.expected.host_s}
    return [{"network": name, "strategy": "one", **single}, *cases]


def packed(value: Any) -> Any:
    """Return a measured value with six digits, and blocks of steps as 10th percentile, median and 90th percentile."""
    if isinstance(value, dict):
        kept = {name: packed(one) for name, one in value.items() if name not in ("window", "blocks_s")}
        if "blocks_s" in value:
            kept["blocks_s"] = packed(np.quantile(value["blocks_s"], (0.1, 0.5, 0.9)).tolist())
        return kept
    if isinstance(value, list):
        return [packed(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def score(measured: Path, predicted: list[Path], blind_files: int) -> None:
    """Write the table of the first prediction, and one of the errors of all for each strategy."""
    lines = [json.loads(line) for line in measured.read_text(encoding="utf-8").splitlines()]
    steps = {(line["network"], line["strategy"]): line for line in reversed(lines) if line["kind"] == "step"}
    failed = [steps.pop(key) for key, line in list(steps.items()) if "error" in line]
    hardware = machine(lines[0])
    of_set = SETS[measured.stem]
    summary, blind = [], []
    for place, file in enumerate(predicted):
        content = json.loads(file.read_text(encoding="utf-8"))
        title = f"{'blind' if place < blind_files else 'not blind'}: `{file.stem}`"
        rows, errors = compared(steps, content["cases"])
        summary += [[title, *row] for row in summarised(errors, steps)]
        several = [error for (_, strategy), error in errors.items() if strategy != "one"]
        if not place:
            blind = [target for name in LIMITS for target in targets(f"{of_set}: ", name, several)]
        host = f"host {content['host']}" if content["host"] else "median host"
        if place:
            continue
        result_file.write(
            "several-gpus",
            f"Steps and their predictions, {title}: {of_set}",
            ("network", "batch of all GPUs", "precision", "strategy", *(
                f"{column}, {'%' if column == 'off' else unit}"
                for _, unit in FACTORS.values() for column in ("measured", "predicted", "off")
            ), "ratio to one GPU off, %"),
            rows,
            notes=(
                "Time of the slowest rank, energy of all GPUs in use, memory of the rank with most.",
                f"Predicted at commit {content['commit'][:10]}, {content['date']}.",
                f"Links: {content['links']}; {host}.",
                f"{len(failed)} steps failed.",
            ),
            file=result_file.RESULTS / f"several_gpus-{file.stem}.json",
            hardware=hardware,
        )  # fmt: skip
    result_file.write(
        "several-gpus",
        f"Errors of predicted steps: {of_set}",
        (
            "prediction", "strategy", "steps", "time: median, %", "90th, %", "ratio to one GPU: median, %", "90th, %",
            "energy: median, %", "90th, %", "memory: median, %", "90th, %",
        ),
        summary,
        targets=blind,
        notes=(
            "Ratio to one GPU: time over the time of the same network on one GPU, predicted and measured.",
            "The targets of this set are those of its first rows (blind), for all steps on two GPUs.",
            f"Kernels > {COMPUTING:.0%}: steps in which each GPU runs kernels for this share of the time, or longer.",
            f"Networks: {', '.join(dict.fromkeys(network for network, _ in steps))}.",
            "Blind: predicted before the measurement. `again`: predicted afterwards, with the present version.",
            f"Blocks of steps of one case differ by {spread(steps):.0f} % in the median (90th over 10th percentile).",
            *(NOTES if "third" in measured.stem else ()),
        ),
        file=result_file.RESULTS / f"several_gpus-{measured.stem}.json",
        hardware=hardware,
    )  # fmt: skip


def machine(line: dict[str, Any]) -> str:
    """Return what was measured on, and when."""
    gpus = f"{len(line['gpus'])} × {line['gpus'][0]['name']} of one host"
    return f"{gpus}, {line['date'][:16]} UTC, PyTorch {line['versions']['torch']}"


def machines(first: Path, second: Path) -> None:
    """Write the table of differences between the same steps on two machines."""
    files = [[json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] for file in (first, second)]
    of_both = [{(line["network"], line["strategy"]): line for line in lines if "time_s" in line} for lines in files]
    rows = []
    for strategy in parallel_truth.STRATEGIES:
        pairs = [[steps[key] for steps in of_both] for key in of_both[0] if key[1] == strategy and key in of_both[1]]
        off = [abs(100 * (other["time_s"] / one["time_s"] - 1)) for one, other in pairs]
        energies = [[sum(rank["energy_j"] for rank in line["ranks"]) for line in pair] for pair in pairs]
        of_energy = [abs(100 * (other / one - 1)) for one, other in energies]
        quantiles = [f"{np.quantile(values, share):.1f}" for values in (off, of_energy) for share in (0.5, 0.9)]
        rows.append([strategy, len(pairs), *quantiles])
    result_file.write(
        "several-gpus",
        f"The same steps on two machines with two {files[0][0]['gpus'][0]['name'].split()[1]} each",
        ("strategy", "steps", "time: median difference, %", "90th, %", "energy: median difference, %", "90th, %"),
        rows,
        file=result_file.RESULTS / "several_gpus-machines.json",
        hardware=" and ".join(machine(lines[0]) for lines in files),
    )


def seen(lines: list[dict[str, Any]]) -> None:
    """Write the table of GPUs and programs beside each other."""
    of_titles: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for line in lines:
        for rank, answers in enumerate(line["ranks"] if line["kind"] in ("cards", "shared") else []):
            for title, answer in answers.items():
                of_title = title.rpartition(" ")[0] if line["kind"] == "shared" else title
                of_titles.setdefault((line["kind"], of_title, rank), []).append(answer)
    rows = []
    for (kind, title, rank), answers in sorted(of_titles.items()):
        times_s = [answer["blocks_s"][1] for answer in answers]
        power_w, temperature_c, clock_mhz = (
            np.median([answer["sensors"][name] for answer in answers])
            for name in ("power_w", "temperature_c", "sm_clock_mhz")
        )
        program, _, other = title.partition(" beside ")
        if kind == "shared" and rank and other:
            program, other = other, program
        where = f"GPU {rank}" if kind == "cards" else "GPU 0"
        beside = "the same on the other GPU" if title.endswith("0 and 1") else f"{other} on this GPU" if other else "–"
        rows.append([
            program.partition(" on ")[0], where, beside, round(1e3 * float(np.median(times_s)), 2),
            f"{100 * (max(times_s) / min(times_s) - 1):.1f}", *(round(float(one)) for one in (power_w, temperature_c,
            clock_mhz)), len(answers),
        ])  # fmt: skip
    result_file.write(
        "several-gpus",
        "GPUs and programs beside each other",
        (
            "program", "runs on", "beside it", "step, ms", "range of repetitions, %", "power of the GPU, W", "°C",
            "SM clock, MHz", "repetitions",
        ),
        rows,
        notes=(
            "`sgemm`: a float32 product of two 8192 × 8192 matrices; `resnet50`: a training step with 64 images, TF32.",
            "Programs on one GPU are processes of their own, without MPS. Medians of repetitions of about 1 s.",
        ),
        file=result_file.RESULTS / "several_gpus-beside.json",
        hardware=machine(lines[0]),
    )  # fmt: skip


def compared(steps: dict[Any, Any], cases: list[Any]) -> tuple[list[list[Any]], dict[Any, dict[str, float]]]:
    """Return rows of the table, and the errors of each case in percent."""
    of_cases = {(case["network"], case["strategy"]): case for case in cases}
    rows, errors = [], {}
    for (network, strategy), line in sorted(steps.items()):
        case, ranks, single = of_cases[network, strategy], line["ranks"], (network, "one")
        pairs = {
            "time": (line["time_s"], case["time_s"]),
            "energy": (sum(rank["energy_j"] for rank in ranks), sum(case["energies_j"])),
            "memory": (max(rank["allocated_bytes"] for rank in ranks), max(case["memory_bytes"] or [np.nan])),
            "ratio": (line["time_s"] / steps[single]["time_s"], case["time_s"] / of_cases[single]["time_s"]),
        }
        errors[network, strategy] = off = {name: 100 * (stated / seen - 1) for name, (seen, stated) in pairs.items()}
        _, (shape, _), precision, *_ = parallel_truth.NETWORKS[network]
        batch = shape[0] * (1 if strategy == "pipeline" else len(ranks))
        cells: list[Any] = [network, batch, precision, strategy]
        for name, (factor, _) in FACTORS.items():
            cells += [float(f"{factor * value:.4g}") for value in pairs[name]] + [f"{off[name]:+.1f}"]
        rows.append([*cells, f"{off['ratio']:+.1f}"])
    return rows, errors


def summarised(errors: dict[Any, dict[str, float]], steps: dict[Any, Any]) -> list[list[Any]]:
    """Return a row of median and 90th percentile for each strategy, for all of two GPUs, and where these compute."""
    several = [key for key in errors if key[1] in STRATEGIES]
    computing = [key for key in several if share_of_kernels(steps[key]) > COMPUTING]
    parts = [(one, [key for key in errors if key[1] == one]) for one in parallel_truth.STRATEGIES]
    parts += [("all of two GPUs", several), (f"of these, kernels > {COMPUTING:.0%}", computing)]
    rows = []
    for title, keys in parts:
        of_title = [errors[key] for key in keys]
        if not of_title:
            continue
        cells: list[Any] = [title, len(of_title)]
        for name in ("time", "ratio", "energy", "memory"):
            off = [abs(error[name]) for error in of_title]
            cells += [round(float(np.nanquantile(off, share)), 1) for share in (0.5, 0.9)]
        rows.append(cells)
    return rows


def share_of_kernels(line: dict[str, Any]) -> float:
    """Return the share of a measured step in which each GPU runs kernels of the network, at least."""
    return float(min(rank["profile"]["kernel_s"] for rank in line["ranks"]) / line["time_s"])


def spread(steps: dict[Any, Any]) -> float:
    """Return by how much blocks of the steps on two GPUs differ, in percent: 90th over 10th percentile."""
    blocks = [rank["blocks_s"] for (_, strategy), line in steps.items() if strategy != "one" for rank in line["ranks"]]
    return float(np.median([100 * (high / low - 1) for low, _, high in blocks]))


def targets(of: str, name: str, errors: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Return the targets of a quantity for its errors in percent."""
    values = [abs(error[name]) for error in errors]
    limits = zip(("median", "90th percentile"), LIMITS[name], (0.5, 0.9), strict=True)
    return [
        result_file.target(f"{of}{words} error of {name}", np.nanquantile(values, share), at_most=limit, unit="%")
        for words, limit, share in limits
        if limit is not None
    ]


if __name__ == "__main__":
    main()
