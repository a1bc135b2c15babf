"""`snakemake study_workloads` on a real Slurm: one job records all workloads of a GPU, another draws them."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from support.workdir import ON_SLURM, Workdir

pytestmark = pytest.mark.slurm

GPUS = {
    "a30": {
        "device": "virtual:a30",
        "slurm": {"partition": "main", "gres": "gpu:a30:1", "cpus_per_task": 1, "mem_mb": 2000, "runtime": 10},
    }
}
STUDY = {"workloads": ["distance", "sepia"], "seconds": 2, "rest_to_c": None, "idle_s": 1}


def test_one_job_records_all_workloads_and_is_not_repeated(accounting_cluster, tmp_path):
    workdir = Workdir(tmp_path, accounting_cluster.environment)
    workdir.configure({"gpus": GPUS, "studies": {"workloads": STUDY}})
    workdir.run(*ON_SLURM, "study_workloads")
    columns = ["State", "AllocTRES", "Comment", "WorkDir"]
    listed = accounting_cluster.command("sacct", "-X", "-P", "-n", "-o", ",".join(columns)).stdout.splitlines()
    entries = [dict(zip(columns, line.split("|"), strict=True)) for line in listed]
    jobs = {entry["Comment"]: entry for entry in entries if entry["WorkDir"] == str(tmp_path)}
    assert set(jobs) == {"rule_study_workloads_run_wildcards_a30", "rule_study_workloads_figures_wildcards_a30"}
    assert {job["State"] for job in jobs.values()} == {"COMPLETED"}
    assert "gres/gpu:a30=1" in jobs["rule_study_workloads_run_wildcards_a30"]["AllocTRES"].split(",")

    of_gpu = tmp_path / "results/studies/workloads/a30"
    table = pd.read_csv(of_gpu / "figures/workloads.csv")
    assert table["workload"].tolist() == STUDY["workloads"]
    assert table["virtual"].all()
    assert (table["energy_integrated_j"] > 20 * table["time_s"]).all()
    record = json.loads((of_gpu / "records/sepia/record.json").read_text())
    assert "Slurm job" in record["versions"]
    assert {path.stem for path in (of_gpu / "figures").glob("*.pdf")} == {
        "workloads", "time_distance", "time_sepia", "correlation_distance", "correlation_sepia"
    }  # fmt: skip
    assert "Nothing to be done" in workdir.run("study_workloads")


def test_without_the_study_its_target_says_what_to_write(tmp_path):
    workdir = Workdir(tmp_path)
    workdir.configure({"gpus": GPUS})
    refused = workdir.snakemake("-n", "study_workloads")
    assert refused.returncode
    assert "studies.workloads: is not in the campaign" in refused.stdout
