"""The whole workflow on a real Slurm with accounting: two kinds of GPU by gres, status by sacct."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq
import pytest

from support.workdir import KEY, ON_SLURM, Workdir

pytestmark = pytest.mark.slurm

SLURM = {"cpus_per_task": 1, "mem_mb": 1500, "runtime": 10}
CAMPAIGN: dict[str, Any] = {
    "gpus": {
        "a30": {
            "device": "virtual:a30",
            "clocks_mhz": [900],
            "slurm": SLURM | {"partition": "main", "gres": "gpu:a30:1"},
        },
        "turing": {
            "device": "virtual:rtx2080ti",
            "clocks_mhz": [1005],
            "tf32": False,
            "slurm": SLURM | {"gpu": 1, "gpu_model": "rtx2080ti", "extra": "--nice=1"},
        },
    },
    "network_shards": 1,
    "shards": 2,
}
GRES = {"a30": "gres/gpu:a30=1", "turing": "gres/gpu:rtx2080ti=1"}


@pytest.fixture(scope="module")
def runs(accounting_cluster, tmp_path_factory) -> tuple[Workdir, Workdir]:
    """The campaign's folders after it ran on Slurm and without Slurm, both at once: the former waits a lot."""
    local = Workdir(tmp_path_factory.mktemp("local"))
    on_slurm = Workdir(tmp_path_factory.mktemp("slurm"), accounting_cluster.environment)
    with ThreadPoolExecutor() as beside:
        local.configure(CAMPAIGN)
        run = beside.submit(local.run)
        on_slurm.configure(CAMPAIGN)
        on_slurm.run(*ON_SLURM, "--set-threads", "fit=1")
        run.result()
    return on_slurm, local


@pytest.fixture(scope="module")
def on_slurm(runs) -> Workdir:
    return runs[0]


@pytest.fixture(scope="module")
def local(runs) -> Workdir:
    return runs[1]


@pytest.fixture(scope="module")
def jobs(accounting_cluster, on_slurm) -> dict[str, dict[str, str]]:
    """What accounting says of every job, by its rule and wildcards."""
    columns = ["JobIDRaw", "State", "AllocTRES", "Timelimit", "Partition", "Comment", "WorkDir"]
    listed = accounting_cluster.command("sacct", "-X", "-P", "-n", "-o", ",".join(columns)).stdout.splitlines()
    entries = [dict(zip(columns, line.split("|"), strict=True)) for line in listed]
    mine = [entry for entry in entries if entry["WorkDir"] == str(on_slurm.path)]  # other tests use this Slurm too
    return {entry["Comment"].removeprefix("rule_"): entry for entry in mine}


def test_every_job_is_one_of_slurm_and_ended_well(jobs):
    measured = {"a30_sm900", "turing_sm1005"}
    expected = {"catalogue", "dataset", "fit", "validate", "figures", "page"}
    expected |= {f"calibrate_wildcards_{point}" for point in measured}
    expected |= {f"measure_wildcards_{point}_{shard}" for point in measured for shard in (1, 2)}
    expected |= {f"measure_networks_wildcards_{point}_1" for point in measured}
    assert set(jobs) == expected
    assert {job["State"] for job in jobs.values()} == {"COMPLETED"}


def test_every_measuring_job_had_the_right_gpu(jobs):
    for name, job in jobs.items():
        if "_wildcards_" in name:
            label = name.partition("_wildcards_")[2].split("_")[0]
            assert GRES[label] in job["AllocTRES"].split(","), name
            assert job["Timelimit"] == "00:10:00"
        else:
            assert "gres/gpu" not in job["AllocTRES"], name


def test_rows_name_the_job_that_measured_them(on_slurm, jobs):
    for shard in (1, 2):
        rows = pq.read_table(on_slurm.path / f"results/measurements/turing/sm1005/{shard}.parquet")
        job = jobs[f"measure_wildcards_turing_sm1005_{shard}"]
        assert rows["slurm_job_id"].unique().to_pylist() == [job["JobIDRaw"]]


def test_results_are_of_the_same_kind_as_those_of_a_local_run(on_slurm, local):
    assert result_files(on_slurm) == result_files(local)
    assert on_slurm.measured() == local.measured()
    for name in ("operations", "networks"):
        path = f"results/dataset/{name}.parquet"
        mine, theirs = (pq.read_table(workdir.path / path) for workdir in (on_slurm, local))
        assert mine.schema == theirs.schema
        assert sorted(keys(mine)) == sorted(keys(theirs))
        assert set(mine["status"].to_pylist()) == set(theirs["status"].to_pylist())


def result_files(workdir: Workdir) -> set[str]:
    results = workdir.path / "results"
    found = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    # what each run began with, and which jobs it submitted, is a run's own
    return {path for path in found if not path.startswith(("store/", "runs/"))}


def keys(table: Any) -> list[tuple[str, ...]]:
    return [tuple(map(str, row.values())) for row in table.select(["gpu", "point", *KEY]).to_pylist()]
