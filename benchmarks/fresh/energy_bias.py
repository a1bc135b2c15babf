"""Which passes draw more or less than predicted: measured over predicted, by class of operations and precision.

    python benchmarks/fresh/energy_bias.py [--predictors resources/predictors]

Device-bound passes of the held-out sets, in the class of operations that take most of their dynamic energy. Dynamic
energy is that above idle power. Networks of the training data in float32 without TF32 are given beside, each predicted
by predictors that held it out (`resources/validation`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from clockwatt.predict.answerer import predict_network
from clockwatt.predict.composition.networks import PREDICTED
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.schema import layout
from clockwatt.schema.execution import FP32, TF32, ExecutionSettings
from clockwatt.schema.records import TRAINING

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.fresh import score
from benchmarks.fresh.intervals import GPUS, kind_of

_DEVICE_BOUND = 1.05
_FEWEST = 5


def compared(gpu: str, predictors: Path, catalogue: score.Catalogue) -> pd.DataFrame:
    """Return measured over predicted device time and dynamic energy of each device-bound pass."""
    model = load_models(predictors)[gpu]
    rows = score.measured(sorted(score.HERE.glob(f"measured-{gpu}-*.parquet")))
    rows = rows[rows["energy_j"].notna() & (rows["time_eager_s"] <= _DEVICE_BOUND * rows["device_s"])]
    found = []
    for row in rows.to_dict("records"):
        traced, execution = catalogue.traced(row["subject_id"], row["pass"]), ExecutionSettings(row["execution"])
        answer = predict_network(model, traced, "default", execution=execution)
        operations = answer.detail.frame(answer)
        energies = operations.groupby(operations["operation_class"].map(kind_of))["energy_dynamic_j"].sum()
        dynamic_j = row["energy_j"] - row["power_idle_w"] * row["time_eager_s"]
        found.append({
            "network": row["subject_id"], "class": energies.idxmax(), "pass": row["pass"],
            "precision": str(execution) if execution in (FP32, TF32) else "16 bits",
            "device": row["device_s"] / answer.expected.device_s,
            "dynamic": dynamic_j / answer.expected.energy_dynamic_j,
        })  # fmt: skip
    return pd.DataFrame(found)


def spread(values: pd.Series) -> str:
    """Return 10th percentile, median and 90th percentile."""
    return " / ".join(f"{value:.2f}" for value in np.percentile(values, [10, 50, 90]))


def held_out(validation: Path) -> list[str]:
    """Say how far networks of the training data are off in training in float32, each held out."""
    rows = pd.read_parquet(validation / layout.NETWORKS_FILE)
    rows = rows[(rows["execution"] == FP32) & (rows["source"] == PREDICTED) & (rows["pass"] == TRAINING)]
    ratio = rows["measured_energy_j"] / rows["energy_j"]
    vit = rows[rows["network"] == "vit_b_16"]
    whole = f"Training in fp32, {len(rows)} passes of networks of the training data, each held out: {spread(ratio)}."
    return [
        whole,
        *(
            f"{one.gpu.upper()}, {one.network_id}: {one.measured_energy_j:.1f} J, predicted {one.energy_j:.1f} J."
            for one in vit.itertuples()
        ),
    ]


def main() -> None:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictors", type=Path, default=score.HERE.parents[1] / "resources/predictors")
    given = parser.parse_args()
    catalogue = score.Catalogue()
    rows = pd.concat([compared(gpu, given.predictors, catalogue) for gpu in GPUS])
    table = [
        [*key, len(own), spread(own["device"]), spread(own["dynamic"]), spread(own["dynamic"] / own["device"])]
        for key, own in rows.groupby(["class", "precision", "pass"])
        if len(own) >= _FEWEST
    ]
    result_file.write(
        "unseen-networks",
        "Which passes draw more or less than predicted",
        ["most energy is of", "precision", "pass", "passes", "device time", "dynamic energy", "dynamic power"],
        table,
        file=result_file.RESULTS / "fresh-energy-bias.json",
        hardware=", ".join(f"NVIDIA {gpu.upper()}" for gpu in GPUS),
        notes=[
            "Measured over predicted: 10th percentile / median / 90th percentile of device-bound passes, both GPUs.",
            *held_out(given.predictors.parent / layout.VALIDATION),
        ],
    )
    for row in table:
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
