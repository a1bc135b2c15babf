"""How far off device times of an H200 are for operations that were measured on an H100 alone.

    python benchmarks/transferred.py

The shipped predictors of the H200 knew them by transfer from the H100. `transferred-h200.parquet` holds what an H200
measured afterwards, as time alone. No predictor is trained on it yet.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import result_file

from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.schema import layout, records
from clockwatt.schema.execution import ExecutionSettings

HERE = Path(__file__).parent
LEAST = 200
"""Families with fewer operations are put together."""


def compared() -> pd.DataFrame:
    """Return family, measured time in s and relative error of the predicted of each operation, pass and precision."""
    rows = pq.read_table(HERE / "transferred-h200.parquet").to_pandas()
    rows = rows[(rows["kind"] == records.OPERATION) & (rows["status"] == records.OK) & (rows["time_device_s"] > 0)]
    catalogue = resource("reference/h100") / layout.CATALOGUE / layout.OPERATIONS_FILE
    operations = files.read_table(catalogue, records.OPERATION_SCHEMA).to_pandas()
    model, parts = load_models(resource("predictors"))["h200"], []
    for (pass_, execution), part in rows.groupby(["pass", "execution"]):
        asked = operations[(operations["pass"] == pass_) & operations["operation_id"].isin(part["subject_id"])]
        asked = asked.drop_duplicates("operation_id").set_index("operation_id", drop=False)
        told = model.predict(asked, pass_, "default", execution=ExecutionSettings(execution), look_up=False)
        predicted_s = told["time_device_corrected_s"].reindex(part["subject_id"]).to_numpy(float)
        family = asked["block"].str.split("-").str[0].reindex(part["subject_id"]).fillna("of networks").to_numpy(object)
        measured_s = part["time_device_s"].to_numpy(float)
        parts.append(pd.DataFrame({"family": family, "s": measured_s, "error": predicted_s / measured_s - 1}))
    return pd.concat(parts, ignore_index=True).dropna()


def main() -> None:
    """Compare, and write the table."""
    found = compared()
    counts = found["family"].map(found["family"].value_counts())
    found["family"] = found["family"].where(counts >= LEAST, "others")
    families = sorted(found.groupby("family"), key=lambda pair: -len(pair[1]))
    rows = []
    for name, part in (("all", found), *families):
        off = part["error"].abs() * 100
        weighted = 100 * (part["error"].abs() * part["s"]).sum() / part["s"].sum()
        rows.append([name.replace("_", " "), len(part), f"{off.median():.1f} / {off.quantile(0.9):.1f} %",
                     f"{100 * part['error'].median():+.1f} %", f"{weighted:.1f} %"])  # fmt: skip
    result_file.write(
        "new-gpu",
        "Device times of an H200 known by transfer alone",
        ["operations", "rows", "error: median / 90th percentile", "median with its sign", "error weighted by time"],
        rows,
        notes=["The shipped predictors were fitted before an H200 measured these designed operations."],
        hardware="1 × NVIDIA H200; predicted without a GPU",
    )


if __name__ == "__main__":
    main()
