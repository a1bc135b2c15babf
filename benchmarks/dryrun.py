"""How long `snakemake -n` takes for a large campaign: 8 GPUs x 40 clocks x 16 shards, 5,120 measuring jobs.

python benchmarks/dryrun.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[1]
GPUS, CLOCKS, SHARDS = 8, 40, 16
REPETITIONS = 3


def campaign() -> str:
    gpu = {
        "device": "NVIDIA A30",
        "clocks_mhz": [210 + 15 * step for step in range(CLOCKS)],
        "slurm": {"gres": "gpu:a30:1"},
    }
    return yaml.safe_dump(
        {
            "campaign": "large",
            "gpus": {f"gpu{number}": gpu for number in range(GPUS)},
            "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
            "shards": SHARDS,
        }
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(campaign())
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(REPOSITORY / "Snakefile"), "-n"]
        durations = []
        for _ in range(REPETITIONS):
            start = time.perf_counter()
            said = subprocess.run(
                [*command, "--configfile", str(config), "--directory", folder],
                capture_output=True,
                text=True,
                check=True,
            )
            durations.append(time.perf_counter() - start)
    (jobs,) = {line.split()[1] for line in said.stdout.splitlines() if line.startswith("measure ")}
    print(f"{jobs} measuring jobs: {min(durations):.1f} to {max(durations):.1f} s in {REPETITIONS} dry runs")


if __name__ == "__main__":
    main()
