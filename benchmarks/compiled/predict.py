"""Predict the drawn passes for a GPU, eager, compiled and as a captured graph, before they are measured.

    python benchmarks/compiled/predict.py [--folder DIR] [--host NAME] [--part K/N] [--cache DIR]
        [--output FILE] [--gpu h200] [--modes eager,compiled,reduced]

The last part to end writes FILE, `predicted-GPU.json` of the set's folder by default.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import clockwatt
from clockwatt.config import NetworkConfig

HERE = Path(__file__).parent
MODES = {"eager": "", "compiled": "+compile", "graph": "+cuda_graph"}
EVERY_MODE = MODES | {"reduced": "+reduce-overhead"}


def predicted(predictors: Any, entry: dict[str, Any], mode: str, gpu: str, host: str | None) -> dict[str, Any]:
    """Return what is predicted of a pass in a mode."""
    network = NetworkConfig.model_validate(entry["network"])
    inputs = {name: given.model_dump(exclude_defaults=True) for name, given in network.by_keyword.items()}
    answer = predictors.predict(
        network.name, tuple(inputs[""]["shape"]) if "" in inputs else inputs, gpu=gpu, pass_=entry["pass"],
        precision=entry["precision"] + EVERY_MODE[mode], host=host,
    )  # fmt: skip
    memory = None if answer.memory is None else answer.memory.to_dict()
    return {
        "network_id": answer.network_id, "pass": entry["pass"], "mode": mode, "precision": entry["precision"],
        **{name: getattr(answer.expected, name)
           for name in ("device_s", "time_s", "host_s", "energy_j", "power_w", "calls")},
        "intervals": answer.intervals, "memory": memory,
    }  # fmt: skip


def main() -> None:
    """Predict a part of the passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=HERE, help="with the set's passes.json")
    parser.add_argument("--host", help="that was calibrated, by name")
    parser.add_argument("--cache", type=Path, default=Path("results/compiled"))
    parser.add_argument("--part", default="1/1", help="K/N: predict every N-th pass, from the K-th")
    parser.add_argument("--output", type=Path, help="default: predicted-GPU.json beside passes.json")
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--modes", default=",".join(MODES), help=f"of {', '.join(EVERY_MODE)}")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    arguments.cache, arguments.output = (
        arguments.cache.resolve(),
        (arguments.output or folder / f"predicted-{arguments.gpu}.json").resolve(),
    )
    arguments.cache.mkdir(parents=True, exist_ok=True)
    os.chdir(HERE.parents[1])  # configurations are named from the checkout's root
    part, parts = map(int, arguments.part.split("/"))
    predictors = clockwatt.load()
    passes = json.loads((folder / "passes.json").read_text(encoding="utf-8"))
    places = [(entry, mode, arguments.cache / f"predicted-{number:02d}-{mode}.json")
              for number, entry in enumerate(passes) for mode in arguments.modes.split(",")]  # fmt: skip
    for entry, mode, path in places[part - 1 :: parts]:
        if not path.exists():
            try:
                found = predicted(predictors, entry, mode, arguments.gpu, arguments.host)
            except clockwatt.ClockwattError as error:
                found = {"network": entry["network"]["name"], "pass": entry["pass"], "mode": mode, "error": str(error)}
            path.write_text(json.dumps(found))
            print(path.name, found.get("device_s"), found.get("error"), flush=True)
    if all(path.exists() for _, _, path in places):
        rows = [path.read_text() for _, _, path in places]
        arguments.output.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
