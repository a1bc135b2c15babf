"""What each mechanism of the predictors is worth: the same data fitted with it and without it.

    python benchmarks/ablations.py h200 --output DIR [--reference DIR] [--seeds N] [--only NAME ...]
    python benchmarks/ablations.py a30 [--seeds N] [--only NAME ...]
    python benchmarks/ablations.py report DIR

`h200` runs the stages on the shipped data once for each mechanism and seed, which decides folds, forests and which
networks are left out together, and keeps the errors of each run in `DIR`; what is there is not run again. `report`
prints their means over the seeds, and what a mechanism changes with its standard error over the seeds, for the same
folds. `a30` does the same with features and trees on the thesis's A30 data (`thesis_a30.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import golden
import numpy as np
import pandas as pd

from clockwatt import config
from clockwatt.config import FitConfig
from clockwatt.dataset.build import build_dataset
from clockwatt.predict import added, samples, unlimited
from clockwatt.predict.fit import fit
from clockwatt.predict.predictors import PREDICTORS, RooflinePredictor
from clockwatt.predict.validate import validate
from clockwatt.resources import resource

TODAY = "today"
ROOFLINE = "roofline"

WAVES = r"log_waves|wave_quantisation"
TILES = rf"{WAVES}|tiles|log_tiles|log_tile_padding"
PRODUCT = rf"{TILES}|matrix|log_rows|log_columns|log_depth|log_batch|(rows|columns|depth)_alignment"
FEATURES = {
    "no *_applies": r".*_applies",
    "no waves": WAVES,
    "no waves, no tiles": TILES,
    "no matrix product": PRODUCT,
}
"""Features that are not learnt from."""
TREES = {f"{number} trees": number for number in (25, 50, 200)}


def one_gap() -> AbstractContextManager[Any]:
    """Networks with grouped convolutions tell the same gap as all others."""
    original = added.beyond_calls
    return patch.object(added, "beyond_calls", lambda *given: original(*given).assign(grouped=False))


def none_told() -> AbstractContextManager[Any]:
    """Energies with pauses count where they were measured; the clock tells of none."""

    def nothing(rows: pd.DataFrame, *_: Any) -> tuple[pd.Series, pd.Series]:
        return pd.Series(np.nan, index=rows.index), pd.Series(np.nan, index=rows.index)

    return patch.object(unlimited, "_told_by_clock", nothing)


def as_measured() -> AbstractContextManager[Any]:
    """Energies at the power limit count as they were measured, without pauses."""
    columns = ["energy_dynamic_j", "energy_dynamic_standard_error_j"]
    return patch.object(samples, "without_limit", lambda rows, _: rows[columns].astype(float))


def without(features: str) -> AbstractContextManager[Any]:
    """The predictor learns nothing from features of such names."""

    class Without(RooflinePredictor):
        def fit(self, X: pd.DataFrame, y: pd.DataFrame) -> Without:  # noqa: N803  # scikit-learn's name
            return super().fit(X.drop(columns=[name for name in X if re.fullmatch(features, name)]), y)

    return patch.dict(PREDICTORS, {ROOFLINE: Without})


MECHANISMS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    TODAY: nullcontext,
    "one gap for all networks": one_gap,
    "no energy told by the clock": none_told,
    "energy at the limit as measured": as_measured,
    **{name: lambda pattern=pattern: without(pattern) for name, pattern in FEATURES.items()},
    **dict.fromkeys(TREES, nullcontext),
}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    of_h200 = modes.add_parser("h200")
    of_h200.add_argument("--reference", type=Path, default=resource("reference/h200"))
    of_h200.add_argument("--output", type=Path, required=True)
    of_h200.set_defaults(run=run_h200)
    of_a30 = modes.add_parser("a30")
    of_a30.set_defaults(run=run_a30)
    for mode in (of_h200, of_a30):
        mode.add_argument("--seeds", type=int, default=3)
        mode.add_argument("--only", nargs="+", choices=list(MECHANISMS), default=list(MECHANISMS))
    reporting = modes.add_parser("report")
    reporting.add_argument("output", type=Path)
    reporting.set_defaults(run=report)
    given = parser.parse_args()
    given.run(given)


def run_h200(given: argparse.Namespace) -> None:
    """Run the stages with each mechanism and seed."""
    campaign = config.load(given.reference / "config.yaml")
    catalogue = given.reference / "catalogue"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build_dataset(campaign, given.reference / "measurements", catalogue, folder / "dataset")
        for seed in range(given.seeds):
            for name in given.only:
                path = given.output / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}-{seed}.json"
                if path.exists():
                    continue
                settings = FitConfig(trees=TREES.get(name, 100), folds=campaign.fit.folds, predictors=[ROOFLINE])
                chosen = campaign.model_copy(update={"seed": seed, "fit": settings})
                with MECHANISMS[name]():
                    began_s = time.process_time()
                    fit(chosen, folder / "dataset", catalogue, folder / "predictors")
                    fit_s = time.process_time() - began_s
                    validate(chosen, folder / "dataset", catalogue, folder / "predictors", folder / "validation")
                found = {"name": name, "seed": seed, "fit_s": fit_s, "accuracy": golden.accuracy(folder)}
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(found), encoding="utf-8")


OPERATIONS, LEFT_OUT = "operations", "operations of networks left out"
MEASURED, PREDICTED = "networks from measured operations", "networks from predicted operations"
SHOWN = {
    OPERATIONS: (("time_device_s", "time_host_s", "energy_dynamic_j", "power_w"), ("median", "mean", "p90")),
    LEFT_OUT: (("time_device_s", "energy_dynamic_j"), ("median", "mean", "p90")),
    MEASURED: (("time_s", "energy_j"), ("median", "p90", "worst")),
    PREDICTED: (("time_s", "energy_j"), ("median", "p90", "worst")),
}
"""Targets and statistics that the report shows of each kind of error."""


def report(given: argparse.Namespace) -> None:
    """Print a table for each kind of error and pass: mean over the seeds, and change with its standard error."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(given.output.glob("*.json"))]
    errors = pd.DataFrame(
        [
            {"name": run["name"], "seed": run["seed"], "entry": entry, "statistic": statistic, "value": value}
            for run in runs
            for entry, statistics in run["accuracy"].items()
            for statistic, value in statistics.items()
        ]
    ).pivot_table(index=["entry", "statistic"], columns=["name", "seed"], values="value")
    names = [name for name in MECHANISMS if name in errors.columns.get_level_values("name")]
    gpu = str(errors.index[0][0]).split(" ", 1)[0]
    for kind, (targets, statistics) in SHOWN.items():
        for pass_ in ("inference", "training"):
            print(f"\n{pass_}, {kind}: {' / '.join(statistics)}, %\n")
            print(f"| | {' | '.join(targets)} |\n| --- {'| --- ' * len(targets)}|")
            for name in names:
                cells = [
                    " / ".join(cell(errors.loc[(f"{gpu} {pass_} {kind} {target}", one)], name) for one in statistics)
                    for target in targets
                ]
                print(f"| {name} | {' | '.join(cells)} |")
    print("\nCPU time of a fit with its validation by folds and networks left out, s")
    for name in names:
        print(f"{name}: {np.mean([run['fit_s'] for run in runs if run['name'] == name]):.0f}")


def cell(values: pd.Series, name: str) -> str:
    """Mean over the seeds; and what it is more than today's on the same seeds, with the standard error of that."""
    own = values[name]
    if name == TODAY:
        return f"{100 * own.mean():.2f}"
    change = 100 * (own - values[TODAY]).dropna()
    spread = f"±{change.std() / len(change) ** 0.5:.2f}" if len(change) > 1 else ""
    return f"{100 * own.mean():.2f} ({change.mean():+.2f}{spread})"


def run_a30(given: argparse.Namespace) -> None:
    """Print errors on the thesis's A30 data by features and trees, convolutions with TF32 on."""
    import others
    import thesis_a30

    from clockwatt.predict.features import CATALOGUE_COLUMNS, channel_groups, operation_features

    rows = others.read("thesis-a30-operations.parquet")
    rows = rows[(rows["repeat_time_ratio"] < thesis_a30.CONTRADICTION) & rows["tf32"]]
    print("pass, mechanism, quantity: median, mean, 90th percentile (means over the seeds; ± standard deviation)")
    for pass_, group in rows.groupby("mode"):
        measured = group.reset_index(drop=True)
        operations = thesis_a30.catalogue(measured, str(pass_))
        features = operation_features(operations[CATALOGUE_COLUMNS])
        works, groups = operations["device_work"].to_numpy(bool), channel_groups(features).to_numpy()
        encoded = thesis_a30.at_default_clock(features, tf32=True)
        targets = pd.DataFrame({name: measured[column] for name, column in thesis_a30.TARGETS.items()})
        for name in given.only:
            if name != TODAY and name not in FEATURES and name not in TREES:
                continue
            kept = [column for column in encoded if not re.fullmatch(FEATURES.get(name, ""), column)]
            predict = thesis_a30.roofline(TREES.get(name, 100))
            runs = [
                thesis_a30.evaluate(encoded[kept], targets, groups, works, predict, seed) for seed in range(given.seeds)
            ]
            for target in targets:
                errors = [(run[target] / targets[target] - 1).abs()[works] for run in runs]
                told = [
                    f"{100 * np.mean(values):.2f} ±{100 * np.std(values):.2f}"
                    for values in (
                        [one.median() for one in errors],
                        [one.mean() for one in errors],
                        [one.quantile(0.9) for one in errors],
                    )
                ]
                print(f"{pass_:10} {name:20} {target:13} {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
