"""Calibrations of the intervals, compared on the held-out sets, and where the width of the interval of energy is from.

    python benchmarks/fresh/intervals.py [--predictors resources/predictors]

- *nominal*: errors of operations as they are stated, in every pass.
- *shipped*: the scales of `PassErrors`, from networks of the training data that were held out.
- *factor*: the nominal intervals times one factor, or one for each class of passes (Mondrian conformal prediction),
  from the other days of the held-out sets. These say what could be reached; nothing that is shipped uses them.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.evaluation.errors import COVERAGE, NORMAL_90, interval_score
from clockwatt.predict.evaluation.pass_errors import CARD_ENERGY, PassErrors, added_errors
from clockwatt.predict.gpu_predictor import BulkPredictor, GpuPredictor, load_models
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema.execution import ExecutionSettings

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.fresh import hosts, score

GPUS = ("h100", "h200")
QUANTITIES = {
    "device time": ("device_s", "device_s", False), "energy": ("energy_j", "energy_j", False),
    "energy, host calibrated": ("energy_j", "energy_j", True),
}  # fmt: skip
"""What was measured, what is stated, and whether on the host of the pass."""
CLASSES: dict[str, tuple[str, ...]] = {
    "one factor": (), "by pass": ("pass",), "by bottleneck": ("bottleneck",), "by precision": ("precision",),
    "by class of operations": ("class",), "by pass and class": ("pass", "class"), "by width": ("width",),
    "by share measured": ("measured",),
}  # fmt: skip
_FEWEST = 20
"""Passes of a class from which on it has a factor of its own."""
_KINDS = {"conv": "convolution", "linear": "matrix product", "addmm": "matrix product", "bmm": "matrix product",
          "matmul": "matrix product", "lstm": "recurrent", "gru": "recurrent", "scaled": "attention"}  # fmt: skip


def kind_of(operation_class: str) -> str:
    """Return the kind of work of a class of operations."""
    return next((kind for start, kind in _KINDS.items() if operation_class.startswith(start)), "other")


def judged(
    rows: pd.DataFrame, traces: Sequence[TracedNetwork], on_host: Sequence[Any], model: GpuPredictor
) -> Iterator[dict[str, Any]]:
    """Give each interval of each pass: logarithms of its ends and of what was measured, relative to the prediction."""
    for traced, host, row in zip(traces, on_host, rows.itertuples(index=False), strict=True):
        pass_ = traced.network.pass_
        execution = ExecutionSettings(row.execution)
        answers = {False: predict_network(model, traced, "default", execution=execution)}
        if host is not None:
            answers[True] = predict_network(model, traced, "default", execution=execution, host=host)
        device_s = answers[False].detail.frame(answers[False])["device_s"]
        classes = traced.operations.set_index("operation_id")["operation_class"].reindex(device_s.index)
        top = str(device_s.groupby(classes.to_numpy()).sum().idxmax())
        expected = answers[False].expected
        classed = {
            "pass": pass_, "precision": "16" if "16" in str(execution) else "32",
            "bottleneck": "host" if expected.host_s > expected.device_s else "device",
            "class": kind_of(top),
            "measured": str(answers[False].measured_calls > 0.05 * expected.calls), "day": row.day,
            "gpu_uuid": row.gpu_uuid, "subject_id": row.subject_id,
        }  # fmt: skip
        shares = _shares(traced, answers[False], model.description.passes[pass_].errors or PassErrors())
        for name, (seen, stated, calibrated) in QUANTITIES.items():
            if calibrated not in answers or not np.isfinite(real := float(getattr(row, seen) or math.nan)):
                continue
            answer = answers[calibrated]
            value, ends = getattr(answer.expected, stated), answer.intervals.get(stated)
            if value and ends:
                low, high = (math.log(max(end, 1e-12) / value) for end in ends)
                yield {**classed, **shares, "quantity": name, "residual": math.log(real / value), "low": low,
                       "high": high}  # fmt: skip


def _shares(traced: TracedNetwork, answer: Answer, errors: PassErrors) -> dict[str, float]:
    """Return the parts of the squared half-width of energy (in logarithms), for the median host."""
    expected, span = answer.expected, answer.on_hosts
    costs = answer.detail.costs
    added = added_errors(costs.mean, costs.factors, traced.composer.times_called, gap_s=traced.gap_s)
    if expected.energy_j is None or span is None or "energy_j" not in answer.intervals:
        return {}
    values = [one.energy_j / expected.energy_j for one in (span.expected, span.quick, span.slow)]
    idle = 1 - expected.energy_dynamic_j / expected.energy_j
    of_host = NORMAL_90 * idle * errors.host_error(added) if expected.host_s > expected.device_s else 0.0
    host = (math.log(max(values) / min(values)) / 2) ** 2 + of_host**2
    card = (NORMAL_90 * CARD_ENERGY) ** 2
    model = (NORMAL_90 * errors.energy_error(expected, added)) ** 2 - of_host**2 - card
    whole = host + card + model
    return {"host": host / whole, "card": card / whole, "model": model / whole}


def with_factors(nominal: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return intervals times the factor of each row's class, from the other days."""
    relative = nominal["residual"] / np.where(nominal["residual"] > 0, nominal["high"], nominal["low"])
    names = nominal[list(by)].astype(str).agg("|".join, axis=1) if by else pd.Series("", index=nominal.index)
    parts = []
    for day in nominal["day"].unique():
        others, here = nominal["day"] != day, nominal["day"] == day
        of_class = (
            relative[others].groupby(names[others]).agg(lambda own: _factor(own) if len(own) >= _FEWEST else np.nan)
        )
        factor = names[here].map(of_class).fillna(_factor(relative[others]))
        parts.append(nominal[here].assign(low=nominal["low"] * factor, high=nominal["high"] * factor))
    return pd.concat(parts)


def _factor(relative: pd.Series) -> float:
    """Return the conformal quantile."""
    return float(np.quantile(relative, min(1.0, math.ceil((len(relative) + 1) * COVERAGE) / len(relative))))


def coverage(rows: pd.DataFrame) -> float:
    """Return the share of passes in their interval."""
    return float(((rows["residual"] >= rows["low"]) & (rows["residual"] <= rows["high"])).mean())


def half_width(rows: pd.DataFrame) -> float:
    """Return the median half-width, relative to the prediction."""
    return float(((np.exp(rows["high"]) - np.exp(rows["low"])) / 2).median())


def cell(rows: pd.DataFrame) -> str:
    """Return coverage, median half-width and interval score."""
    found = interval_score(*(rows[name].to_numpy(float) for name in ("residual", "low", "high")))
    return f"{coverage(rows):.1%} ±{half_width(rows):.1%}, {found:.3f}"


def targets_of(gpu: str, name: str, shipped: pd.DataFrame, nominal: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Give the targets of an interval: coverage, and a third narrower than nominal."""
    narrower = half_width(shipped) / half_width(nominal)
    yield result_file.target(
        f"{gpu}, all sets: coverage of {name}", 100 * coverage(shipped), at_least=88, at_most=93, unit="%"
    )
    yield result_file.target(
        f"{gpu}, all sets: half-width of {name} over nominal", 100 * narrower, at_most=67, unit="%"
    )


def of_gpu(
    predictors: Path, gpu: str, rows: pd.DataFrame, catalogue: score.Catalogue
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the shipped intervals, and the nominal ones."""
    traces = [catalogue.traced(*key) for key in zip(rows["subject_id"], rows["pass"], strict=True)]
    model = BulkPredictor.of(load_models(predictors)[gpu], traces, ["default"])
    on_host = hosts.hosts_of(rows, traces, model)
    shipped = pd.DataFrame(judged(rows, traces, on_host, model))
    for pass_, described in model.description.passes.items():
        nominal = replace(described.errors or PassErrors(), scale_device=1.0, scale_energy=1.0)
        model.description.passes[pass_] = replace(described, errors=nominal)
    return shipped, pd.DataFrame(judged(rows, traces, on_host, model))


def main() -> None:
    """Compare and write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictors", type=Path, default=score.HERE.parents[1] / "resources/predictors")
    given = parser.parse_args()
    catalogue = score.Catalogue()
    table, shares, hardware, targets = [], [], [], []
    for gpu in GPUS:
        rows = score.measured(sorted(score.HERE.glob(f"measured-{gpu}-*.parquet")))
        shipped, nominal = of_gpu(given.predictors, gpu, rows, catalogue)
        hardware.append(f"{rows['gpu_uuid'].nunique()} × NVIDIA {gpu.upper()}")
        parts = [nominal[nominal["quantity"] == name] for name in QUANTITIES]
        parts = [part.assign(width=pd.qcut(part["high"], 4, labels=False)) for part in parts]
        of_shipped = [shipped[shipped["quantity"] == name] for name in QUANTITIES]
        for name, own, part in zip(QUANTITIES, of_shipped, parts, strict=True):
            targets += targets_of(gpu.upper(), name, own, part)
        table += [
            [gpu.upper(), "nominal", *map(cell, parts)],
            [gpu.upper(), "**shipped**", *map(cell, of_shipped)],
            *([gpu.upper(), name, *(cell(with_factors(part, by)) for part in parts)] for name, by in CLASSES.items()),
        ]
        energy = shipped[shipped["quantity"] == "energy"]
        for bottleneck, own in energy.groupby("bottleneck"):
            means = [f"{own[name].mean():.0%}" for name in ("model", "host", "card")]
            shares.append([gpu.upper(), f"{bottleneck}-bound", len(own), f"±{half_width(own):.0%}", *means])
        print(gpu, *table[-2 - len(CLASSES) :], *shares[-2:], sep="\n", flush=True)
    result_file.write(
        "intervals",
        "Calibrations of intervals",
        ["GPU", "calibration", *QUANTITIES],
        table,
        hardware=", ".join(hardware),
        file=result_file.RESULTS / "fresh-intervals.json",
        targets=targets,
        notes=[
            "Coverage of 90 % intervals, median half-width and interval score (small is good), all held-out sets.",
            "*Nominal*: errors of operations as stated.",
            "*Shipped*: scaled by the errors of networks of the training data, held out in turn.",
            "Others: nominal times a factor from other days of the held-out sets. They are not used.",
        ],
    )
    result_file.write(
        "intervals",
        "Where the width of the interval of energy comes from",
        ["GPU", "passes", "number", "median half-width", "operations and composition", "host", "card"],
        shares,
        hardware=", ".join(hardware),
        file=result_file.RESULTS / "fresh-interval-shares.json",
        notes=[
            "Mean shares of the squared half-width, for the median host. *Host*: range of hosts, error of host time."
        ],
    )


if __name__ == "__main__":
    main()
