"""Pack runs that others measured at power limits and clocks, so that the project ships them.

    python tools/pack_power_runs.py TABLES_DIR [--epochs TRAIN_CSV]

Reads `zeus-power-limits.parquet` and `dvfs-v100.parquet` in TABLES_DIR and writes
`resources/studies/power/runs-by-others.parquet`. `--epochs` names Zeus's `summary_train.csv`, which has the epochs to a
target metric. Without it the epochs that were packed before are kept. A batch size of which a run missed the target has
no epochs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import pyarrow as pa
from packing import rounded_column, write_small

from clockwatt.io.resources import resource

PACKED = Path("studies/power/runs-by-others.parquet")
LABELS = {"Tesla V100": "v100", "Tesla P100": "p100"}
KERNEL_GPU = "v100-pcie"
TARGETS = {
    "cifar100": 0.6, "imagenet": 0.65, "squad": 84.0, "librispeech": 40.0, "movielens-1m": 0.41, "sentiment140": 0.84,
}  # fmt: skip
"""Metrics that Zeus trains to, by data set."""
CONFIGURATION = ["dataset", "optimizer", "batch_size"]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, metavar="TABLES_DIR")
    parser.add_argument("--epochs", type=Path, metavar="TRAIN_CSV")
    parser.add_argument("--output", type=Path, default=resource("studies/power") / PACKED.name)
    given = parser.parse_args()
    epochs = epochs_to_target(given.epochs) if given.epochs else packed_epochs()
    limits = power_limits(pd.read_parquet(given.tables / "zeus-power-limits.parquet"), epochs)
    rows = pd.concat([limits, clocks(pd.read_parquet(given.tables / "dvfs-v100.parquet"))], ignore_index=True)
    table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
    for name in ("time_s", "power_w", "epochs"):
        table = rounded_column(table, name, {})
    write_small(table, given.output)
    print(given.output, len(rows), "rows,", given.output.stat().st_size, "bytes")


def power_limits(traces: pd.DataFrame, epochs: pd.Series) -> pd.DataFrame:
    """Return Zeus's epochs at power limits."""
    of_text = traces["network"] == "bert_base_uncased"
    names = traces["network"].where(~of_text, "bert_" + traces["dataset"])
    names = names.where(traces["optimizer"].ne("adam") | traces["network"].ne("shufflenetv2"), "shufflenetv2_adam")
    found = epochs.reindex(pd.MultiIndex.from_frame(traces[CONFIGURATION])).to_numpy()
    return pd.DataFrame(
        {
            "gpu": traces["gpu"].map(LABELS), "network": names, "dataset": traces["dataset"],
            "optimizer": traces["optimizer"], "batch_size": traces["batch_size"].astype("Int64"),
            "power_limit_w": traces["power_limit_w"].astype("Int64"), "time_s": traces["time_per_epoch_s"],
            "power_w": traces["power_w"], "epochs": found,
        }
    )  # fmt: skip


def clocks(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return kernels at core clocks, but those whose clock is in doubt."""
    sure = kernels[~kernels["label_suspect"]]
    several = sure["benchmark"] + "/" + sure["kernel"] + "/" + sure["arg_no"]
    names = sure["benchmark"].where(sure["suite"] == "real", several)
    return pd.DataFrame(
        {"gpu": KERNEL_GPU, "network": names, "sm_clock_mhz": sure["core_mhz"].astype("Int64")}
        | {name: sure[name] for name in ("time_s", "power_w")}
    )


def epochs_to_target(train: Path) -> pd.Series:
    """Return the mean number of epochs to the target of each configuration; NaN where a run missed it."""
    runs = pd.read_csv(train)
    at_target = runs[(runs["target_metric"] - runs["dataset"].map(TARGETS)).abs() < 1e-9]
    return at_target.groupby(CONFIGURATION)["target_epoch"].agg(lambda epochs: epochs.mean(skipna=False))


def packed_epochs() -> pd.Series:
    """Return the epochs that were packed before."""
    packed = pd.read_parquet(resource(str(PACKED)))
    return packed.dropna(subset=["batch_size"]).groupby(CONFIGURATION)["epochs"].first()


if __name__ == "__main__":
    main()
