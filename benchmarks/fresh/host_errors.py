"""Split errors of host time on calibrated hosts into what two hosts have in common and what each has alone.

    python benchmarks/fresh/host_errors.py H100.csv H200.csv --result FILE.json

The two tables are what `score.py report --output` writes, of passes that were measured on a host of each GPU on the
same day of the draw. A wrong prediction is wrong on both hosts; a slow moment of a host is not seen on the other.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))  # modules of benchmarks are imported by their place in the checkout

from benchmarks import result_file

KEY = ["network_id", "pass", "execution", "day"]
FEWEST = 10
"""Pairs of a day and pass for their median to say how far the two hosts are from their calibration."""


def errors(path: Path) -> pd.Series:
    """Return the logarithm of measured over predicted host time, by `KEY`, relative to the median of day and pass."""
    rows = pd.read_csv(path).drop_duplicates(KEY).set_index(KEY)
    found = np.log(rows["seen_host_s"] / rows["own_host_s"]).dropna()
    groups = found.groupby(["day", "pass"])
    return (found - groups.transform("median"))[groups.transform("size") >= FEWEST]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("h100", type=Path)
    parser.add_argument("h200", type=Path)
    parser.add_argument("--result", type=Path, required=True)
    given = parser.parse_args()
    both = pd.concat({"h100": errors(given.h100), "h200": errors(given.h200)}, axis=1).dropna()
    rows = []
    for name, pairs in [("all", both), *both.groupby("pass")]:
        covariance = np.cov(pairs["h100"], pairs["h200"])
        alone = np.sqrt(np.maximum(np.diag(covariance) - covariance[0, 1], 0))
        rows.append([
            name, len(pairs), " / ".join(f"{value:.0%}" for value in np.sqrt(np.diag(covariance))),
            f"{np.sqrt(max(covariance[0, 1], 0)):.0%}", " / ".join(f"{value:.0%}" for value in alone),
        ])  # fmt: skip
    result_file.write(
        "unseen-networks", "Errors of host time on two calibrated hosts",
        ["pass", "pairs", "standard deviation: H100's host / H200's", "common to both", "of each host alone"], rows,
        file=given.result, hardware="hosts of one NVIDIA H100 and of one NVIDIA H200 for each day",
        notes=["Logarithm of measured over predicted host time, less its median of the day, host and kind of pass.",
               "*Common*: the root of the covariance, which better predictions could remove."],
    )  # fmt: skip


if __name__ == "__main__":
    main()
