"""`snakemake study_parallel` on a real Slurm with two GPUs of one type; `parallel_runs.py` disturbs it, by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from parallel_runs import campaign, two_gpus

from support.workdir import ON_SLURM, Workdir

pytestmark = pytest.mark.slurm
STEPS = "results/studies/parallel/{}/steps.parquet"


def test_one_job_has_both_gpus_and_more_than_the_node_has_are_refused(tmp_path):
    content = campaign(seconds=0.1, strategies=["ddp"], counts=[2])
    content["gpus"]["rtx"]["count"] = 2
    with two_gpus() as cluster:
        workdir = Workdir(tmp_path, cluster.environment)
        workdir.configure(content)
        options = *ON_SLURM, "--slurm-status-command", "squeue", "--retries", "0", "--keep-going"
        said = workdir.snakemake(*options, "--", *map(STEPS.format, ("a30", "rtx"))).stdout
        jobs = cluster.command("scontrol", "--oneliner", "show", "jobs").stdout.splitlines()
    assert said.count("sbatch refused it: Requested node configuration is not available") == 1, said
    assert "--gres=gpu:rtx2080ti:2)" in said
    (job,) = [job for job in jobs if "wildcards_a30" in job]
    assert "JobState=COMPLETED" in job
    assert "gres:gpu:a30:2" in job
    (step,) = pd.read_parquet(tmp_path / STEPS.format("a30")).to_dict("records")
    assert (step["strategy"], step["gpus"], step["virtual"]) == ("ddp", 2, True)
