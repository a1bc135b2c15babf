"""What `snakemake -n` takes for a large campaign, and for rules that name the same files and do nothing else.

python benchmarks/dryrun.py [--gpus 4 8 15] [--clocks 40 40 74]        # 15 GPUs at 74 clocks: 20,000 jobs
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import result_file
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


def dry_run(folder: Path, *arguments: str) -> tuple[int, float, float]:
    """Number of jobs, seconds of processor time, and GiB."""
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
    return jobs, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def main() -> None:
    """Run both and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[4, 8, 15])
    parser.add_argument("--clocks", type=int, nargs="+", default=[40, 40, 74])
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for gpus, clocks in zip(given.gpus, given.clocks, strict=True):
            (folder / "config.yaml").write_text(campaign(gpus, clocks))
            (folder / "Snakefile").write_text(TRIVIAL.format(gpus=gpus, clocks=clocks, shards=SHARDS))
            whole = ["--snakefile", str(REPOSITORY / "Snakefile"), "--configfile", str(folder / "config.yaml")]
            jobs, cpu_s, gib = dry_run(folder, *whole)
            trivial = dry_run(folder, "--snakefile", str(folder / "Snakefile"))
            rows.append([f"{jobs:,}", f"{cpu_s:.1f} s", f"{gib:.2f} GiB", f"{trivial[1]:.1f} s"])
            print(*rows[-1], sep=" | ", flush=True)
    result_file.write("speed", "Dry run of a large campaign", ["jobs", "processor time", "memory",
                      "processor time with rules that name files only"], rows)  # fmt: skip


if __name__ == "__main__":
    main()
