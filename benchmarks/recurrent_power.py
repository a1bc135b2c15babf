"""Power of measured recurrent operations, each estimated without it, by what it draws.

    python benchmarks/recurrent_power.py

Operations measured in time alone get their energy from a forest (`predict/models/predictors.py`). It is fitted to all
shipped operations with energy but a fifth of the recurrent ones, whose dynamic power it then estimates. Recurrent
networks draw more than predicted (`benchmarks/fresh/energy_bias.py`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from result_file import write

from clockwatt import config
from clockwatt.config import FitConfig
from clockwatt.dataset.build import join_sources
from clockwatt.dataset.reference import references
from clockwatt.io.resources import resource
from clockwatt.operations.spec.operation import RECURRENT_CLASSES
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.models.predictors import with_energies
from clockwatt.predict.models.training_data import read_samples, training_data
from clockwatt.schema.costs import ENERGY_DYNAMIC_CORRECTED, TIME_DEVICE_CORRECTED

GPUS, FOLDS, SEED = ("h200", "h100"), 5, 0
EDGES_W = (0, 50, 100, 200, 1000)


def powers(dataset: Path, gpu: str, pass_: config.Pass) -> tuple[pd.DataFrame, int]:
    """Return measured and estimated dynamic power of recurrent operations in W, and the number without energy."""
    data = training_data(read_samples(dataset, gpu), pass_)
    assert data is not None
    features, targets = data.features[data.learnt], data.targets[data.learnt]
    energy_j, time_s = (targets[name].to_numpy(float) for name in (ENERGY_DYNAMIC_CORRECTED, TIME_DEVICE_CORRECTED))
    recurrent = features[OPERATION_CLASS].isin(RECURRENT_CLASSES).to_numpy()
    known = np.flatnonzero(recurrent & (energy_j > 0) & (time_s > 0))
    folds = np.random.default_rng(SEED).integers(0, FOLDS, known.size)
    estimated_j = np.full(energy_j.size, np.nan)
    for fold in range(FOLDS):
        hidden = known[folds == fold]
        without = energy_j.copy()
        without[hidden] = np.nan
        filled = with_energies(features, targets.assign(**{ENERGY_DYNAMIC_CORRECTED: without}), SEED)
        estimated_j[hidden] = filled[ENERGY_DYNAMIC_CORRECTED].to_numpy(float)[hidden]
    found = pd.DataFrame({"measured": energy_j[known], "estimated": estimated_j[known]}).div(time_s[known], axis=0)
    return found, int(recurrent.sum()) - known.size


def main() -> None:
    """Estimate and write the table."""
    first = config.load(resource("reference/h200") / "config.yaml")
    campaign = first.model_copy(update={"reference": ["h200", "h200-wide", "h100"], "fit": FitConfig()})
    rows, lacking = [], []
    with tempfile.TemporaryDirectory() as folder:
        join_sources(campaign.campaign, references(campaign), Path(folder))
        for gpu in GPUS:
            for pass_ in config.PASSES:
                found, without = powers(Path(folder), gpu, pass_)
                lacking.append(f"{gpu.upper()} {pass_} {without}")
                for interval, own in found.groupby(pd.cut(found["measured"], EDGES_W), observed=True):
                    ratio = (own["measured"] / own["estimated"]).median()
                    rows.append([gpu.upper(), pass_, f"{interval.left}–{interval.right} W", len(own), f"{ratio:.2f}"])
    write(
        "few-energies",
        "Power of recurrent operations, estimated without them",
        ["GPU", "pass", "measured dynamic power", "operations", "measured over estimated, median"],
        rows,
        hardware="NVIDIA H200 and H100; estimated on 2 cores, no GPU",
        notes=[f"Recurrent operations without energy: {', '.join(lacking)}."],
    )


if __name__ == "__main__":
    main()
