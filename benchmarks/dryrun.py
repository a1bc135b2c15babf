"""What `snakemake -n` takes for a large campaign: by default 8 GPUs x 40 clocks x 16 shards, 5,120 measuring jobs.

    python benchmarks/dryrun.py [--gpus 8] [--clocks 40] [--repetitions 3]        # 20,000 jobs: --gpus 15 --clocks 74

Beside it the same jobs by rules that say nothing but their files: what Snakemake takes by itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[1]
SHARDS = 16
TRIVIAL = """
GPUS, CLOCKS, SHARDS = range({gpus}), range({clocks}), range({shards})
def everything(wildcards):
    return expand("{{gpu}}/{{clock}}/{{shard}}", gpu=GPUS, clock=CLOCKS, shard=SHARDS)
rule all:
    input: everything
rule calibrate:
    output: "{{gpu}}/{{clock}}/calibration"
    shell: "touch {{output}}"
rule measure:
    input: rules.calibrate.output
    output: "{{gpu}}/{{clock}}/{{shard}}"
    shell: "touch {{output}}"
"""


def campaign(gpus: int, clocks: int) -> str:
    """The campaign's YAML."""
    gpu = {
        "device": "NVIDIA A30",
        "clocks_mhz": [210 + 15 * step for step in range(clocks)],
        "slurm": {"gres": "gpu:a30:1"},
    }
    return yaml.safe_dump(
        {
            "campaign": "large",
            "gpus": {f"gpu{number}": gpu for number in range(gpus)},
            "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
            "shards": SHARDS,
        }
    )


def dry_run(folder: Path, *arguments: str) -> tuple[int, float, float, float]:
    """Number of jobs, seconds of the wall and of the processor, and GiB."""
    began = time.perf_counter()
    said_file = folder / "said"
    with said_file.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "snakemake", "-n", "--directory", str(folder), *arguments],
            stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
    text = said_file.read_text()
    assert status == 0, text[-3000:]
    jobs = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("total "))
    return jobs, time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def main() -> None:
    """Run both and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--clocks", type=int, default=40)
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(campaign(given.gpus, given.clocks))
        (folder / "Snakefile").write_text(TRIVIAL.format(gpus=given.gpus, clocks=given.clocks, shards=SHARDS))
        whole = ["--snakefile", str(REPOSITORY / "Snakefile"), "--configfile", str(folder / "config.yaml")]
        for what, arguments in (("campaign", whole), ("trivial rules", ["--snakefile", str(folder / "Snakefile")])):
            for _ in range(given.repetitions):
                jobs, wall_s, cpu_s, gib = dry_run(folder, *arguments)
                print(f"{what}: {jobs} jobs, {wall_s:.1f} s, {cpu_s:.1f} s of processor, {gib:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
