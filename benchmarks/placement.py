"""What work on the better cards gains over random cards, by the shipped H100s and H200s.

    python benchmarks/placement.py

Cards are drawn again and again from those measured. Half of each card's measurements order the cards; the other
half says what the choice gains, so that noise is not taken for a good card.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from cards import GPUS
from numpy.typing import NDArray
from result_file import RESULTS, write

from clockwatt.studies.survey.observations import observations, shipped

DRAWS = 2000
SHARES = (0.25, 0.5, 0.75)
TOGETHER = 4
"""Cards of a step that waits for the slowest."""
QUANTITIES = {
    "time, at the power limit": ("time of linear (power limit)",),
    "time, memory-bound": ("time of softmax (memory)",),
    "energy, memory-bound": ("time of softmax (memory)", "power of softmax (memory)"),
}
Vector = NDArray[np.float64]


def halves(observed: pd.DataFrame) -> list[pd.DataFrame]:
    """Return mean logs of every other measurement, twice: a row for each card, a column for each quantity.

    Alternate ones, since cards warm up in a session: random halves would err in opposite directions.
    """
    half = observed.sort_values("started_us").groupby(["session", "card", "quantity"]).cumcount() % 2
    means = [
        observed[half.reindex(observed.index) == number].pivot_table(index="card", columns="quantity", values="log")
        for number in (0, 1)
    ]
    cards = means[0].dropna().index.intersection(means[1].dropna().index)
    return [table.loc[cards] for table in means]


def slowest(logs: Vector) -> float:
    """Return the mean, over steps on consecutive cards, of the slowest card's value; cards left over do not work."""
    steps = len(logs) // TOGETHER
    return float(np.exp(logs[: steps * TOGETHER]).reshape(steps, TOGETHER).max(axis=1).mean())


def gains(means: list[pd.DataFrame]) -> dict[tuple[str, str], list[float]]:
    """Return what the choice saves in each draw, in %, by quantity and way of placement."""
    random = np.random.default_rng(0)
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(DRAWS):
        first, second = (means[number] for number in random.permutation(2))
        cards = random.integers(len(first), size=len(first))
        for name, columns in QUANTITIES.items():
            order, seen = (sum(table[column].to_numpy()[cards] for column in columns) for table in (first, second))
            ranked = seen[np.argsort(order, kind="stable")]
            for share in SHARES:
                best = np.exp(ranked[: max(1, round(share * len(ranked)))]).mean()
                way = f"{share:.0%} of the cards at work: the best"
                found.setdefault((name, way), []).append(100 * (1 - best / np.exp(seen).mean()))
            if len(columns) == 1:
                way = f"all at work, steps on {TOGETHER}: alike together"
                unsorted = slowest(random.permutation(seen))
                found.setdefault((name, way), []).append(100 * (1 - slowest(ranked) / unsorted))
    return found


def main() -> None:
    """Write the table."""
    table, hardware = [], []
    for gpu, name in GPUS.items():
        means = halves(observations(shipped(name)))
        hardware.append(f"{len(means[0])} × {gpu}")
        for (quantity, way), saved in gains(means).items():
            low, high = np.percentile(saved, [2.5, 97.5])
            table.append([gpu, quantity, way, f"{np.mean(saved):.1f}", f"{low:.1f} to {high:.1f}"])
            print(*table[-1], flush=True)
    write(
        "cards",
        "What placement on the better cards gains",
        ["GPU", "quantity", "placement", "saved over random cards, %", "95 % interval"],
        table,
        file=RESULTS / "placement.json",
        hardware=", ".join(hardware),
        notes=[
            f"Cards are resampled {DRAWS} times; cards that were measured once in each session are left out.",
            "Every other measurement of a card orders the cards; the others say what is saved.",
            f"A step on {TOGETHER} cards lasts as long as on the slowest. *Alike together*: cards sorted by time.",
            "At the power limit, energy is the limit times time: what saves time saves as much energy.",
        ],
    )


if __name__ == "__main__":
    main()
