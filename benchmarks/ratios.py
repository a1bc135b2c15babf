"""Whether 90 % intervals of ratios of two passes hold, on shipped networks that were measured whole.

    python benchmarks/ratios.py

Pairs are passes of two networks, or of one network in two precisions, on one GPU at its default point. Each pass is
composed from its measured operations. The ratio of the measured passes is compared with the interval of the ratio of
the composed ones: with errors of shared operations cancelled, as `Answer.compared_with` does, and independent.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from clockwatt.predict.answer import QUANTITIES, RATIOS, Answer, Estimate
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.description import shipped_catalogue, shipped_predictors, shipped_validation
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.schema.execution import ExecutionSettings

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.fresh.score import Catalogue

PASS = ["gpu", "network_id", "pass", "execution"]
SHARED = {"none": (-1.0, 0.0), "up to a half": (0.0, 0.5), "more than a half": (0.5, 1.0)}


def passes() -> Iterator[tuple[Answer, Estimate]]:
    """Compose every shipped pass that was measured whole; with what was measured."""
    models, catalogue = load_models(shipped_predictors(), shipped_validation()), Catalogue([shipped_catalogue()])
    rows = pd.read_parquet(shipped_validation() / "networks.parquet")
    rows = rows[rows["point"] == "default"].drop_duplicates(PASS)
    for gpu, network_id, pass_, execution in rows[PASS].itertuples(index=False):
        traced = catalogue.traced(network_id, pass_)
        answer = predict_network(models[gpu], traced, "default", execution=ExecutionSettings(execution))
        if answer.measured is not None and answer.composed is not None:
            costs = {name: getattr(answer.composed, name) for name in QUANTITIES}
            expected, ends = replace(answer.expected, **costs), dict(answer.composed.intervals)
            yield replace(answer, expected=expected, intervals=ends, sources={}), answer.measured


def judged() -> pd.DataFrame:
    """Return a row for each pair and quantity."""
    found: list[dict[str, Any]] = []
    for (one, seen), (other, other_seen) in itertools.combinations(list(passes()), 2):
        if (one.gpu, one.pass_) != (other.gpu, other.pass_) or one.detail is None or other.detail is None:
            continue
        host = {answer.limited_by == "host-bound" for answer in (one, other)}
        shared = one.detail.shared(other.detail, host=host.pop()) if len(host) == 1 else 0.0
        cancelled = other.compared_with(one).relative_to
        independent = replace(other, detail=None).compared_with(one).relative_to
        assert cancelled is not None
        assert independent is not None
        for quantity in ("time_s", "energy_j"):
            measured = [getattr(estimate, quantity) for estimate in (seen, other_seen)]
            name = RATIOS[quantity]
            if not all(measured) or name not in cancelled.intervals:
                continue
            row = {"quantity": quantity.split("_")[0], "shared": shared}
            for how, relative in (("cancelled", cancelled), ("independent", independent)):
                low, high = relative.intervals[name]
                row |= {f"held {how}": low <= measured[1] / measured[0] <= high}
                row |= {f"width {how}": math.sqrt(high / low) - 1}
            found.append(row)
    return pd.DataFrame(found)


def main() -> None:
    """Judge, and write the table."""
    pairs, rows = judged(), []
    for quantity, of_quantity in pairs.groupby("quantity", sort=False):
        for words, (above, up_to) in SHARED.items():
            some = of_quantity[(of_quantity["shared"] > above) & (of_quantity["shared"] <= up_to)]
            cells = [
                f"{100 * some[f'held {how}'].mean():.0f} % / ± {100 * some[f'width {how}'].median():.1f} %"
                for how in ("cancelled", "independent")
            ]
            rows.append([quantity, words, len(some), *cells])
    result_file.write(
        "composition",
        "Intervals of ratios of two passes",
        ["ratio of", "uncertainty shared", "pairs", "shared errors cancelled", "independent errors"],
        rows,
        notes=[
            "Coverage of 90 % intervals / median half-width. Pairs share networks, so that they are not independent.",
            "The intervals of single passes are calibrated on the same networks.",
            "The correlation of energies, the square of that of times, was chosen on these pairs.",
        ],
        hardware="NVIDIA H200 and H100, shipped data; computed on 2 cores, no GPU",
    )


if __name__ == "__main__":
    main()
