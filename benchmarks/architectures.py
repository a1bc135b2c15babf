"""Which public architectures are traced, and why others are refused.

python benchmarks/architectures.py [--only WORD] [--passes inference,training] [--output FILE]

Every module of `torch.nn`, a model of each family of timm, and 60 models of transformers by small configurations are
traced in both passes, and the costs of their operations counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import result_file
from public_architectures import TORCH_NN, TRANSFORMERS, timm_families

from clockwatt.config import PASSES, NetworkConfig, TrainingConfig
from clockwatt.operations.catalogue import trace_rows
from clockwatt.operations.constructors import FAULTS

WITHOUT_TRAINING = "takes part in its output"
"""Of the message about modules without parameters, which have no training pass."""


def architectures(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Library, name and network of every architecture; configurations are written to `folder`."""
    for name in TORCH_NN:
        yield "torch.nn", name, {"name": f"public_architectures:{name}", "inputs": TORCH_NN[name][1]}
    for family, model in timm_families().items():
        yield "timm", family, {"name": f"timm:{model}", "input": [2]}
    for name, (configuration, given) in TRANSFORMERS.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(configuration))
        yield "transformers", name, {"name": f"hf:{path}", **given}


def traced(network: dict[str, Any], pass_: str) -> dict[str, Any]:
    """Trace one architecture in one pass: whether it is answered, what is assumed, else the reason."""
    try:
        found = trace_rows(NetworkConfig.model_validate(network), pass_, TrainingConfig()).network
    except FAULTS as error:
        return {"answered": False, "reason": " ".join(str(error).split()), "kind": type(error).__name__}
    assumed = sorted({entry.partition(": ")[2] for entry in found.assumed_branches})
    return {"answered": True, "reason": "", "assumed": assumed, "calls": found.calls}


def main() -> int:
    """Trace all, and print a row for each with its reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="of architectures with this word in library or name")
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--output", type=Path, help="else benchmarks/results/architectures.json")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for library, name, network in architectures(Path(folder)):
            if given.only not in f"{library}:{name}":
                continue
            for pass_ in given.passes.split(","):
                row = {"library": library, "architecture": name, "pass": pass_, **traced(network, pass_)}
                row["reason"] = row["reason"].replace(folder, "")
                if WITHOUT_TRAINING not in row["reason"]:
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    write(rows, given.output)
    return 0


def write(rows: list[dict[str, Any]], output: Path | None) -> None:
    """Write the share that is answered by library, and why others are refused."""
    refused = {(row["library"], row["architecture"]) for row in rows if not row["answered"]}
    everything = {(row["library"], row["architecture"]) for row in rows}
    table = []
    for library in sorted({library for library, _ in everything}):
        mine = {entry for entry in everything if entry[0] == library}
        table.append([library, len(mine), len(mine - refused)])
    public = {entry for entry in everything if entry[0] != "torch.nn"}
    share = 100 * len(public - refused) / max(len(public), 1)
    reasons = (f"{row['library']} {row['architecture']}: {row['reason']}" for row in rows if not row["answered"])
    result_file.write(
        "tracing",
        "Public architectures, both passes",
        ["library", "architectures", "answered"],
        table,
        targets=[result_file.target("public architectures that are answered", share, at_least=99, unit="%")],
        notes=list(dict.fromkeys(reasons)),
        file=output,
    )


if __name__ == "__main__":
    sys.exit(main())
