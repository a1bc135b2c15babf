"""What limits the energy of unseen networks: the time that their host takes, or what their kernels draw.

    python benchmarks/fresh/energy_limits.py [--predictors resources/predictors]

Energy is dynamic energy plus idle power times time. Of all held-out sets, on the host of their day (`hosts.py`), it is
predicted as ever, once more with the measured time, and once more with the measured dynamic energy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from clockwatt.predict.answerer import predict_network
from clockwatt.predict.gpu_predictor import BulkPredictor, load_models
from clockwatt.schema.execution import ExecutionSettings

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.fresh import hosts, score
from benchmarks.fresh.intervals import GPUS

_DEVICE_BOUND = 1.1
"""Most of time over device time of a pass that its host does not slow down."""
ENERGIES = ("as predicted", "with the measured time", "with the measured dynamic energy")


def compared(gpu: str, predictors: Path, catalogue: score.Catalogue) -> pd.DataFrame:
    """Return the relative error of each of `ENERGIES` for each pass, and whether its host slows it down."""
    rows = score.measured(sorted(score.HERE.glob(f"measured-{gpu}-*.parquet")))
    rows = rows[rows["energy_j"].notna()]
    traces = [catalogue.traced(*key) for key in zip(rows["subject_id"], rows["pass"], strict=True)]
    bulk = BulkPredictor.of(load_models(predictors)[gpu], traces, ["default"])
    found = []
    for traced, host, row in zip(traces, hosts.hosts_of(rows, traces, bulk), rows.to_dict("records"), strict=True):
        execution = ExecutionSettings(row["execution"])
        stated = predict_network(bulk, traced, "default", execution=execution, host=host).expected
        idle_j = stated.energy_j - stated.energy_dynamic_j
        seen_dynamic_j = row["energy_j"] - row["power_idle_w"] * row["time_eager_s"]
        energies = (
            stated.energy_j,
            stated.energy_dynamic_j + idle_j * row["time_eager_s"] / stated.time_s,
            seen_dynamic_j + idle_j,
        )
        errors = {name: abs(energy / row["energy_j"] - 1) for name, energy in zip(ENERGIES, energies, strict=True)}
        bound = "device" if row["time_eager_s"] <= _DEVICE_BOUND * row["device_s"] else "host"
        found.append(errors | {"gpu": gpu, "bound": bound})
    return pd.DataFrame(found)


def main() -> None:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictors", type=Path, default=score.HERE.parents[1] / "resources/predictors")
    given = parser.parse_args()
    catalogue = score.Catalogue()
    table = pd.concat([compared(gpu, given.predictors, catalogue) for gpu in GPUS])
    rows = []
    for gpu, of_gpu in table.groupby("gpu"):
        parts = {"all": of_gpu} | {f"{name}-bound": own for name, own in of_gpu.groupby("bound")}
        for name, own in parts.items():
            spreads = [np.percentile(own[energy].dropna() * 100, [50, 90]) for energy in ENERGIES]
            rows.append([str(gpu).upper(), name, len(own), *(f"{low:.1f} / {high:.1f}" for low, high in spreads)])
    result_file.write(
        "unseen-networks",
        "What limits the energy of unseen networks",
        ["GPU", "passes", "number", *(f"energy {name}" for name in ENERGIES)],
        rows,
        hardware="NVIDIA H100, NVIDIA H200",
        file=result_file.RESULTS / "fresh-energy-limits.json",
        notes=["Errors: median / 90th percentile in %. The host of a day is calibrated by other networks of that day."],
    )


if __name__ == "__main__":
    main()
