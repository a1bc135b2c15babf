"""How well shipped predictors of the A30 and the RTX 2080 Ti do on networks that were left out of their training.

    python benchmarks/thesis_left_out.py [--folds 10]

Reads the reference data `a30` and `rtx2080ti` (back-to-back times, C. Nicolai, master thesis, Heidelberg) and the
networks that the thesis measured whole on the same cards. Networks of a tenth of the architectures are left out at a
time, with all operations that they call, and predicted from the other operations, with the settings of the shipped
predictors. The rows "shipped" are of the shipped predictors, which look up operations that were measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import others
import pandas as pd
import pyarrow.parquet as pq
import result_file
from sklearn.metrics import r2_score

from clockwatt.config import FitConfig, NetworkConfig, TrainingConfig
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.description import shipped_predictors
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import GpuPredictor, load_models
from clockwatt.predict.tracing import NetworkTracer, TracedNetwork
from clockwatt.schema import layout
from clockwatt.schema.execution import DEFAULT, FP32, ExecutionSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import pack_predictors as packing

GPUS = ("a30", "rtx2080ti")
MEASURED = {"time_s": "time_per_iter_s", "energy_j": "energy_per_iter_j", "power_w": "power_w"}
OPERATIONS = layout.OPERATIONS_FILE
NOTES = (
    "Errors are the median and the 90th percentile. R² is of the logarithm of time and energy, and of power in watts.",
    "A prediction is the sum of back-to-back times, which include gaps between launches.",
    "Predictors of training are not shipped, since these errors are large.",
    "Operations in training were timed alone. On the A30 all iterations add to one gradient of the input.",
)


def main() -> None:
    """Print and write the errors of each GPU and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=10)
    given = parser.parse_args()
    found = []
    for gpu in GPUS:
        networks = others.read(f"thesis-{gpu}-networks.parquet")
        networks["execution"] = [DEFAULT if tf32 else FP32 for tf32 in networks["tf32"]]
        traced = traces(networks)
        shipped = load_models(shipped_predictors())[gpu]
        answerable = networks["mode"].isin(shipped.description.passes)
        pairs = zip(traced, networks["execution"], answerable, strict=True)
        predicted = {
            "held out": held_out(gpu, networks, traced, given.folds),
            "shipped": [asked(shipped, *pair) if fitted else {} for *pair, fitted in pairs],
        }
        for kind, values in predicted.items():
            rows = pd.concat([networks, pd.DataFrame(values).add_prefix("of_")], axis=1)
            rows = rows.dropna(subset="of_time_s")
            for (pass_, execution), own in rows.groupby(["mode", "execution"]):
                found.append([gpu, pass_, execution, kind, len(own), *errors(own)])
                print(*found[-1], sep=" | ", flush=True)
    columns = ["GPU", "pass", "precision", "operations of the network", "networks", "time", "energy", "power"]
    result_file.write("measurements-by-others", "Networks on the A30 and the RTX 2080 Ti", columns, found, notes=NOTES)


def traces(networks: pd.DataFrame) -> list[TracedNetwork]:
    """Return the traced networks, in their order."""
    tracer = NetworkTracer(Path("none"), TrainingConfig())
    return [
        tracer.trace(NetworkConfig(name=row.model, input=[int(size) for size in row.input_shape.split("x")]), row.mode)
        for row in networks.itertuples()
    ]


def held_out(
    gpu: str, networks: pd.DataFrame, traced: list[TracedNetwork], folds: int, predictor: str = "roofline"
) -> list[dict[str, float]]:
    """Return predictions of the networks, each without the operations of its fold of architectures."""
    campaign = packing.campaign_of([gpu])
    settings = campaign.fit.model_dump() | {"predictors": [predictor]}
    campaign = campaign.model_copy(update={"fit": FitConfig(**settings)})
    numbers = {name: number % folds for number, name in enumerate(sorted(networks["model"].unique()))}
    fold = networks["model"].map(numbers).to_numpy()
    predicted: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        dataset = Path(temporary) / "dataset"
        packing.join(campaign, dataset)
        table = pq.read_table(dataset / OPERATIONS)
        ids = table["subject_id"].to_pandas()
        for number in sorted(set(numbers.values())):
            members = np.flatnonzero(fold == number)
            called = {name for member in members for name in traced[member].operations["operation_id"]}
            pq.write_table(table.filter((~ids.isin(called)).to_numpy()), dataset / OPERATIONS)
            folder = Path(temporary) / str(number)
            fit(campaign, dataset, dataset / layout.CATALOGUE, folder)
            model = load_models(folder)[gpu]
            predicted |= {int(at): asked(model, traced[at], networks["execution"][at]) for at in members}
    return [predicted[number] for number in range(len(networks))]


def asked(model: GpuPredictor, traced: TracedNetwork, execution: str) -> dict[str, float]:
    """Return time, energy and power of a network."""
    expected = predict_network(model, traced, "default", execution=ExecutionSettings(execution)).expected
    return {name: getattr(expected, name) for name in MEASURED}


def errors(rows: pd.DataFrame) -> list[str]:
    """Return median and 90th percentile of the absolute error, and R², of each quantity."""
    found = []
    for name, column in MEASURED.items():
        predicted, measured = rows[f"of_{name}"].astype(float), rows[column]
        off = (predicted / measured - 1).abs()
        scale = np.asarray if name == "power_w" else np.log
        found.append(
            f"{off.median():.1%} / {off.quantile(0.9):.1%} ({r2_score(scale(measured), scale(predicted)):.3f})"
        )
    return found


if __name__ == "__main__":
    main()
