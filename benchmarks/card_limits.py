"""How far real cards differ, by what limits an operation, and what limits the programs of the survey.

    python benchmarks/card_limits.py

The reference operations are those of the shipped H100s and H200s. The files in `benchmarks/survey` are of one card
each, as `snakemake study_survey` writes them.
"""

from __future__ import annotations

from pathlib import Path

from cards import GPUS
from result_file import RESULTS, write

from clockwatt.cli.printing import quantity
from clockwatt.studies.survey.observations import shipped_files
from clockwatt.studies.survey.spread import of_cards, spread

MEASURED = Path(__file__).parent / "survey"


def main() -> None:
    """Write both tables."""
    rows = []
    for gpu, name in GPUS.items():
        for _, row in spread(of_cards(shipped_files(name))).sort_values(["limit", "program"]).iterrows():
            spreads = [f"{100 * row[column]:.2f}" for column in ("time_spread", "time_deviation", "power_spread")]
            if row["limit"] == "power limit":
                spreads[-1] = "–"
            rows.append([
                gpu, row["program"], row["limit"], row["cards"], quantity(row["time_s"], "s"), *spreads,
            ])  # fmt: skip
    write(
        "cards", "How far cards differ, by what limits the operation",
        ["GPU", "operation", "limited by", "cards", "time", "time, (max − min) / median, %", "time, SD, %",
         "power, (max − min) / median, %"], rows,
        file=RESULTS / "card_limits.json", hardware=" and ".join(GPUS),
        notes=[
            "At the power limit slower cards run at a lower clock.",
            "Times that the host limits differ with the host. Cards do not change them.",
            "Power at the limit is the limit: sessions with windows of 0.6 s measured it up to 15 % too low.",
            "No reference operation is limited by compute. The names are those of the figure `programs`.",
        ],
    )  # fmt: skip
    programs = [
        [path.stem.upper(), row["program"], row["limit"], quantity(row["time_s"], "s"), f"{row['power_w']:.0f}",
         f"{row['flop_per_byte']:.0f}"]
        for path in sorted(MEASURED.glob("*.parquet"))
        for _, row in spread(of_cards([path])).sort_values(["limit", "program"]).iterrows()
    ]  # fmt: skip
    write(
        "cards", "Programs of the survey on real cards",
        ["GPU", "program", "limited by", "time", "power, W", "FLOP per byte"], programs,
        file=RESULTS / "card_programs.json",
        hardware=" and ".join(f"one {path.stem.upper()}" for path in sorted(MEASURED.glob("*.parquet"))),
        notes=[
            "One card of each: a spread needs several.",
            "The jobs took 81 s (H200) and 89 s (H100): two rounds, matrices of two sizes, and all other programs.",
            "`clockwatt card` took 60 s on each: no outlier beside the shipped 26 H200s and 15 H100s.",
            "On the H200 the linear layer was 1.4 (0.8 to 2.1) % faster than on the mean card.",
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
