"""Measuring on a real Slurm without accounting: status by squeue, failures and GPUs that a job may not use."""

from __future__ import annotations

from typing import Any

import pytest

from support.workdir import ON_SLURM, SMALL, Workdir

pytestmark = pytest.mark.slurm


def campaign(**changes: Any) -> dict[str, Any]:
    slurm = {"gres": "gpu:a30:1", "cpus_per_task": 1, "mem_mb": 1500, "runtime": 10}
    return {"gpus": {"a30": SMALL["gpus"]["a30"] | {"clocks_mhz": [900], "slurm": slurm} | changes}}


@pytest.fixture(scope="module")
def workdir(plain_cluster, tmp_path_factory) -> Workdir:
    """One folder for all tests here, so that the catalogue is made once."""
    return Workdir(tmp_path_factory.mktemp("plain"), plain_cluster.environment)


def snakemake(workdir: Workdir, *arguments: str):
    return workdir.snakemake(
        *ON_SLURM, "--slurm-status-command", "squeue", "--retries", "0", "--", *arguments,
    )  # fmt: skip


def test_measuring_works_without_accounting(workdir, plain_cluster):
    workdir.configure(campaign())
    finished = snakemake(workdir, "results/measurements/a30/sm900/networks-1.parquet")
    assert finished.returncode == 0, finished.stdout[-5000:]
    assert workdir.measured()
    shown = plain_cluster.command("scontrol", "--oneliner", "show", "jobs").stdout
    assert "Comment=rule_measure_networks_wildcards_a30_sm900_1" in shown
    assert "gres:gpu:a30:1" in shown


def test_a_failure_is_shown_with_its_reason(workdir):
    workdir.configure(campaign(device="NVIDIA A30"))
    finished = snakemake(workdir, "results/measurements/a30/sm900/1.parquet")
    assert finished.returncode != 0
    assert "no NVIDIA driver was found" in finished.stdout
    assert "Traceback" not in finished.stdout


def test_a_job_reaches_its_own_gpu_alone(plain_cluster):
    script = f"for device in {' '.join(map(str, plain_cluster.devices))}; do head -c1 $device 2>&1; done"
    said = plain_cluster.command("srun", "--gres=gpu:a30:1", "bash", "-c", script).stdout.splitlines()
    assert "No such device" in said[0]  # its own: allowed, though no driver serves it
    assert "Operation not permitted" in said[1]


def test_job_arrays_are_refused_before_a_job_is_submitted(workdir):
    workdir.configure(campaign())
    said = workdir.fails(*ON_SLURM, "--slurm-array-jobs", "all", "--", "results/measurements/a30/sm900/1.parquet")
    assert "--slurm-array-jobs: the workflow cannot follow job arrays." in said
    assert "submitted with SLURM jobid" not in said
