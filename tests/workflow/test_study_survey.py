"""`snakemake study_survey` with virtual GPUs."""

import pandas as pd


def test_the_results_follow_the_nodes_of_the_campaign(workdir):
    def surveyed(nodes: dict[str, int]) -> tuple[pd.DataFrame, pd.DataFrame]:
        survey = {
            "gpus": {"a30": nodes},
            "rounds": 2,
            "programs": ["copy"],
            "conditions": ["together"],
            "repetitions": 1,
        }
        workdir.configure({"gpus": {"a30": {"device": "virtual:a30"}}, "studies": {"survey": survey}})
        workdir.run("study_survey")
        folder = workdir.path / "results/studies/survey/a30"
        return pd.read_csv(folder / "cards.csv"), pd.read_csv(folder / "interference.csv")

    cards, beside = surveyed({"n-1": 3, "n-2": 1})
    assert (len(cards), beside["cards"].max()) == (4, 3)
    cards, beside = surveyed({"n-1": 4})
    assert list(zip(cards["host"], cards["index"], strict=True)) == [("n-1", index) for index in range(4)]
    assert beside["cards"].max() == 4
