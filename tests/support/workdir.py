"""Runs of the real `snakemake`, each in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from support import ready_clockwatt, ready_snakemake

SNAKEMAKE = (sys.executable, "-m", "snakemake")
REPOSITORY = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "campaign": "small",
    "gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": [900, 1440]}},
    "networks": [{"name": "squeezenet1_1", "input": [1, 3, 64, 64]}],
    "fit": {"trees": 5, "folds": 3},
}
KEY = ["kind", "subject_id", "pass", "execution", "repetition"]
METRICS = "results/predictors/metrics.json"
MEASURED_ALL = ("results/dataset/operations.parquet",)
# the Slurm of the tests answers when a job has ended: see `write_programs` in tests/slurm/slurm_files.py
AT_ONCE = ("--slurm-init-seconds-before-status-checks", "1")
ON_SLURM = ("--profile", str(REPOSITORY / "profiles/slurm"), *AT_ONCE)


@dataclass
class Workdir:
    """A folder in which a campaign runs."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    def configure(self, changes: Mapping[str, Any] | None = None) -> None:
        """Write the campaign: the small one with some of its top keys replaced."""
        (self.path / "config.yaml").write_text(yaml.safe_dump(SMALL | dict(changes or {})))

    def command(self, *arguments: str) -> list[str]:
        """The command that runs Snakemake here."""
        return [
            *SNAKEMAKE, "--snakefile", str(REPOSITORY / "Snakefile"),
            "--directory", str(self.path), "--configfile", str(self.path / "config.yaml"), "--nocolor", *arguments,
        ]  # fmt: skip

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake; standard error goes to standard output."""
        return self.start(self.command(*arguments))

    def start(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command from `command`, perhaps changed, in a Python that is ready, and so its jobs but on Slurm."""
        here = {} if "SLURM_CONF" in self.environment else ready_clockwatt.environment()
        environment = {**os.environ, **here, **self.environment}
        return ready_snakemake.run(command[len(SNAKEMAKE) :], cwd=self.path, environment=environment)

    def run(self, *arguments: str) -> str:
        """Run Snakemake, which must succeed, and return what it said."""
        finished = self.snakemake(*arguments)
        assert finished.returncode == 0, finished.stdout[-5000:]
        return finished.stdout

    def fails(self, *arguments: str) -> str:
        """Run Snakemake, which must fail, and return what it and its jobs said."""
        finished = self.snakemake("--show-failed-logs", *arguments)
        assert finished.returncode == 1, finished.stdout[-5000:]
        return finished.stdout

    def measured(self) -> Counter[tuple[str, ...]]:
        """How often each operation and network stands in the store, by GPU, operating point and key."""
        found: Counter[tuple[str, ...]] = Counter()
        for segment in self.path.glob("results/store/*/*/rows/*.parquet"):
            gpu, point = segment.parts[-4:-2]
            for row in pq.read_table(segment, columns=KEY).to_pylist():
                if row["kind"] != "anchor":
                    found[gpu, point, *map(str, row.values())] += 1
        return found


def jobs_of(output: str, rule: str) -> int:
    """How many jobs of a rule Snakemake's table of jobs names."""
    return next(
        (int(line.split()[1]) for line in output.splitlines() if line.split()[:1] == [rule] and len(line.split()) == 2),
        0,
    )
