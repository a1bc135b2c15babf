"""`snakemake study_parallel` without a GPU: CPU processes and gloo, beside virtual GPUs."""

import pandas as pd
import pytest

from support.workdir import Workdir

NETWORK = {"name": "squeezenet1_1", "input": [4, 3, 32, 32]}
STUDY = {"networks": [NETWORK], "counts": [1, 4], "seconds": 0.1, "profile_steps": 1, "idle_s": 0.4}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A campaign whose study has been made, and what Snakemake printed."""
    workdir = Workdir(tmp_path_factory.mktemp("parallel"))
    workdir.configure({
        "gpus": {"a30": {"device": "virtual:a30", "count": 4}},
        "networks": [NETWORK],
        "studies": {"parallel": STUDY},
    })  # fmt: skip
    workdir.run("study_parallel")
    return workdir


def test_the_study_of_several_gpus_runs_on_cpu_processes(made):
    folder = made.path / "results/studies/parallel/a30"
    table = pd.read_csv(folder / "table.csv")
    ways = {("single", 1)} | {(strategy, 4) for strategy in ("ddp", "fsdp", "pipeline")}
    assert set(zip(table["strategy"], table["gpus"], strict=True)) == ways
    assert table["virtual"].all()
    assert table["epoch_j"].notna().all()
    ranks = pd.read_parquet(folder / "ranks.parquet")
    assert (
        ranks.groupby(["strategy", "gpus"])["rank"].nunique() == ranks.groupby(["strategy", "gpus"])["gpus"].first()
    ).all()
    assert (ranks.loc[ranks["gpus"] > 1, "communication_s"] > 0).all()
    assert {path.stem for path in (folder / "figures").glob("*.png")} == {"speedup", "energy", "timeline"}
    assert "Nothing to be done" in made.run("study_parallel")
