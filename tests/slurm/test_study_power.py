"""The study of power limits on a real Slurm: three networks at four limits, twice, on a virtual GPU."""

from __future__ import annotations

import pandas as pd
import pytest

from support.workdir import ON_SLURM, Workdir

pytestmark = pytest.mark.slurm

CAMPAIGN = {
    "campaign": "power",
    "gpus": {
        "a30": {
            "device": "virtual:a30",
            "slurm": {"cpus_per_task": 1, "mem_mb": 1500, "runtime": 10, "gres": "gpu:a30:1", "partition": "main"},
        }
    },
    "studies": {
        "power": {
            "gpus": {"a30": {"power_limits_w": [100, 120, 140, 165]}},
            "repetitions": 2,
            "examples": {"ecg_resnet": 3200, "dense_512": 128_000, "dense_16384": 3200},
        }
    },
}


def test_the_study_of_power_limits_runs_on_slurm(accounting_cluster, tmp_path):
    folder = Workdir(tmp_path, dict(accounting_cluster.environment))
    folder.configure(CAMPAIGN)
    ran = folder.snakemake("study_power", *ON_SLURM)
    assert ran.returncode == 0, ran.stdout[-5000:]
    jobs = accounting_cluster.command("sacct", "-X", "-P", "-n", "-o", "State,Comment").stdout.splitlines()
    told = [line.split("|") for line in jobs]
    of_study = [(state, comment) for state, comment in told if "study_power" in comment]
    assert [state for state, _ in of_study] == ["COMPLETED"] * 3, "runs, the main figure, the others"
    study_dir = tmp_path / "results" / "studies" / "power" / "a30"
    runs = pd.read_parquet(study_dir / "runs.parquet")
    assert runs.groupby(["network", "point"]).size().tolist() == [2] * 12
    fits = pd.read_csv(study_dir / "fits.csv").set_index(["network", "objective"])
    assert fits.loc[("ecg_resnet", "energy_j"), "r2"] > 0.9
    assert fits.loc["dense_512", "why_not"].str.startswith("the limit bit at 1 of 4 points").all()
    assert len(list((study_dir / "figures").glob("*.png"))) == 7, (
        "no clocks were asked for, so their figure is not made"
    )
