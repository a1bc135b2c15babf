"""Run held-out passes on the GPU of this machine, and write what memory each took.

    python benchmarks/memory_on_gpu.py --day 7 8 --seconds 120 --output memory-h100.parquet

Each pass is called twice in a process of its own order; `memory.py` compares these peaks with predicted ones. The file
is written anew every twenty passes.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # networks of the zoo are imported by their place in the checkout

from benchmarks.fresh.draw import execution_of
from benchmarks.fresh.measure import passes_of

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.measure.fit_memory import run_pass
from clockwatt.operations.networks import FAULTS

_WRITE_EVERY = 20


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--day", type=int, nargs="+", required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    ends_at, rows = time.monotonic() + given.seconds, []
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for entry in [one for day in given.day for one in passes_of(day)]:
        if time.monotonic() > ends_at:
            break
        network = NetworkConfig.model_validate(entry["network"])
        network = network.model_copy(update={"precision": [str(execution_of(entry))]})
        try:
            run = run_pass(network, entry["pass"], TrainingConfig(), device)
        except FAULTS as error:
            print(f"{network.network_id} {entry['pass']}: {error}"[:200], flush=True)
            continue
        rows.append({
            "network_id": network.network_id, "pass": entry["pass"], "execution": str(execution_of(entry)),
            "fits": run.fits, "allocated_bytes": run.allocated_bytes, "reserved_bytes": run.reserved_bytes,
            "gpu_name": torch.cuda.get_device_name() if device.type == "cuda" else "", "torch": torch.__version__,
        })  # fmt: skip
        if len(rows) % _WRITE_EVERY == 0:
            pd.DataFrame(rows).to_parquet(given.output)
    pd.DataFrame(rows).to_parquet(given.output)
    print(f"{given.output}: {len(rows)} passes")


if __name__ == "__main__":
    main()
