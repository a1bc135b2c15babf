"""How well whole networks are told from a table of back-to-back times alone, on an A30.

    python benchmarks/thesis_networks.py [--passes inference training]

Imports the operations of C. Nicolai's master thesis as `clockwatt import` does, fits predictors to them, and asks these
for the networks that the thesis measured whole on the same card: sums of back-to-back times and of their energies,
measured where the table has the operation.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import others
import pandas as pd
import result_file
from thesis_a30 import CONTRADICTION

from clockwatt import config
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.dataset.import_table import CONFIG_FILE, DATASET, Request, import_table
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.predict.tracing import NetworkTracer
from clockwatt.schema import layout
from clockwatt.schema.execution import of_tf32

GPU = "a30"
COLUMNS = {"operation": "operator", "pass": "mode", "time_eager_s": "time_per_iter_s"}
MEASURED = {"time_s": "time_per_iter_s", "energy_j": "energy_per_iter_j", "power_w": "power_w"}


def main() -> None:
    """Write the errors of each pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", nargs="+", default=["inference", "training"])
    given = parser.parse_args()
    measured = others.read("thesis-a30-networks.parquet")
    table = []
    with tempfile.TemporaryDirectory() as temporary:
        model = fitted(Path(temporary))
        for pass_, own in measured[measured["mode"].isin(given.passes)].groupby("mode"):
            rows = [told(model, row, str(pass_)) for row in own.itertuples(index=False)]
            table += report(str(pass_), pd.concat([own.reset_index(drop=True), pd.DataFrame(rows)], axis=1))
    columns = ["pass", "networks", "calls measured", "quantity", "median", "mean", "90th percentile", "signed median",
               "coverage of the 90 % interval"]  # fmt: skip
    result_file.write("measurements-by-others", "Whole networks from back-to-back times alone", columns, table,
                      hardware="NVIDIA A30 (public table); computed without a GPU")  # fmt: skip


def fitted(folder: Path):  # the predictors of the GPU
    """The table imported and fitted."""
    rows = others.read("thesis-a30-operations.parquet")
    rows[rows["repeat_time_ratio"] < CONTRADICTION].to_parquet(folder / "table.parquet")
    imported = folder / GPU
    import_table(Request(folder / "table.parquet", GPU, "NVIDIA A30", columns=COLUMNS), imported)
    dataset, predictors = imported / DATASET, imported / "predictors"
    fit(config.load(imported / CONFIG_FILE), dataset, dataset / layout.CATALOGUE, predictors)
    return load_models(predictors)[GPU]


def told(model, network, pass_: str) -> dict[str, float]:
    """What the predictors say of one network."""
    shape = [int(size) for size in network.input_shape.split("x")]
    traced = NetworkTracer(Path("none"), TrainingConfig()).trace(NetworkConfig(name=network.model, input=shape), pass_)
    found = predict_network(model, traced, "default", execution=of_tf32(bool(network.tf32)))
    ends = {f"{end}_{name}": found.intervals[name][number] for number, end in enumerate(("low", "high"))
            for name in MEASURED}  # fmt: skip
    values = {f"told_{name}": getattr(found.expected, name) for name in MEASURED}
    return {**values, **ends, "looked_up": found.measured_calls / found.expected.calls}


def report(pass_: str, rows: pd.DataFrame) -> list[list[object]]:
    """Return the errors of each quantity, as rows."""
    table = []
    for name, column in MEASURED.items():
        off = rows[f"told_{name}"] / rows[column] - 1
        inside = rows[column].between(rows[f"low_{name}"], rows[f"high_{name}"]).mean()
        size = off.abs()
        errors = [f"{error:.1%}" for error in (size.median(), size.mean(), size.quantile(0.9))]
        table.append([pass_, len(rows), f"{rows['looked_up'].mean():.0%}", name.split("_")[0], *errors,
                      f"{off.median():+.1%}", f"{inside:.0%}"])  # fmt: skip
    return table


if __name__ == "__main__":
    main()
