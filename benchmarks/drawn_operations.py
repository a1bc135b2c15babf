"""Score predictors on operations that were drawn anew, measured on another day, and fitted to by none of them.

    python benchmarks/drawn_operations.py [--predictors resources/predictors] [--rows NAME --about KINDS]

`drawn/GPU/` holds operations of the kinds with the largest errors (`design.families`, a seed of their own) and their
rows. Such as the predictors were fitted to are left out. Once all are scored, they may be fitted:

    python tools/pack_reference.py resources/reference/h100 h100 --designed benchmarks/drawn/h100/rows \
        --drawn benchmarks/drawn/h100
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.predict.gpu_predictor import GpuPredictor, load_models
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema import layout, records
from clockwatt.schema.costs import ENERGY_DYNAMIC_CORRECTED, TIME_DEVICE_CORRECTED
from clockwatt.schema.execution import ExecutionSettings

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of this script is what Python looks into
from benchmarks import result_file

HERE = Path(__file__).parent / "drawn"
_KINDS = {"lstm": "recurrent", "gru": "recurrent", "scaled_dot_product_attention": "attention, decoding",
          "conv3d": "3-D convolution", "conv1d": "1-D convolution", "interpolate": "interpolation"}  # fmt: skip
_POINT = "default"


def kind_of(operation_class: str) -> str:
    """Return the row of the table that an operation counts in."""
    if operation_class.startswith("conv_transpose"):
        return "transposed convolution"
    return _KINDS.get(operation_class, "grouped convolution" if operation_class == "conv2d" else "others")


def compared(gpu: str, model: GpuPredictor, name: str) -> pd.DataFrame:
    """Return predicted over measured device time and dynamic energy of each operation, and whether intervals hold."""
    drawn = files.read_table(HERE / gpu / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA).to_pandas()
    known = {name for folder in resource("reference").glob(f"{gpu}*") for name in files.read_table(
        folder / layout.CATALOGUE / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA, ["operation_id"]
    )["operation_id"].to_pylist()}  # fmt: skip
    drawn = drawn[~drawn["operation_id"].isin(known)]
    paths = sorted((HERE / gpu / "rows").glob(f"{name}.parquet"))
    if not paths:
        return pd.DataFrame()
    rows = pd.concat([files.read_table(path, records.MEASUREMENT_SCHEMA).to_pandas() for path in paths])
    rows = rows[(rows["kind"] == records.OPERATION) & (rows["status"] == records.OK) & (rows["time_device_s"] > 0)]
    found = []
    for (pass_, execution), own in rows.groupby(["pass", "execution"]):
        operations = drawn[drawn["pass"] == pass_].drop_duplicates("operation_id")
        operations = operations[operations["operation_id"].isin(own["subject_id"])].reset_index(drop=True)
        if operations.empty:
            continue
        settings = ExecutionSettings(str(execution))
        costs = model.costs(operations, str(pass_), execution=settings).at([_POINT])[_POINT]
        seen = own.drop_duplicates("subject_id").set_index("subject_id").loc[operations["operation_id"]]
        dynamic_j = (seen["power_w"] - seen["power_idle_w"]) * seen["time_eager_s"]
        parts = {"gpu": gpu, "pass": pass_, "kind": operations["operation_class"].map(kind_of),
                 "date": pd.to_datetime(seen["started_us"].to_numpy(), unit="us").strftime("%Y-%m-%d"),
                 "16 bits": operations["dtype"].isin(["float16", "bfloat16"])}  # fmt: skip
        for name, target, measured in (
            ("device", TIME_DEVICE_CORRECTED, seen["time_device_s"]), ("energy", ENERGY_DYNAMIC_CORRECTED, dynamic_j)
        ):  # fmt: skip
            place, values = TARGETS.index(target), measured.to_numpy(float)
            parts[name] = costs.mean[:, place] / values
            parts[f"{name} held"] = (costs.end(0)[:, place] <= values) & (values <= costs.end(1)[:, place])
        found.append(pd.DataFrame(parts))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def errors(ratio: NDArray[np.float64]) -> str:
    """Return median and 90th percentile of the relative error, and the median of the ratio."""
    off = np.abs(ratio - 1) * 100
    return f"{np.median(off):.1f} / {np.quantile(off, 0.9):.0f}, {np.median(ratio):.2f}"


def main() -> None:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictors", type=Path, default=resource("predictors"))
    parser.add_argument("--rows", default="*", metavar="NAME", help="score rows of drawn/GPU/rows/NAME.parquet alone")
    parser.add_argument("--about", metavar="KINDS", help="what these rows hold, for the title")
    options = parser.parse_args()
    models = load_models(options.predictors)
    found = [compared(folder.name, models[folder.name], options.rows) for folder in sorted(HERE.iterdir())]
    if not (table := pd.concat(found)).size:
        sys.exit(f"error: {HERE}: all operations are in the training data. Draw and measure new ones.")
    rows = []
    for (gpu, kind, narrow, pass_), own in table.groupby(["gpu", "kind", "16 bits", "pass"]):
        energies = own["energy"].dropna().to_numpy()
        rows.append([
            str(gpu).upper(), kind, "16 bits" if narrow else "float32", pass_, len(own),
            errors(own["device"].to_numpy()), f"{100 * own['device held'].mean():.0f}%",
            len(energies), errors(energies) if len(energies) else "–",
        ])  # fmt: skip
    result_file.write(
        "predictors",
        f"Operations drawn anew, of the kinds with the largest errors{f': {options.about}' * bool(options.about)}",
        ["GPU", "kind", "dtype", "pass", "operations", "device time", "in its 90 % interval", "with energy",
         "dynamic energy"],
        rows,
        hardware=", ".join((*(f"NVIDIA {gpu.upper()}" for gpu in table["gpu"].unique()),
                            f"measured on {', '.join(sorted(table['date'].unique()))}")),
        notes=["Errors: median / 90th percentile in %, and the median of predicted over measured.",
               "The predictors that were scored had not been fitted to them; later ones are."],
        file=result_file.RESULTS / f"drawn_operations{f'-{options.rows[11:]}' * bool(options.about)}.json",
    )  # fmt: skip


if __name__ == "__main__":
    main()
