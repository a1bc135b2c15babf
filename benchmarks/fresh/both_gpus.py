"""Compare the ratio H100 / H200 of held-out networks, predicted and measured, in time and energy.

    python benchmarks/fresh/both_gpus.py H100.csv H200.csv --figure docs/results/h100-h200.png --result FILE.json

The two tables are what `score.py report --output` writes. A network, pass and settings that both have gives one point.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("agg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).parents[1]))
import result_file

KEY = ["network_id", "pass", "execution"]
QUANTITIES = {
    "device time": ("seen_device_s", "device"),
    "energy, host calibrated": ("seen_energy_j", "energy on its host"),
}
"""Title to the column of what was measured and that of the relative error."""


def ratios(h100: pd.DataFrame, h200: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return measured and predicted ratio per network by quantity; repeated measurements are averaged."""
    found = {}
    for title, (seen, error) in QUANTITIES.items():
        parts = []
        for rows in (h100, h200):
            known = rows[rows[seen].notna() & rows[error].notna()]
            values = known[KEY].assign(measured=np.log(known[seen]), predicted=np.log(known[seen] * (1 + known[error])))
            parts.append(values.groupby(KEY).mean())
        joined = parts[0].add_suffix("_h100").join(parts[1].add_suffix("_h200"), how="inner")
        found[title] = pd.DataFrame(
            {what: np.exp(joined[f"{what}_h100"] - joined[f"{what}_h200"]) for what in ("measured", "predicted")}
        )
    return found


def draw(found: dict[str, pd.DataFrame], output: Path) -> None:
    """Draw predicted against measured ratios, a panel for each quantity."""
    figure, axes = plt.subplots(1, len(found), figsize=(9, 4.4), layout="constrained")
    for axis, (title, table) in zip(axes, found.items(), strict=True):
        low, high = 0.9 * table.min().min(), 1.1 * table.max().max()
        axis.plot([low, high], [low, high], color="0.6", linewidth=1)
        for pass_, marker in (("inference", "o"), ("training", "^")):
            rows = table[table.index.get_level_values("pass") == pass_]
            axis.scatter(rows["measured"], rows["predicted"], s=16, marker=marker, alpha=0.7, label=pass_)
        axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        axis.set(title=f"{title}, {len(table)} passes", xlabel="measured H100 / H200", ylabel="predicted H100 / H200")
        steps = (0.5, 0.7, 1, 1.4, 2, 3) if high / low > 2 else (0.8, 0.9, 1, 1.1, 1.2)
        ticks = [tick for tick in steps if low <= tick <= high]
        axis.set_xticks(ticks, map(str, ticks))
        axis.set_yticks(ticks, map(str, ticks))
        axis.minorticks_off()
        axis.legend()
    figure.savefig(output, dpi=150)


def main() -> None:
    """Compare what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("h100", type=Path)
    parser.add_argument("h200", type=Path)
    parser.add_argument("--figure", type=Path, required=True)
    parser.add_argument("--result", type=Path, required=True)
    given = parser.parse_args()
    found = ratios(pd.read_csv(given.h100), pd.read_csv(given.h200))
    draw(found, given.figure)
    rows = []
    for title, table in found.items():
        off = (table["predicted"] / table["measured"] - 1).abs() * 100
        seen = table["measured"].quantile([0.1, 0.5, 0.9])
        rows.append([title, len(table), " / ".join(f"{value:.2f}" for value in seen),
                     f"{off.median():.1f} / {off.quantile(0.9):.1f} / {off.max():.0f}"])  # fmt: skip
    result_file.write(
        "unseen-networks",
        "H100 against H200: ratio of each network",
        [
            "quantity",
            "passes",
            "measured ratio: 10th / 50th / 90th percentile",
            "error of the ratio in %: median / 90th / worst",
        ],
        rows,
        file=given.result,
        hardware="NVIDIA H100 and NVIDIA H200",
        notes=[f"![Predicted against measured ratio of H100 to H200]({given.figure.name})"],
    )


if __name__ == "__main__":
    main()
