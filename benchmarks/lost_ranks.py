"""How long ranks with NCCL on two GPUs take to end when one of them dies, hangs or is stopped.

    PYTHONPATH=src python3 benchmarks/lost_ranks.py measure FILE.json    # on a machine with two NVIDIA GPUs
    python benchmarks/lost_ranks.py report FILE.json

Each rank adds up a tensor with the other a few times; then one is lost.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # modules of benchmarks are imported by their place in the checkout
from clockwatt.gpu.registry import visible_gpus
from clockwatt.measure.links.ranks import RankError, run_ranks

WAYS = ("dies", "hangs", "is stopped")
_ROUNDS, _MOST_S = 5, 60


def lose(rank: int, way: str, folder: str) -> None:
    """Communicate, then lose rank 1; its time is noted."""
    import torch
    from torch import distributed

    numbers = torch.ones(1 << 24, device="cuda")
    for _ in range(_ROUNDS):
        distributed.all_reduce(numbers)
    torch.cuda.synchronize()
    if rank == 1:
        Path(folder, "lost").write_text(str(time.time()))
        if way == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "is stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(10 * _MOST_S)
    distributed.all_reduce(numbers)
    torch.cuda.synchronize()


def measure(output: Path) -> None:
    """Lose a rank in each way, and note what was said after how many seconds."""
    cards = visible_gpus()[:2]
    rows = []
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_ranks(lose, (way, folder), count=2, gpus=[card.uuid for card in cards])
                said = "nothing"
            except RankError as error:
                said = str(error)
            took_s = time.time() - float(Path(folder, "lost").read_text())
        rows.append({"way": way, "seconds": took_s, "said": said, "gpu": cards[0].name})
        print(rows[-1], flush=True)
        output.write_text(json.dumps(rows, indent=1) + "\n")


def report(path: Path) -> None:
    """Write the table."""
    from benchmarks import result_file

    rows = json.loads(path.read_text())
    longest_s = max(row["seconds"] for row in rows)
    result_file.write(
        "several-gpus", "A rank that is lost, on two GPUs with NCCL",
        ["rank 1", "all ended after, s", "message"],
        [[row["way"], f"{row['seconds']:.1f}", row["said"]] for row in rows],
        hardware=f"2 × {rows[0]['gpu']}",
        targets=[result_file.target("longest time until all ended", longest_s, at_most=_MOST_S, unit="s")],
    )  # fmt: skip


if __name__ == "__main__":
    {"measure": measure, "report": report}[sys.argv[1]](Path(sys.argv[2]))
