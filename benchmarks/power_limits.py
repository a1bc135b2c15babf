"""How well time and energy at power limits that were not measured follow from others, on real V100 and P100.

    python benchmarks/power_limits.py

Reads the shipped runs of Zeus: five networks, each trained at many batch sizes and six or seven power limits. Writes
three tables: errors at each limit left out; regret of the limit that is chosen, from all limits but one, from every
other limit and from three; and batch size and limit chosen together, as Zeus does, for the cost of training to a target
metric. Regret is the cost at the chosen point over the least cost at all measured points, minus one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import result_file

from clockwatt.predict.evaluation.errors import Floats
from clockwatt.studies.power.limit_curves import on_limit_curve
from clockwatt.studies.power.runs_by_others import SHIPPED, read_runs

GPUS = {"v100": "Tesla V100", "p100": "Tesla P100"}
BATCHES = {
    "bert_sentiment140": 128, "bert_squad": 32, "deepspeech2": 192, "ncf": 1024, "resnet50": 256, "shufflenetv2": 1024,
}  # fmt: skip
"""Batch sizes from which Zeus starts, or the largest that was measured, by network."""
MAX_W = 250.0
COSTS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "energy": lambda time_s, power_w: time_s * power_w,
    "energy × time": lambda time_s, power_w: time_s**2 * power_w,
    "Zeus's cost, η = 0.5": lambda time_s, power_w: 0.5 * time_s * (power_w + MAX_W),
}
DESIGNS: dict[str, Callable[[int], list[list[int]]]] = {
    "all but one": lambda number: [[at for at in range(number) if at != out] for out in range(number)],
    "every other, and the highest": lambda number: [sorted({*range(0, number, 2), number - 1})],
    "lowest, middle, highest": lambda number: [[0, number // 2, number - 1]],
}
TARGETS = (("time", 0.02), ("energy", 0.03))


def main() -> None:
    """Write the three tables."""
    sweeps = {gpu: configurations(read_runs(Path(SHIPPED), gpu, [])) for gpu in GPUS}
    errors(sweeps)
    regrets(sweeps)
    together()


def configurations(runs: pd.DataFrame) -> list[tuple[Floats, Floats, Floats]]:
    """Return limits, times and powers of each network at each batch size."""
    columns = ("power_limit_w", "time_s", "power_w")
    swept = runs.sort_values("power_limit_w").groupby(["network", "batch_size"])
    return [(of[columns[0]].to_numpy(float), of["time_s"].to_numpy(), of["power_w"].to_numpy()) for _, of in swept]


def errors(sweeps: dict[str, list[tuple[Floats, Floats, Floats]]]) -> None:
    """Write errors at limits left out, at all and between others."""
    rows, everything = [], {"time": [], "power": [], "energy": []}
    for gpu, name in GPUS.items():
        for place in ("between others", "lowest or highest"):
            off: dict[str, list[float]] = {quantity: [] for quantity in everything}
            for limits_w, *measured in sweeps[gpu]:
                for out, limit_w in enumerate(limits_w):
                    if (out in (0, len(limits_w) - 1)) != (place == "lowest or highest"):
                        continue
                    kept = np.arange(len(limits_w)) != out
                    ratios = [
                        on_limit_curve(limits_w[kept], values[kept], np.array([limit_w]))[0] / values[out]
                        for values in measured
                    ]
                    for quantity, ratio in zip(off, [*ratios, ratios[0] * ratios[1]], strict=True):
                        off[quantity].append(abs(ratio - 1))
            for quantity, of_quantity in off.items():
                everything[quantity] += of_quantity
            rows.append([name, place, len(off["time"]), *(shown(of_quantity) for of_quantity in off.values())])
    rows.append(["both", "all", len(everything["time"]), *(shown(off) for off in everything.values())])
    targets = [
        result_file.target(
            f"{quantity} at a power limit left out, median", 100 * float(np.median(everything[quantity])),
            at_most=100 * bound, unit="%",
        )
        for quantity, bound in TARGETS
    ]  # fmt: skip
    result_file.write(
        "power-limits", "Power limits left out", ["GPU", "limit left out", "cases", "time", "power", "energy"], rows,
        targets=targets, hardware=", ".join(GPUS.values()),
        notes=["Errors are the median and the 90th percentile.", *PICTURES],
    )  # fmt: skip


PICTURES = (
    "Figures: `clockwatt study-power --runs shipped --gpu v100 --network resnet50-b192 …`.",
    "![Energy, time and energy × time of five networks on a V100 against the power limit](power-limits-v100.png)",
    "The same of kernels over clocks: `--gpu v100-pcie --network matrixMul …`.",
    "![Energy, time and energy × time of five kernels on a V100 against the clock](clocks-v100.png)",
)


def regrets(sweeps: dict[str, list[tuple[Floats, Floats, Floats]]]) -> None:
    """Write the regret of the limit that is chosen."""
    rows, targets = [], []
    for title, cost in COSTS.items():
        default = [regret(cost(*of[1:]), len(of[0]) - 1) for sweep in sweeps.values() for of in sweep]
        rows.append([title, "none: the highest limit", len(default), *regret_shown(default)])
        for design, members in DESIGNS.items():
            found = [
                regret(cost(time_s, power_w), int(np.argmin(cost(*completed(limits_w, time_s, power_w, given)))))
                for sweep in sweeps.values()
                for limits_w, time_s, power_w in sweep
                for given in members(len(limits_w))
            ]
            rows.append([title, design, len(found), *regret_shown(found)])
            if design == "all but one" and title != "energy × time":
                name = f"regret in {title.removesuffix(', η = 0.5')} of the chosen limit, mean"
                targets.append(result_file.target(name, 100 * float(np.mean(found)), at_most=1, unit="%"))
    result_file.write(
        "power-limits", "Regret of the chosen power limit",
        ["minimised", "limits measured", "cases", "mean", "90th percentile", "worst"], rows, targets=targets,
        hardware=", ".join(GPUS.values()), file=result_file.RESULTS / "power_limits-regret.json",
        notes=[
            "Measured limits have their measured cost, the others a predicted one.",
            "Zeus's cost is η · energy + (1 − η) · 250 W · time.",
        ],
    )  # fmt: skip


def completed(limits_w: Floats, time_s: Floats, power_w: Floats, given: list[int]) -> tuple[Floats, Floats]:
    """Return time and power at all limits, predicted but where given."""
    found = []
    for values in (time_s, power_w):
        predicted = on_limit_curve(limits_w[given], values[given], limits_w)
        predicted[given] = values[given]
        found.append(predicted)
    return found[0], found[1]


def regret(costs: Floats, chosen: int) -> float:
    """Return the cost of a point over the least, minus one."""
    return float(costs[chosen] / costs.min() - 1)


def together() -> None:
    """Write batch size and limit chosen together, from every other limit of every batch size."""
    rows = []
    everything: dict[str, list[float]] = {"energy": [], "Zeus's cost, η = 0.5": []}
    for gpu, name in GPUS.items():
        runs = read_runs(Path(SHIPPED), gpu, []).dropna(subset=["epochs"])
        for network, of_network in runs.groupby("network"):
            for title, of_title in everything.items():
                row, off = chosen_point(of_network, COSTS[title], BATCHES[str(network)])
                rows.append([name, network, title, *row])
                of_title.append(off)
    targets = [
        result_file.target(
            f"regret in {title.removesuffix(', η = 0.5')} of batch size and limit, mean", 100 * float(np.mean(off)),
            at_most=1, unit="%",
        )
        for title, off in everything.items()
    ]  # fmt: skip
    columns = ["GPU", "network", "minimised", "default", "chosen", "energy", "time", "regret"]
    result_file.write(
        "power-limits", "Batch size and power limit chosen together", columns, rows, targets=targets,
        hardware=", ".join(GPUS.values()), file=result_file.RESULTS / "power_limits-batch.json",
        notes=[
            "Costs are those of training to the target metric: mean epochs to the target × cost of an epoch.",
            "Every other limit, and the highest, is measured at each batch size.",
            "Default: at the highest limit, Zeus's first batch size, or the largest below it with an outcome.",
            "Energy and time of the chosen point are given against the default.",
            "Batch sizes with a run that missed the target are left out.",
        ],
    )  # fmt: skip


def chosen_point(runs: pd.DataFrame, cost: Callable[[Floats, Floats], Floats], first: int) -> tuple[list[str], float]:
    """Return default and chosen point, change of energy and time, and regret, as shown, and the regret."""
    points: dict[tuple[float, float], tuple[float, float]] = {}
    predicted: dict[tuple[float, float], float] = {}
    for batch, of_batch in runs.sort_values("power_limit_w").groupby("batch_size"):
        limits_w, power_w = (of_batch[column].to_numpy(float) for column in ("power_limit_w", "power_w"))
        time_s = (of_batch["time_s"] * of_batch["epochs"]).to_numpy()
        (given,) = DESIGNS["every other, and the highest"](len(limits_w))
        expected = cost(*completed(limits_w, time_s, power_w, given))
        for at, limit_w in enumerate(limits_w):
            key = (float(batch), float(limit_w))
            points[key], predicted[key] = (float(time_s[at]), float(power_w[at])), float(expected[at])
    costs = {key: float(cost(np.array(time_s), np.array(power_w))) for key, (time_s, power_w) in points.items()}
    default = max(key for key in points if key[0] <= first)
    chosen = min(predicted, key=predicted.__getitem__)
    off = costs[chosen] / min(costs.values()) - 1
    (time_0, power_0), (time_1, power_1) = points[default], points[chosen]
    changes = [f"{time_1 * power_1 / (time_0 * power_0) - 1:+.0%}", f"{time_1 / time_0 - 1:+.0%}"]
    names = [f"{batch:.0f}, {limit_w:.0f} W" for batch, limit_w in (default, chosen)]
    return [*names, *changes, f"{off:.1%}"], off


def shown(off: list[float]) -> str:
    """Return median and 90th percentile."""
    return f"{np.median(off):.1%} / {np.quantile(off, 0.9):.1%}"


def regret_shown(off: list[float]) -> list[str]:
    """Return mean, 90th percentile and maximum."""
    return [f"{np.mean(off):.2%}", f"{np.quantile(off, 0.9):.1%}", f"{max(off):.1%}"]


if __name__ == "__main__":
    main()
