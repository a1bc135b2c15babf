"""How far cards of one model differ, and which differences `clockwatt card` finds, by the shipped H100s and H200s.

    python benchmarks/cards.py

Each card is left out in turn and compared with all others: the mean of one of its sessions, with five residuals drawn
from all sessions, since a session holds two or three measurements.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from result_file import RESULTS, target, write
from scipy import stats

from clockwatt.studies.survey import passport
from clockwatt.studies.survey.observations import COMPARED, observations, shipped

GPUS = {"H100": "NVIDIA H100 80GB HBM3", "H200": "NVIDIA H200"}
DRAWS, ROUNDS = 20, 5
TIMES = [name for name in COMPARED if name.startswith("time")]
MEMORY_TIMES = [name for name in TIMES if "memory" in name]
POWERS = [name for name in COMPARED if name.startswith("power")]
PLANTED = {
    "nothing": ([], 0.0),
    "all times +1 %": (TIMES, 0.01),
    "all times +2 %": (TIMES, 0.02),
    "all times +3 %": (TIMES, 0.03),
    "times of memory-bound operations +2 %": (MEMORY_TIMES, 0.02),
    "time at the power limit +2 %": (["time of linear (power limit)"], 0.02),
    "time at the power limit +5 %": (["time of linear (power limit)"], 0.05),
    "power +5 %": (POWERS, 0.05),
    "power +10 %": (POWERS, 0.1),
    "power +20 %": (POWERS, 0.2),
}
ALSO_SLOW = "all times +2 %, two other cards too"
NOTES = (
    f"Each card is compared with all others: the mean of one of its sessions, with {ROUNDS} residuals of all sessions.",
    f"Sessions and residuals are drawn {DRAWS} times for each card.",
    "The interval is that of a share of cards (Clopper–Pearson). So few cards cannot show 1 % of false alarms.",
    "The spread counts as at least the card's own error. This rule was set on the H100s among these data.",
    "The limit of 1 % rests on normally distributed differences between cards.",
    "Cards differ by 1 % in time at the power limit, so a card that is 2 % slower only there is no outlier.",
    "Memory-bound, some H200s draw 11 % less power than others. So an H200 that draws more is not found.",
)


def alarms(fleet: pd.DataFrame) -> pd.DataFrame:
    """Return the share of draws with an alarm, a row for each card and a column for each planted difference."""
    random = np.random.default_rng(0)
    sessions = fleet.groupby(["session", "quantity"])["log"]
    size = sessions.transform("size")
    # a mean of few rows is near them: their residuals are too small by this factor
    residuals = ((fleet["log"] - sessions.transform("mean")) * (size / (size - 1)) ** 0.5)[size > 1]
    residuals = pd.DataFrame({"quantity": fleet["quantity"], "residual": residuals}).dropna()
    shares = {}
    for card, own in fleet.groupby("card"):
        others = passport.fleet_summary(fleet[fleet["card"] != card])
        slow = random.choice(np.setdiff1d(fleet["card"], [card]), 2, replace=False)
        slowed = fleet["card"].isin(slow) & fleet["quantity"].isin(TIMES)
        with_slow = fleet.assign(log=fleet["log"] + np.log1p(0.02) * slowed)
        among_slow = passport.fleet_summary(with_slow[with_slow["card"] != card])
        means = [session.groupby("quantity").mean(numeric_only=True) for _, session in own.groupby("session")]
        found = []
        for _ in range(DRAWS):
            drawn = residuals.groupby("quantity").sample(ROUNDS, replace=True, random_state=random)
            drawn = drawn.join(means[random.integers(len(means))], on="quantity")
            drawn["log"] += drawn["residual"]
            compared = passport.compare(drawn, others)
            also_slow = _alarm(passport.compare(drawn, among_slow), TIMES, 0.02)
            found.append([*(_alarm(compared, *planted) for planted in PLANTED.values()), also_slow])
        shares[card] = np.mean(found, axis=0)
    return pd.DataFrame(shares, index=[*PLANTED, ALSO_SLOW]).T


def _alarm(compared: pd.DataFrame, quantities: list[str], by: float) -> bool:
    planted = 1 + by * compared.index.isin(quantities)
    return bool(((1 + compared["difference"]) * planted - 1 > compared["smallest_outlier"]).any())


def main() -> None:
    """Write the tables."""
    rows, targets = [], []
    for gpu, name in GPUS.items():
        shares = alarms(observations(shipped(name)))
        cards = len(shares)
        for planted, found in shares.items():
            several = int((found > 0.5).sum())
            limits = stats.binomtest(several, cards).proportion_ci(0.95)
            interval = f"{100 * limits.low:.0f}–{100 * limits.high:.0f}"
            rows.append([gpu, cards, planted, round(100 * found.mean(), 1), several, interval])
        targets += [
            target(f"{gpu}: alarms, nothing planted", 100 * shares["nothing"].mean(), at_most=1, unit="%"),
            *(
                target(f"{gpu}: alarms, {planted}", 100 * shares[planted].mean(), at_least=95, unit="%")
                for planted in ("all times +2 %", ALSO_SLOW)
            ),
        ]
    write(
        "cards",
        "What `clockwatt card` finds",
        ["GPU", "cards", "planted", "alarms, % of draws", "cards with alarms in most draws", "95 % interval, %"],
        rows,
        targets=targets,
        notes=NOTES,
        file=RESULTS / "cards.json",
        hardware=", ".join(
            f"{len(observations(shipped(name))['card'].unique())} × {gpu}" for gpu, name in GPUS.items()
        ),
    )


if __name__ == "__main__":
    main()
