"""What `clockwatt doctor` says of a real Slurm, and whether what it proposes can be used."""

from __future__ import annotations

import json
import sys

import pytest

from clockwatt.config import load

pytestmark = pytest.mark.slurm


def doctor(cluster, *arguments):
    return cluster.command(sys.executable, "-m", "clockwatt", "doctor", *arguments, COLUMNS="200")


def test_partitions_gpus_and_accounting_are_seen(accounting_cluster, tmp_path):
    said = doctor(accounting_cluster, "--write-config", str(tmp_path / "config.yaml"))
    assert said.returncode == 0, said.stdout + said.stderr
    for expected in ("gres gpu:a30:1", "gres gpu:rtx2080ti:1", "accounting is on. Set slurm-status-command: sacct"):
        assert expected in said.stdout
    proposed = load(tmp_path / "config.yaml")
    assert {label: (gpu.device, gpu.slurm.partition, gpu.slurm.gres) for label, gpu in proposed.gpus.items()} == {
        "a30": ("NVIDIA A30", "main", "gpu:a30:1"),
        "rtx2080ti": ("NVIDIA GeForce RTX 2080 Ti", "main", "gpu:rtx2080ti:1"),
    }


def test_without_accounting_squeue_is_advised(plain_cluster):
    assert "slurm-status-command: squeue" in doctor(plain_cluster).stdout


def test_a_job_that_fits_no_node_is_named(plain_cluster, tmp_path):
    slurm = {"partition": "main", "gres": "gpu:h100:1", "cpus_per_task": 1, "mem_mb": 500}
    campaign = {
        "campaign": "c",
        "gpus": {"mine": {"device": "virtual:h100", "slurm": slurm}},
        "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
    }
    (tmp_path / "config.yaml").write_text(json.dumps(campaign))
    said = doctor(plain_cluster, "--config", str(tmp_path / "config.yaml"))
    assert said.returncode == 1
    assert "gpus.mine.slurm.gres: no node has gpu:h100:1 (there are: gpu:a30:1, gpu:rtx2080ti:1)" in said.stdout
