"""Survey virtual clusters of 64 cards in 8 nodes with planted differences, and count what is recovered.

    python benchmarks/virtual_cluster.py

The survey's own code measures each virtual card, whose time and power differ by construction. Effects of nodes and
sessions, noise, and four slow cards are planted in the files; `clockwatt study-survey` and `clockwatt card` read them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from result_file import RESULTS, target, write

from clockwatt import config
from clockwatt.io import files
from clockwatt.schema.layout import survey_file
from clockwatt.schema.records import MEASUREMENT_SCHEMA
from clockwatt.studies.survey import passport, results, variance
from clockwatt.studies.survey.cards import measure
from clockwatt.studies.survey.observations import COMPARED, observations

CLUSTERS, NODES, CARDS_OF_NODE, SESSIONS, ROUNDS = 20, 8, 8, 2, 5
PLANTED = {"host": 0.005, "session": 0.002, variance.REST: 0.003}
"""Standard deviations of the logs of time and power, beside those of the cards themselves."""
SLOW_CARDS, SLOW = 4, 0.05
DAY_US = 86_400_000_000
GPU = "h200"
TIMES = [name for name in COMPARED if COMPARED[name].column == "time_eager_s"]
HARDWARE = f"virtual H200, {CLUSTERS} clusters of {NODES} × {CARDS_OF_NODE}"


def campaign() -> config.CampaignConfig:
    """Return the campaign whose survey measures the cards."""
    return config.parse(
        {
            "campaign": "virtual-cluster",
            "gpus": {GPU: {"device": f"virtual:{GPU}"}},
            "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
            "studies": {"survey": {"gpus": {GPU: {"any": CARDS_OF_NODE}}, "rounds": ROUNDS, "programs": []}},
        }
    )


def measured_cards(folder: Path) -> list[pd.DataFrame]:
    """Return the measurements of the cards of each cluster, with `node` and `index`."""
    study, clusters = campaign(), []
    for cluster in range(CLUSTERS):
        cards = []
        for node in range(NODES):
            for index in range(CARDS_OF_NODE):
                name, file = f"c{cluster}n{node}", folder / f"{cluster}-{node}-{index}.parquet"
                measure(study, GPU, name, index, file)
                rows = files.read_table(file, MEASUREMENT_SCHEMA).to_pandas()
                cards.append(rows.assign(node=node, index=index))
        clusters.append(pd.concat(cards, ignore_index=True))
        print(f"cluster {cluster + 1} of {CLUSTERS} measured", flush=True)
    return clusters


def planted(rows: pd.DataFrame, random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return all sessions of a cluster with planted effects, and the effect of each node on time and power."""
    columns = ["time_eager_s", "power_w"]
    of_host = random.normal(0, PLANTED["host"], (NODES, len(columns)))
    sessions = []
    for session in range(SESSIONS):
        own = rows.assign(
            session_id=rows["session_id"] + f"-{session}", started_us=rows["started_us"] + session * DAY_US
        )
        numbers = NODES * CARDS_OF_NODE
        of_session = random.normal(0, PLANTED["session"], (numbers, len(columns)))
        card = own["node"] * CARDS_OF_NODE + own["index"]
        noise = random.normal(0, PLANTED[variance.REST], (len(own), len(columns)))
        own[columns] *= np.exp(of_host[own["node"]] + of_session[card] + noise)
        sessions.append(own.assign(number=session + 1))
    return pd.concat(sessions, ignore_index=True), pd.DataFrame(of_host, columns=columns)


def survey(rows: pd.DataFrame) -> results.Survey:
    """Write the files of a survey and read them as `clockwatt study-survey` does."""
    with tempfile.TemporaryDirectory() as folder:
        for (host, index, number), own in rows.groupby(["host", "index", "number"]):
            table = pa.Table.from_pandas(own[MEASUREMENT_SCHEMA.names], MEASUREMENT_SCHEMA, preserve_index=False)
            files.write_table(table, Path(folder) / survey_file(host, index, number))
        return results.survey([Path(folder)])


def discoveries(observed: pd.DataFrame, slow: set[str]) -> list[dict[str, object]]:
    """Return, for each quantity, the share of outliers that are not slow cards, and of slow cards that are found."""
    rows = []
    for name in COMPARED:
        outliers = variance.outliers(observed[observed["quantity"] == name], "host")["outlier"]
        called = set(outliers.index[outliers])
        false = len(called - slow) / max(1, len(called))
        rows.append({"quantity": name, "slow": bool(slow), "false": false, "found": len(called & slow) / SLOW_CARDS})
    return rows


def card_differences(found: results.Survey, truth: pd.DataFrame) -> pd.DataFrame:
    """Compare each card's first session with all others, and say whether the interval holds the planted difference."""
    rows = []
    first = found.observed[found.observed["session"].str.endswith("-0")]
    for card, own in first.groupby("card"):
        summary = passport.fleet_summary(found.observed[found.observed["card"] != card])
        compared = passport.compare(own, summary)
        real = np.expm1(truth.loc[card] - truth.drop(index=card).mean())[compared.index]
        held = (compared["low"] <= real) & (real <= compared["high"])
        rows.append(pd.DataFrame({"held": held, "error": compared["difference"] - real, "real": real}))
    return pd.concat(rows).rename_axis("quantity").reset_index()


def own_noise(clusters: list[pd.DataFrame]) -> pd.Series:
    """Return the standard deviation of each quantity within a card, its change with temperature removed."""
    observed = pd.concat([observations(rows) for rows in clusters])
    keys, values = ["card", "quantity"], ["log", "temperature_c"]
    within = observed[values] - observed.groupby(keys)[values].transform("mean")
    within["quantity"] = observed["quantity"]

    def residual(own: pd.DataFrame) -> float:
        slope = (own["log"] * own["temperature_c"]).sum() / (own["temperature_c"] ** 2).sum()
        return float(((own["log"] - slope * own["temperature_c"]) ** 2).mean() * ROUNDS / (ROUNDS - 1)) ** 0.5

    return pd.Series({name: residual(own) for name, own in within.groupby("quantity")})


def of_clusters(clusters: list[pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the splits, the discoveries and the differences of single cards of all clusters."""
    bare = [observations(rows).pivot_table(index="card", columns="quantity", values="log") for rows in clusters]
    real = pd.DataFrame(PLANTED, index=list(COMPARED))
    real = real.assign(card=pd.concat(bare).std(), rest=np.hypot(PLANTED[variance.REST], own_noise(clusters)))
    splits, called, differences = [], [], []
    for seed, (rows, own) in enumerate(zip(clusters, bare, strict=True)):
        random = np.random.default_rng(seed)
        changed, of_host = planted(rows, random)
        found = survey(changed)
        for name, row in found.variance.iterrows():
            for level in real:
                held = row[f"{level}_low"] <= real.loc[name, level] <= row[f"{level}_high"]
                splits.append((name, level, real.loc[name, level], row[f"{level}_deviation"], held))
        node = rows.groupby("gpu_uuid")["node"].first()[own.index]
        truth = own + np.column_stack([of_host.loc[node, COMPARED[name].column] for name in own.columns])
        differences.append(card_differences(found, truth))
        slow = set(random.choice(own.index, SLOW_CARDS, replace=False))
        timed = found.observed["quantity"].isin(TIMES) & found.observed["card"].isin(slow)
        slowed = found.observed.assign(log=found.observed["log"] + np.log1p(SLOW) * timed)
        called += discoveries(found.observed, set()) + discoveries(slowed, slow)
        print(f"cluster {seed + 1} of {len(clusters)} compared", flush=True)
    names = ["quantity", "level", "planted", "found", "held"]
    return pd.DataFrame(splits, columns=names), pd.DataFrame(called), pd.concat(differences)


def main() -> None:
    """Write both tables."""
    with tempfile.TemporaryDirectory() as folder:
        splits, called, differences = of_clusters(measured_cards(Path(folder)))
    table = [
        [name, level, *(f"{100 * own[column].median():.2f}" for column in ("planted", "found")), int(own["held"].sum())]
        for (name, level), own in splits.groupby(["quantity", "level"], sort=False)
    ]
    held = 100 * splits["held"].mean()
    write(
        "cards",
        "Virtual clusters: planted differences recovered",
        ["quantity", "level", "planted SD, %", "SD found, median, %", f"intervals that hold it, of {CLUSTERS}"],
        table,
        targets=[target("Virtual clusters: intervals that hold the planted SD", held, at_least=93, unit="%")],
        notes=[
            f"{SESSIONS} sessions of {ROUNDS} measurements of each card; 95 % intervals.",
            "Planted SD: for cards, that of all virtual cards; for the rest, added SD and sensor noise.",
        ],
        hardware=HARDWARE,
    )
    rows = []
    for name in COMPARED:
        own, of_card = called[called["quantity"] == name], differences[differences["quantity"] == name]
        slow = own[own["slow"]]
        shares = [own.loc[~own["slow"], "false"].mean(), slow["false"].mean(), slow["found"].mean()]
        shown = [f"{100 * share:.1f}" for share in shares]
        found = shown[2] if name in TIMES else "none planted"
        errors = f"{100 * of_card['error'].abs().median():.2f}", f"{100 * of_card['held'].mean():.1f}"
        rows.append([name, *shown[:2], found, *errors])
    write(
        "cards",
        "Virtual clusters: outliers and single cards",
        [
            "quantity",
            "false discoveries, no slow card, %",
            f"false discoveries, {SLOW_CARDS} slow cards, %",
            f"cards {100 * SLOW:.0f} % slower found, %",
            "error of a card's difference, median, %",
            "95 % intervals that hold it, %",
        ],
        rows,
        file=RESULTS / "virtual_cluster-outliers.json",
        targets=[
            target("Virtual clusters: false discoveries", 100 * called["false"].mean(), at_most=5, unit="%"),
            target("Virtual clusters: cards' intervals", 100 * differences["held"].mean(), at_least=93, unit="%"),
        ],
        notes=[
            "*False discoveries*: share of false ones among the outliers of a cluster, 0 without outliers; the mean.",
            "Outliers are cards that differ from those of their node.",
            "A slow card is 5 SD of cards away, memory-bound, and 3 SD at the power limit.",
            "Each card's first session is compared with all other cards, as `clockwatt card` does.",
        ],
        hardware=HARDWARE,
    )


if __name__ == "__main__":
    main()
