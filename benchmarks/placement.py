"""What work on the better cards gains over random cards, by the shipped H100s and H200s.

python benchmarks/placement.py
"""

from __future__ import annotations

from cards import GPUS
from result_file import RESULTS, write

from clockwatt.studies.survey.observations import observations, shipped
from clockwatt.studies.survey.placement import DRAWS, TOGETHER, gains, halves


def main() -> None:
    """Write the table."""
    table, hardware = [], []
    for gpu, name in GPUS.items():
        means = halves(observations(shipped(name)))
        hardware.append(f"{len(means[0])} × {gpu}")
        for quantity, way, saved, low, high in gains(means).itertuples(index=False):
            table.append([gpu, quantity, way, f"{saved:.1f}", f"{low:.1f} to {high:.1f}"])
    write(
        "cards",
        "What placement on the better cards gains",
        ["GPU", "quantity", "placement", "saved over random cards, %", "95 % interval"],
        table,
        file=RESULTS / "placement.json",
        hardware=", ".join(hardware),
        notes=[
            f"Cards are resampled {DRAWS} times; cards that were measured once in each session are left out.",
            "Half of the measurements of a card order the cards; the other half give the savings.",
            f"A step on {TOGETHER} cards lasts as long as on the slowest. *Alike together*: cards sorted by time.",
            "At the power limit, energy is the limit times time: what saves time saves as much energy.",
        ],
    )


if __name__ == "__main__":
    main()
