"""How far cards of one model differ, and which differences `clockwatt card` finds, by the shipped H100s and H200s.

    python benchmarks/cards.py

Each card is left out in turn and compared with all others: its mean over sessions, with the residuals of each session
of the cards that have several.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from result_file import RESULTS, target, write
from scipy import stats

from clockwatt.studies.survey import passport
from clockwatt.studies.survey.observations import COMPARED, observations, shipped

GPUS = {"H100": "NVIDIA H100 80GB HBM3", "H200": "NVIDIA H200"}
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
    "Each card is compared with all others. Only the first measurement of each session counts.",
    "Later in a session softmax takes longer, by 1.1 % on average on the H100s, 0.5 % on the H200s.",
    "A draw is a simulated session: the card's mean, and the residuals of a real session.",
    "The mean of a card with one session includes the noise of that session. So draws scatter more than real sessions.",
    "The interval is that of the share of cards with alarms. So few cards cannot show 1 % of false alarms.",
    "The spread of cards counts as at least the error of the compared card. This rule was chosen on these H100s.",
    "The limit of 1 % false alarms assumes normally distributed differences between cards.",
    "Cards differ by 1 % in time at the power limit, so a card that is 2 % slower only there is no outlier.",
    "Memory-bound, some H200s draw 11 % less power than others. So an H200 that draws more is not found.",
)


def alarms(fleet: pd.DataFrame) -> pd.DataFrame:
    """Return the share of draws with an alarm, a row for each card and a column for each planted difference."""
    random = np.random.default_rng(0)
    shared = fleet[fleet["position"] <= fleet["quantity"].map(passport.fleet_summary(fleet)["last_position"])]
    sessions = shared.pivot_table(index=["card", "session"], columns="quantity", values="log")
    means, sizes = sessions.groupby("card").mean(), sessions.groupby("card").size()
    # a mean of few sessions is near them: their residuals are too small by this factor
    repeated = (sizes[sizes > 1] / (sizes[sizes > 1] - 1)) ** 0.5
    residuals = (sessions - means).mul(repeated, axis=0, level="card").dropna()
    shares = {}
    for card, mean in means.iterrows():
        slow = random.choice(np.setdiff1d(fleet["card"], [card]), 2, replace=False)
        slowed = fleet["card"].isin(slow) & fleet["quantity"].isin(TIMES)
        with_slow = fleet.assign(log=fleet["log"] + np.log1p(0.02) * slowed)
        own = mean.rename_axis("quantity").rename("log").reset_index().assign(position=0, temperature_c=np.nan)
        normal, among_slow = (
            passport.compare(own, passport.fleet_summary(others[others["card"] != card]))
            for others in (fleet, with_slow)
        )
        shares[card] = {name: _share(normal, residuals, *planted) for name, planted in PLANTED.items()}
        shares[card][ALSO_SLOW] = _share(among_slow, residuals, TIMES, 0.02)
    return pd.DataFrame(shares).T


def _share(compared: pd.DataFrame, residuals: pd.DataFrame, quantities: list[str], by: float) -> float:
    logs = np.log1p(compared["difference"]) + np.log1p(by) * compared.index.isin(quantities)
    return float(residuals.gt(np.log1p(compared["smallest_outlier"]) - logs, axis=1).any(axis=1).mean())


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
