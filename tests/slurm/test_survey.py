"""The survey of cards on a real Slurm with virtual cards."""

from __future__ import annotations

import pandas as pd
import pytest

from support.workdir import ON_SLURM, Workdir

pytestmark = pytest.mark.slurm

SLURM = {"partition": "main", "cpus_per_task": 1, "mem_mb": 1500}


def test_each_card_is_a_job_and_is_not_repeated(accounting_cluster, tmp_path):
    node = accounting_cluster.node
    workdir = Workdir(tmp_path, accounting_cluster.environment)
    campaign = {
        "gpus": {
            "a30": {"device": "virtual:a30", "slurm": SLURM},
            "pair": {"device": "virtual:h200", "slurm": SLURM | {"gres": "gpu:1"}},
        },
        "studies": {"survey": {"gpus": {"a30": {node: 4}, "pair": {node: 2}}, "rounds": 2}},
    }
    workdir.configure(campaign)
    last = f"results/studies/survey/a30/cards/{node}-3-1.parquet"
    workdir.run(*ON_SLURM, last, f"results/studies/survey/pair/cards/{node}-1-1.parquet")
    first_us = (tmp_path / last).stat().st_mtime_ns
    table = "results/studies/survey/a30/variance.csv"
    workdir.run(*ON_SLURM, table)
    assert (tmp_path / last).stat().st_mtime_ns == first_us

    listed = accounting_cluster.command("sacct", "-X", "-P", "-n", "-o", "State,AllocTRES,NodeList,Comment,WorkDir")
    jobs = [line.split("|") for line in listed.stdout.splitlines() if line.endswith(str(tmp_path))]
    cards = [job for job in jobs if "study_survey_card" in job[3]]
    assert len(cards) == 5
    assert {(job[0], job[2]) for job in jobs} == {("COMPLETED", node)}
    (pair,) = (job for job in cards if "pair" in job[3])
    assert "gres/gpu=2" in pair[1].split(","), "all cards of the node, so that an index names one"

    found = pd.read_csv((tmp_path / table).with_name("cards.csv"))
    assert found["host"].tolist() == [node] * 4
    assert found["index"].tolist() == [0, 1, 2, 3]
