"""Split the differences between the shipped H100s and H200s, and check the split by simulation.

    python benchmarks/card_variance.py

The check of intervals draws data of the same cards and sessions from the fitted model. The check of outliers draws
fleets of 64 cards in 8 nodes.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from cards import GPUS
from result_file import RESULTS, target, write
from scipy import stats

from clockwatt.studies.survey import variance
from clockwatt.studies.survey.observations import observations, shipped

SIMULATIONS = 100
SEEDS, NODES, CARDS_OF_NODE, SESSIONS = 20, 8, 8, 2
NODE, CARD, SESSION = 0.004, 0.003, 0.001
SLOW_CARDS, SLOW = 4, 0.02
COLUMNS = (
    "GPU", "quantity", "cards", "measurements", "(max − min) / median, %", "SD of cards", "SD of sessions",
    "SD of the rest", "outliers",
)  # fmt: skip


def covered(model: variance.MixedModel, deviations: dict[str, float]) -> dict[str, bool]:
    """Return whether the interval of each level holds its planted standard deviation."""
    limit = model.best()[0] + stats.chi2.ppf(variance.COVERAGE, 1)
    return {level: model.best(level, float(np.log(planted)))[0] < limit for level, planted in deviations.items()}


def drawn(model: variance.MixedModel, deviations: dict[str, float], random: np.random.Generator) -> variance.MixedModel:
    """Return the model with logs drawn from these standard deviations."""
    logs = sum(random.normal(0, deviations[level], 1 + groups.max())[groups] for level, groups in model.groups.items())
    return variance.MixedModel(logs - logs.mean(), model.fixed, model.groups)


def of_shipped() -> tuple[list[list[object]], list[list[object]], list[str]]:
    """Return rows of the split, rows of its coverage, and what the data cannot tell apart."""
    splits, coverages, notes = [], [], []
    for gpu, name in GPUS.items():
        observed = observations(shipped(name))
        for quantity, rows in observed.groupby("quantity", sort=False):
            levels, limits = variance.levels_of(rows)
            model = variance.MixedModel.of(rows, levels)
            parts = variance.split(model)
            outliers = int(variance.outliers(rows)["outlier"].sum())
            spread = round(100 * variance.spread(rows), 2)
            cells = [variance.words(parts.loc[level]) for level in parts.index]
            splits.append([gpu, quantity, len(rows["card"].unique()), len(rows), spread, *cells, outliers])
        notes += [f"{gpu}. {limit}" for limit in limits]
        planted = {"card": 0.01, "session": 0.002, variance.REST: 0.004}
        random = np.random.default_rng(0)
        found = [covered(drawn(model, planted, random), planted) for _ in range(SIMULATIONS)]
        for level, share in pd.DataFrame(found).mean().items():
            coverages.append(
                [f"cards and sessions of the {gpu}s", level, 100 * planted[level], SIMULATIONS, 100 * share]
            )
    return splits, coverages, notes


def of_fleets() -> tuple[list[list[object]], float, float]:
    """Return rows of the coverage in simulated fleets, false discoveries, and the share of slow cards found."""
    covers, false, found = [], [], []
    cards = np.repeat(np.arange(NODES * CARDS_OF_NODE), SESSIONS)
    planted = {"host": NODE, "card": CARD, variance.REST: SESSION}
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        of_node, of_card = random.normal(0, NODE, NODES), random.normal(0, CARD, NODES * CARDS_OF_NODE)
        logs = of_node[cards // CARDS_OF_NODE] + of_card[cards] + random.normal(0, SESSION, len(cards))
        rows = pd.DataFrame({"host": cards // CARDS_OF_NODE, "card": cards, "log": logs})
        rows = rows.assign(position=0, temperature_c=50.0)
        covers.append(covered(variance.MixedModel.of(rows, ("host", "card")), planted))
        slow = random.choice(NODES * CARDS_OF_NODE, SLOW_CARDS, replace=False)
        rows["log"] += np.log1p(SLOW) * rows["card"].isin(slow)
        called = variance.outliers(rows, "host")["outlier"]
        right = called[called].index.isin(slow)
        false.append((~right).mean() if len(right) else 0.0)
        found.append(right.sum() / SLOW_CARDS)
    where = f"{NODES * CARDS_OF_NODE} cards in {NODES} nodes, {SESSIONS} sessions each"
    shares = pd.DataFrame(covers).mean()
    coverage = [[where, level, 100 * planted[str(level)], SEEDS, 100 * share] for level, share in shares.items()]
    return coverage, float(np.mean(false)), float(np.mean(found))


def main() -> None:
    """Write both tables."""
    splits, coverages, notes = of_shipped()
    of_fleet, false, found = of_fleets()
    hardware = json.loads((RESULTS / "cards.json").read_text(encoding="utf-8"))["hardware"]
    write(
        "cards",
        "Split of the variance",
        COLUMNS,
        splits,
        notes=[
            "Standard deviations with 95 % intervals (profile likelihood); the change with temperature is removed.",
            "Outliers: false discoveries held to 5 % (Benjamini–Hochberg), by the median absolute deviation.",
            "Seven H200s draw 9 to 12 % less power in ReLU, four of them are 0.5 % slower: perhaps another variant.",
            *notes,
        ],
        hardware=hardware,
    )
    every = [*coverages, *of_fleet]
    write(
        "cards",
        "Check of the split by simulation",
        ["simulated", "level", "planted SD, %", "simulations", "intervals that hold it, %"],
        every,
        targets=[
            target("95 % intervals that hold the truth", np.mean([row[-1] for row in every]), at_least=93, unit="%"),
            target(f"False discoveries, {SEEDS} simulated fleets", 100 * false, at_most=5, unit="%"),
            target(f"Cards {100 * SLOW:.0f} % slower found there", 100 * found, at_least=95, unit="%"),
        ],
        notes=[
            f"In each fleet {SLOW_CARDS} cards are {100 * SLOW:.0f} % slower; cards are compared within their node."
        ],
        file=RESULTS / "card-variance-check.json",
        hardware="simulation",
    )


if __name__ == "__main__":
    main()
