"""What `predict --measure-missing 30s --measure-whole` says of fresh passes on a GPU, and how long it takes.

    PYTHONPATH=src python3 benchmarks/fresh/missing_live.py ask --set twelfth --gpu h100 --host HOST --seconds 290 \
        --output FILE.jsonl
    python benchmarks/fresh/missing_live.py report FILE.jsonl --result benchmarks/results/missing-live-h100.json

`ask` runs the command for one pass after another, in the order of `missing.py`, as a user would: each a process of its
own with a store of its own, on a host that was calibrated before. `report` compares what each composed from its
measured operations with what it then measured of the whole pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clockwatt.config import NetworkConfig

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.fresh.draw import SETS, execution_of
from benchmarks.fresh.missing import entries_of

LIMIT_S = 30
_LONGEST_S = 60.0
"""No pass is begun that might not end in time."""
CAMPAIGN = """campaign: live
gpus:
  {gpu}:
    device: {device}
    precision: [tf32, fp32]
    control: {{method: none}}
networks:
- name: squeezenet1_1
  input: [1, 3, 64, 64]
"""


def request_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The question for a pass."""
    network = NetworkConfig.model_validate(entry["network"])
    shapes = []
    for name, given in network.by_keyword.items():
        indices = [given.dtype, str(given.below)] if given.below else []
        shapes.append(f"{name}={':'.join([','.join(map(str, given.shape)), *indices])}".removeprefix("="))
    precision = entry["network"].get("precision", [str(execution_of(entry))])[0]
    return {"network": network.name, "inputs": shapes, "pass_": entry["pass"], "precision": precision,
            "cache_length": network.cache_length}  # fmt: skip


def ask(chosen: str, gpu: str, device: str, host: str, seconds: float, output: Path) -> None:
    """Ask for as many passes as there is time for; one line each."""
    ends_at = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        campaign = Path(folder) / "config.yaml"
        campaign.write_text(CAMPAIGN.format(gpu=gpu, device=device))
        for number, entry in enumerate(entries_of(SETS[chosen], None)):
            if time.monotonic() + _LONGEST_S > ends_at:
                return
            request = request_of(entry) | {
                "gpus": [gpu], "host": host, "measure_missing": f"{LIMIT_S}s", "measure_whole": True,
                "config_file": str(campaign), "store_dir": f"{folder}/{number}",
            }  # fmt: skip
            begun_s = time.monotonic()
            command = [sys.executable, "-m", "clockwatt", "predict", "--request", json.dumps(request), "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            row = {"network": request["network"], "pass": entry["pass"], "took_s": time.monotonic() - begun_s}
            row |= kept(json.loads(done.stdout)) if done.returncode == 0 else {"error": done.stderr[-500:]}
            with output.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)


def kept(answer: dict[str, Any]) -> dict[str, Any]:
    """What the report needs of an answer: what was measured, and what was composed before the pass was measured."""
    return {"gpu": answer["gpu_name"], "network": answer["network_id"], "now": answer["measured_now"],
            "measured": answer["measured"], "composed": answer["composed"] or answer["predicted"]}  # fmt: skip


def report(path: Path, output: Path) -> None:
    """Write the table."""
    rows = [row for row in map(json.loads, path.read_text().splitlines()) if "now" in row]
    cells = []
    for row in rows:
        now, measured, composed = row["now"], row["measured"], row["composed"]
        low, high = composed["intervals"]["energy_j"]
        cells.append([
            row["network"].rsplit("/", 1)[-1], row["pass"], f"{now['operations']}, {now['energies']}",
            f"{now['seconds']:.0f}, {row['took_s']:.0f}",
            f"±{now['half_width_before']:.1%} → ±{now['half_width']:.1%}",
            f"±{now['energy_half_width_before']:.1%} → ±{now['energy_half_width']:.1%}",
            f"{composed['time_s'] / measured['time_s'] - 1:+.1%}",
            f"{composed['energy_j'] / measured['energy_j'] - 1:+.1%}",
            "yes" if low <= measured["energy_j"] <= high else "**no**",
        ])  # fmt: skip
    beside = max(row["took_s"] - row["now"]["seconds"] for row in rows)
    result_file.write(
        "measure-missing",
        f"`--measure-missing {LIMIT_S}s --measure-whole` as a user runs it",
        ["network", "pass", "operations, energies measured", "measuring, command in all, s", "device time, half-width",
         "dynamic energy, half-width", "time off", "energy off", "energy in its interval"],
        cells,
        file=output,
        hardware=f"{rows[0]['gpu']}, its host calibrated minutes before",
        targets=[result_file.target(f"{rows[0]['gpu']}: seconds beside the measuring", beside, at_most=15, unit="s")],
        notes=[
            "Time and energy are compared with the pass measured whole by the same command.",
            "Passes whose time is off are bound by the host, of which measuring operations alone says nothing new.",
        ],
    )  # fmt: skip


def main() -> int:
    """Do what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    asking, reporting = commands.add_parser("ask"), commands.add_parser("report")
    asking.add_argument("--set", choices=SETS, default="twelfth")
    asking.add_argument("--gpu", default="h100")
    asking.add_argument("--device", default="NVIDIA H100 80GB HBM3", help="as `nvidia-smi -L` names it")
    asking.add_argument("--host", required=True)
    asking.add_argument("--seconds", type=float, default=290)
    asking.add_argument("--output", type=Path, required=True)
    reporting.add_argument("file", type=Path)
    reporting.add_argument("--result", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "ask":
        ask(given.set, given.gpu, given.device, given.host, given.seconds, given.output)
    else:
        report(given.file, given.result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
