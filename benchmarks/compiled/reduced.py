"""Compare reduce-overhead with eager and compiled passes, measured in turn on an H200 and predicted before.

    python benchmarks/compiled/reduced.py

`measure.py` and `predict.py` made the files, with `--folder benchmarks/compiled/reduced` and `--modes`.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file

FOLDER = Path(__file__).parent / "reduced"
MODES = {"eager": "eager", "compiled": "compile", "reduced": "reduce-overhead"}


def main() -> None:
    """Write a row for each pass and mode."""
    predicted = json.loads((FOLDER / "predicted-h200.json").read_text(encoding="utf-8"))
    lines = map(json.loads, (FOLDER / "measured-h200.jsonl").read_text(encoding="utf-8").splitlines())
    rows, off, over = [], {words: list[float]() for words in MODES.values()}, []
    for line in lines:
        answers = predicted[len(MODES) * line["number"] :]
        for answer, (mode, words) in zip(answers, MODES.items(), strict=False):
            found = line["modes"][mode]
            if found["device_s"] is None:  # its kernels did not fit into the launch queue
                continue
            low, high = answer["intervals"]["device_s"]
            off[words].append(abs(answer["device_s"] / found["device_s"] - 1))
            if mode == "reduced":
                over.append(found["time_s"] / found["device_s"])
            rows.append([
                Path(line["network"]["name"]).stem, line["pass"], words, f"{1e3 * found['device_s']:.3f}",
                f"{1e3 * answer['device_s']:.3f} ({1e3 * low:.2f}–{1e3 * high:.2f})", f"{1e3 * found['time_s']:.2f}",
                f"{1e3 * answer['time_s']:.2f}", f"{found['energy_j']:.2f}", f"{answer['energy_j']:.2f}",
            ])  # fmt: skip
    result_file.write(
        "compiled-passes", "Small passes with reduce-overhead: H200",
        ["network", "pass", "mode", "device ms", "predicted (90 %)", "ms", "predicted", "J", "predicted"], rows,
        notes=[
            "Median error of device time: "
            + ", ".join(f"{words} {statistics.median(errors):.0%}" for words, errors in off.items()) + ".",
            f"With reduce-overhead, a pass took {min(over):.2f} to {max(over):.2f} times its device time.",
            "The host was not calibrated.",
        ],
        file=result_file.RESULTS / "compiled-reduced.json", hardware="NVIDIA H200, PyTorch 2.11",
    )  # fmt: skip


if __name__ == "__main__":
    main()
