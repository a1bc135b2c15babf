"""The whole workflow on a real Slurm with accounting: two kinds of GPU by gres, status by sacct; and without Slurm.

Both run from the wheel, in folders that `clockwatt init` wrote: no checkout in sight.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from clocks_node import wait_for

from support import ready_clockwatt
from support.installed import Installed, install
from support.workdir import AT_ONCE, KEY, SMALL, Workdir

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
            "precision": "fp32",
            "slurm": SLURM | {"gpu": 1, "gpu_model": "rtx2080ti", "extra": "--nice=1"},
        },
    },
    "passes": ["inference"],
    "network_shards": 1,
    "shards": 2,
}
GRES = {"a30": "gres/gpu:a30=1", "turing": "gres/gpu:rtx2080ti=1"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Installed:
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def runs(accounting_cluster, installed, tmp_path_factory) -> tuple[Workdir, Workdir]:
    """The campaign's folders after it ran on Slurm and without Slurm, both at once: the former waits a lot."""

    def begun(name: str, environment: Mapping[str, str]) -> Workdir:
        folder = tmp_path_factory.mktemp(name)
        assert installed.run("clockwatt", "init", "campaign", at=folder).returncode == 0
        (folder / "campaign" / "config" / "config.yaml").write_text(yaml.safe_dump(SMALL | CAMPAIGN))
        return Workdir(folder / "campaign", dict(environment))

    def run(workdir: Workdir, *options: str) -> None:
        ran = installed.run("snakemake", "--nocolor", *options, at=workdir.path, environment=workdir.environment)
        assert ran.returncode == 0, ran.stdout[-5000:]

    # without Slurm its jobs run in forks of a Python that has imported their libraries: the package's are its own
    on_slurm, local = (
        begun("slurm", accounting_cluster.environment),
        begun("local", ready_clockwatt.environment(alone=True)),
    )
    with ThreadPoolExecutor() as beside:
        ended = beside.submit(run, local)
        run(on_slurm, "--profile", "slurm", *AT_ONCE, "--set-threads", "fit=1")
        ended.result()
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
    steps = accounting_cluster.command("sacct", "-P", "-n", "-o", "JobIDRaw,AllocTRES").stdout.splitlines()
    of_steps = dict(line.split("|") for line in steps)
    return {
        entry["Comment"].removeprefix("rule_"): entry | {"step": of_steps[f"{entry['JobIDRaw']}.0"]} for entry in mine
    }


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
            assert GRES[label] in job["step"].split(","), name
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


def test_a_campaign_without_slurm_answers_and_has_nothing_left_to_do(installed, local):
    question = ("squeezenet1_1", "--gpu", "a30", "--point", "sm900", "-v")
    answered = installed.run("clockwatt", "predict", *question, at=local.path)
    assert answered.returncode == 0, answered.stdout
    assert "results/predictors/a30" in answered.stdout
    again = installed.run("snakemake", "--nocolor", "--dry-run", at=local.path)
    assert "Nothing to be done" in again.stdout
    assert list((local.path / "results" / "figures").glob("*.png"))


def result_files(workdir: Workdir) -> set[str]:
    results = workdir.path / "results"
    found = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    # what each run began with, and which jobs it submitted, is a run's own
    return {path for path in found if not path.startswith(("store/", "runs/"))}


def keys(table: Any) -> list[tuple[str, ...]]:
    return [tuple(map(str, row.values())) for row in table.select(["gpu", "point", *KEY]).to_pylist()]


def test_questions_are_answered_there_and_what_nobody_measured_is_measured_in_a_job(
    accounting_cluster, installed, on_slurm
):
    def answer(*words: str) -> Any:
        said = installed.run("clockwatt", *words, "--json", at=on_slurm.path, environment=on_slurm.environment)
        assert said.returncode == 0, said.stdout
        return json.loads(said.stdout[min(filter(lambda at: at >= 0, map(said.stdout.find, "{["))) :])

    for shown in answer("show", "squeezenet1_1", "--pass", "inference", "--precision", "tf32"):
        gpu = next(gpu for gpu in shown["gpus"] if gpu["gpu"] == "a30")
        assert Path(gpu["predictors"]) == Path("results/predictors/a30")
        assert gpu["points"][0]["measured"]["energy_j"] > 0

    question = ("resnet18", "--input", "1,3,64,64", "--gpu", "a30", "--measure-missing", "3", "--slurm")
    assert answer("predict", *question, "--point", "sm900")["measured_now"]["operations"] == 3
    measured = answer("recommend", *question)["measured_now"]["a30"]
    assert measured["operations"] == 3
    assert measured["looked_up"] >= 3  # energies were measured of others, too

    def asked() -> list[str]:
        columns = ("-o", "State,ReqTRES")
        return accounting_cluster.command("sacct", "-X", "-P", "-n", "--name=clockwatt", *columns).stdout.split()

    # accounting may come a moment after the job
    wait_for(lambda: [line.partition("|")[0] for line in asked()] == ["COMPLETED"] * 2)
    assert all("gres/gpu:a30=1" in line for line in asked())
