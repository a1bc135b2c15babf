"""Compare reduce-overhead with eager and compiled passes, measured in turn on an H200 and predicted before.

    python benchmarks/compiled/reduced.py

`measure.py` and `predict.py` made the files, with `--folder benchmarks/compiled/reduced` and `--modes`.
"""

from __future__ import annotations

import json
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
    rows = []
    for line in lines:
        answers = predicted[len(MODES) * line["number"] :]
        for answer, (mode, words) in zip(answers, MODES.items(), strict=False):
            found = line["modes"][mode]
            low, high = answer["intervals"]["device_s"]
            rows.append([
                Path(line["network"]["name"]).stem, line["pass"], words, f"{1e3 * found['device_s']:.3f}",
                f"{1e3 * answer['device_s']:.3f} ({1e3 * low:.2f}–{1e3 * high:.2f})", f"{1e3 * found['time_s']:.2f}",
                f"{1e3 * answer['time_s']:.2f}", f"{found['energy_j']:.2f}", f"{answer['energy_j']:.2f}",
            ])  # fmt: skip
    result_file.write(
        "compiled-passes", "Three small passes with reduce-overhead: H200",
        ["network", "pass", "mode", "device ms", "predicted (90 %)", "ms", "predicted", "J", "predicted"], rows,
        notes=[
            "The other nine of twelve passes, all training among them, did not compile in 50 s on this host.",
            "The host was not calibrated, and slow: eager passes took twice the predicted time.",
            "With reduce-overhead a pass took 1.02 to 1.5 times its device time; 1.0 to 1.1 times were predicted.",
        ],
        file=result_file.RESULTS / "compiled-reduced.json", hardware="NVIDIA H200, PyTorch 2.11",
    )  # fmt: skip


if __name__ == "__main__":
    main()
