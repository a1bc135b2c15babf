"""What intervals of predictions would gain if the effect of the card were known, on the held-out sets.

    python benchmarks/card_known.py

The effect of a card is the mean residual of its passes of other networks, less that of all other cards, shrunk by the
variance between cards. Residual and effect are logarithms of measured over predicted. Intervals with and without it get
one factor each, from other days, so that both cover equally often; then their widths are compared.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from clockwatt.predict.gpu_predictor import load_models

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.fresh import hosts, intervals, score

PREDICTORS = Path(__file__).parents[1] / "resources/predictors"
FOLDS = 5
WORTH_IT = 5.0


def effects(rows: pd.DataFrame) -> pd.Series:
    """Return the effect of each row's card, from passes of other networks on it."""
    folds = rows["subject_id"].map(lambda name: zlib.crc32(name.encode()) % FOLDS)
    found = pd.Series(0.0, index=rows.index)
    for fold in range(FOLDS):
        own = rows[folds != fold]
        of_card = own.groupby("gpu_uuid")["residual"].agg(["mean", "var", "size"])
        error = (of_card["var"] / of_card["size"]).fillna(np.inf)
        others = (of_card["mean"].sum() - of_card["mean"]) / (len(of_card) - 1)
        between = max(0.0, of_card["mean"].var() - error[np.isfinite(error)].mean())
        effect = (of_card["mean"] - others) * between / (between + error)
        found[folds == fold] = rows.loc[folds == fold, "gpu_uuid"].map(effect).fillna(0.0)
    return found


def main() -> None:
    """Write the table."""
    catalogue = score.Catalogue()
    table, targets, hardware = [], [], []
    for gpu in intervals.GPUS:
        rows = score.measured(sorted(score.HERE.glob(f"measured-{gpu}-*.parquet")))
        model = load_models(PREDICTORS)[gpu]
        traces = [catalogue.traced(*key) for key in zip(rows["subject_id"], rows["pass"], strict=True)]
        judged = pd.DataFrame(intervals.judged(rows, traces, hosts.hosts_of(rows, traces, model), model))
        hardware.append(f"{rows['gpu_uuid'].nunique()} × NVIDIA {gpu.upper()}")
        for name in intervals.QUANTITIES:
            own = judged[judged["quantity"] == name].reset_index(drop=True)
            effect = effects(own)
            known = own.assign(residual=own["residual"] - effect)
            without, with_it = (intervals.with_factors(part, ()) for part in (own, known))
            gain = 100 * (1 - intervals.half_width(with_it) / intervals.half_width(without))
            spread = own.assign(effect=effect).groupby("gpu_uuid")["effect"].mean().std()
            shown = [intervals.cell(part) for part in (own, known, without, with_it)]
            table.append([gpu.upper(), name, len(own), f"{spread:.1%}", *shown, f"{gain:.1f} %"])
            targets.append(
                result_file.target(
                    f"{gpu.upper()}: {name}, width that the card known saves", gain, at_least=WORTH_IT, unit="%"
                )
            )
            print(*table[-1], flush=True)
    result_file.write(
        "cards",
        "Intervals of predictions with the card known",
        ["GPU", "quantity", "passes", "SD of the effects", "shipped", "shipped, card known", "equal coverage",
         "equal coverage, card known", "width saved"],
        table,
        targets=targets,
        file=result_file.RESULTS / "card-known.json",
        hardware=", ".join(hardware),
        notes=[
            "Coverage of 90 % intervals, median half-width and interval score (small is good), all held-out sets.",
            "The effect of a card is its mean error on other networks, shrunk. The host is in it, unless calibrated.",
            "*Equal coverage*: intervals times one factor, which is fitted on other days.",
            "A calibrated host saves more width than a known card. So `predict` has no option for a card.",
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
