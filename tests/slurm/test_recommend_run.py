"""`clockwatt recommend --run --slurm` on a real Slurm, with a virtual GPU: the job, its record, and the comparison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slurm

CAMPAIGN = {
    "campaign": "there",
    "gpus": {
        "a30": {
            "device": "virtual:a30",
            "slurm": {"cpus_per_task": 1, "mem_mb": 1500, "runtime": 10, "gres": "gpu:a30:1", "partition": "main"},
        }
    },
    "networks": [{"name": "resnet18", "input": [32, 3, 224, 224]}],
}
RUN = ("recommend", "resnet18", "--gpu", "a30", "--run", "--slurm", "--passes", "100", "--json")


def test_a_program_runs_in_a_job_at_the_choice_and_its_status_is_passed_on(accounting_cluster, tmp_path):
    config = tmp_path / "config" / "config.yaml"
    config.parent.mkdir()
    config.write_text(yaml.safe_dump(CAMPAIGN))
    environment = {**os.environ, **accounting_cluster.environment}

    def run(folder: str, program: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "clockwatt", *RUN, "--output", folder, "--", sys.executable, "-c", program]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run(
        "record", "import os, time; time.sleep(1); print(os.environ['SLURM_JOB_ID'], os.environ['SLURM_GPUS_ON_NODE'])"
    )
    assert done.returncode == 0, done.stderr
    ran = json.loads(done.stdout)["run"]
    assert (ran["gpu"], ran["point"], ran["virtual"], ran["status"]) == ("a30", "default", True, 0)
    assert ran["took"]["time_s"] > 1
    assert ran["took"]["energy_j"] > 0
    record = json.loads(Path(tmp_path, "record", "record.json").read_text())
    assert record["gpus"][0]["virtual"]

    failed = run("failed", "raise SystemExit(3)")
    assert failed.returncode == 3
    assert json.loads(failed.stdout)["run"]["status"] == 3
    jobs = accounting_cluster.command("sacct", "-X", "-P", "-n", "--name=clockwatt", "-o", "State,AllocTRES").stdout
    (completed, ended) = (line.split("|") for line in jobs.splitlines())
    assert (completed[0], ended[0]) == ("COMPLETED", "FAILED")
    assert "gres/gpu:a30=1" in completed[1]
