"""How far a second measurement of the same passes, minutes later on the same machine, is from the first.

    python benchmarks/fresh/repeated.py FIRST.parquet SECOND.parquet

No prediction can be closer to one measurement than another measurement is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))  # modules of benchmarks are imported by their place in the checkout

from benchmarks import result_file

PASS = ["subject_id", "pass", "execution", "gpu_uuid"]
QUANTITIES = {"time_device_s": "device time", "time_host_s": "host time", "time_eager_s": "time", "energy_j": "energy"}


def main() -> None:
    """Compare the files and write the result."""
    first, second = (pd.read_parquet(path).query("kind == 'network' and status == 'ok'") for path in sys.argv[1:])
    both = first.merge(second, on=PASS, suffixes=("", "_again"))
    bound = np.where(both["time_eager_s"] > 1.1 * both["time_device_s"], "by the host", "by the device")
    groups = {"all": np.full(len(both), True), **{one: bound == one for one in ("by the device", "by the host")}}
    rows = [
        [name, int(chosen.sum()), *(_apart(both[chosen], column) for column in QUANTITIES)]
        for name, chosen in groups.items()
    ]
    later = float((both["started_us_again"] - both["started_us"]).median()) / 60e6
    result_file.write(
        "unseen-networks", "The same passes minutes later", ["bound", "pairs", *QUANTITIES.values()], rows,
        file=result_file.RESULTS / "fresh-repeated.json", hardware=f"1 × {both['gpu_name'].iloc[0]}",
        notes=[f"Second measurement relative to the first, {later:.0f} minutes later: median / 90th percentile."],
    )  # fmt: skip


def _apart(both: pd.DataFrame, column: str) -> str:
    off = (both[f"{column}_again"] / both[column] - 1).abs().dropna()
    return f"{off.median():.1%} / {off.quantile(0.9):.1%}"


if __name__ == "__main__":
    main()
