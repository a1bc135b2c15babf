"""Whether compiled passes and CUDA graphs, predicted without a GPU, take what they took on an H100.

    python benchmarks/compiled.py

`compiled-h100.json` holds passes of 26 networks, each measured eager, compiled, and as a captured graph in turn, on
two H100s of one host (PyTorch 2.11): the median device time of seven blocks of queued passes. Each pass is asked of
the shipped predictors. Energies and host times are not compared: other networks were being compiled meanwhile.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

import clockwatt

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of this script is what Python looks into
from benchmarks import result_file

MEASURED = Path(__file__).parent / "compiled-h100.json"
MODES = {"eager": "", "compiled": "+compile", "graph": "+cuda_graph"}


def predicted(row: dict[str, Any], mode: str, folder: Path) -> Any:
    """Ask for a pass in a mode."""
    network = row["network"]
    if row["config"]:
        path = folder / f"{network.partition(':')[2]}.json"
        path.write_text(json.dumps(row["config"]), encoding="utf-8")
        network = f"hf:{path}"
    return clockwatt.predict(
        network, tuple(row["shape"]), gpu="h100", pass_=row["pass"], precision=row["precision"] + mode
    )


def scored() -> pd.DataFrame:
    """Return a row for each pass and mode: predicted over measured, whether its interval held, its half-width."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for row in json.loads(MEASURED.read_text(encoding="utf-8")):
            for name, mode in MODES.items():
                took_s = row[f"{name}_device_s"]
                if took_s is None:
                    continue
                answer = predicted(row, mode, Path(temporary))
                low, high = answer.intervals["device_s"]
                found.append(
                    {
                        "network": row["network"], "pass": row["pass"], "precision": row["precision"], "mode": name,
                        "measured_s": took_s, "predicted_s": answer.expected.device_s,
                        "held": low <= took_s <= high, "width": high / low,
                    }
                )  # fmt: skip
                print(*found[-1].values(), sep="\t")
    return pd.DataFrame(found)


def errors_of(some: pd.DataFrame) -> pd.Series:
    """Relative errors of device time."""
    return (some["predicted_s"] / some["measured_s"] - 1).abs()


def main() -> None:
    """Score, and write the table."""
    found = scored()
    key = ["network", "pass", "precision"]
    eager = found[found["mode"] == "eager"].set_index(key)
    rows, targets = [], []
    for (mode, pass_), some in [
        *(((mode, "both"), part) for mode, part in found.groupby("mode", sort=False)),
        *found.groupby(["mode", "pass"], sort=False),
    ]:
        errors, of_eager = errors_of(some), some.set_index(key).join(eager, rsuffix="_eager")
        ratio = (
            of_eager["predicted_s"] / of_eager["predicted_s_eager"]
            / (of_eager["measured_s"] / of_eager["measured_s_eager"]) - 1
        ).abs()  # fmt: skip
        rows.append(
            [
                mode, pass_, len(some), f"{100 * errors.median():.1f} / {100 * errors.quantile(0.9):.1f} %",
                "–" if mode == "eager" else f"{100 * ratio.median():.1f} / {100 * ratio.quantile(0.9):.1f} %",
                f"{100 * some['held'].mean():.0f} % / ±{100 * (some['width'].median() ** 0.5 - 1):.0f} %",
            ]
        )  # fmt: skip
        if pass_ == "both" and mode != "eager":
            targets += [
                result_file.target(f"H100, {mode}: device time, median", 100 * errors.median(), at_most=10, unit="%"),
                result_file.target(
                    f"H100, {mode}: device time, 90th percentile", 100 * errors.quantile(0.9), at_most=25, unit="%"
                ),
                result_file.target(f"H100, {mode}: ratio to eager, median", 100 * ratio.median(), at_most=10, unit="%"),
            ]
    result_file.write(
        "unseen-networks",
        "Compiled passes and CUDA graphs: H100, 2 cards",
        ["mode", "pass", "passes", "device time", "ratio to eager", "coverage of device time"],
        rows,
        targets=targets,
        notes=[
            "Errors: median / 90th percentile. Coverage of 90 % intervals / median half-width.",
            "The rules of fusion were written while looking at these passes.",
            "Nothing is fitted to them but the 1 µs a call that a CUDA graph saves.",
            "In tf32 and bf16-mixed. Energies are not compared: other networks were compiled on the host meanwhile.",
        ],
        hardware="2 × NVIDIA H100, PyTorch 2.11; predicted on 2 cores, no GPU",
    )


if __name__ == "__main__":
    main()
