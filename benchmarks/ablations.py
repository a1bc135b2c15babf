"""What each mechanism of the predictors is worth: the same data fitted with it and without it.

    python benchmarks/ablations.py h200 --output DIR [--reference DIR] [--seeds N] [--only NAME ...]
    python benchmarks/ablations.py a30 [--seeds N] [--only NAME ...]
    python benchmarks/ablations.py report DIR

`h200` fits and validates on the shipped data once for each mechanism and seed, which decides folds, forests and which
networks are left out together, and keeps the errors of each run in `DIR`; what is there is not run again. It also says
how long one fit takes by the number of trees. `report` prints means over the seeds, and what a mechanism changes, with
its standard error over the seeds, for the same folds. `a30` does the same with features and trees on the thesis's A30
data (`thesis_a30.py`). To be quick, 25 trees, 5 folds and 8 deals of networks left out stand for all but the trees.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pandas as pd

from clockwatt import config
from clockwatt.config import FitConfig
from clockwatt.dataset.build import build_dataset
from clockwatt.dataset.unthrottled import UnthrottledEnergy
from clockwatt.io.resources import resource
from clockwatt.predict import whole_networks
from clockwatt.predict.evaluation import leave_out
from clockwatt.predict.fit import fit
from clockwatt.predict.models.predictors import PREDICTORS, RooflinePredictor
from clockwatt.predict.models.training_data import gpus_in, read_samples, training_data
from clockwatt.predict.models.trees import Trees
from clockwatt.predict.validate import validate
from clockwatt.schema import costs

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import golden

TODAY = "all, 25 trees"
ROOFLINE = "roofline"

FEATURES = {"no matrix product": r"matrix|log_rows|log_columns|log_depth|log_batch|(rows|columns|depth)_alignment"}
"""Features that are not learnt from."""
TREES = {f"{number} trees": number for number in (50, 100, 200)}
DEFAULT_TREES, FOLDS, DEALS = 25, 5, 8


class Nested(RooflinePredictor):
    """Takes its trees from the beginning of a larger forest, grown once: they are those that it would grow itself."""

    most: ClassVar[int] = DEFAULT_TREES
    grown: ClassVar[dict[bytes, Trees]] = {}

    def _grow(self, matrix: np.ndarray, learnt: np.ndarray) -> Trees:
        key = sha256(matrix.tobytes() + learnt.tobytes()).digest() + bytes([self.seed])
        if key not in self.grown:
            self.grown[key] = RooflinePredictor(trees=self.most, seed=self.seed)._grow(matrix, learnt)
        return replace(self.grown[key], roots=self.grown[key].roots[: self.trees])


def nested() -> AbstractContextManager[Any]:
    """Forests of several sizes from the same trees."""
    return patch.dict(PREDICTORS, {ROOFLINE: Nested})


def one_gap() -> AbstractContextManager[Any]:
    """Networks with grouped convolutions tell the same gap as all others."""
    original = whole_networks.seen_overheads
    return patch.object(whole_networks, "seen_overheads", lambda *given: original(*given).assign(grouped=False))


def none_estimated() -> AbstractContextManager[Any]:
    """Unthrottled energies count where they were measured; none is estimated from the clock."""
    return patch.object(UnthrottledEnergy, "learn", lambda _: UnthrottledEnergy(pd.Series(dtype=float), {}))


def as_measured() -> AbstractContextManager[Any]:
    """Energies at the power limit count as they were measured, without pauses."""
    names = costs.ENERGY_DYNAMIC.column, costs.ENERGY_DYNAMIC.standard_error

    def throttled(_: UnthrottledEnergy, rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            {"energy_j": rows[names[0]].astype(float), "standard_error_j": rows[names[1]].astype(float)}
        ).assign(source=costs.MEASURED)

    return patch.object(UnthrottledEnergy, "of", throttled)


def without(features: str) -> AbstractContextManager[Any]:
    """The predictor learns nothing from features of such names."""

    def kept(table: pd.DataFrame) -> pd.DataFrame:
        return table.drop(columns=[name for name in table if re.fullmatch(features, name)])

    class Without(RooflinePredictor):
        def fit(
            self,
            X: pd.DataFrame,  # noqa: N803  # scikit-learn's name
            y: pd.DataFrame,
            beside: tuple[pd.DataFrame, pd.DataFrame] | None = None,
        ) -> Without:
            kindred = None if beside is None else (kept(beside[0]), beside[1])
            return super().fit(kept(X), y, kindred)

    return patch.dict(PREDICTORS, {ROOFLINE: Without})


CORRECTING: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no energy estimated from the clock": none_estimated,
    "energy at the limit as measured": as_measured,
}
"""What the dataset has otherwise."""
COMPOSING: dict[str, Callable[[], AbstractContextManager[Any]]] = {"one gap for all networks": one_gap, **CORRECTING}
"""What shows in networks composed from measured operations already: nothing is fitted anew for it."""

MECHANISMS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    TODAY: nested,
    **COMPOSING,
    **{name: lambda pattern=pattern: without(pattern) for name, pattern in FEATURES.items()},
    **dict.fromkeys(TREES, nested),
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
        dataset, validation = folder / "dataset", folder / "validation"
        datasets = {name: folder / f"dataset {number}" for number, name in enumerate(CORRECTING)}
        for mechanism, made in ((nullcontext, dataset), *((CORRECTING[name], datasets[name]) for name in datasets)):
            with mechanism():
                build_dataset(campaign, given.reference / "measurements", catalogue, made)
        Nested.most = max((TREES[name] for name in given.only if name in TREES), default=DEFAULT_TREES)
        for name, seed in [(name, seed) for seed in range(given.seeds) for name in given.only]:
            path = given.output / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}-{seed}.json"
            if path.exists():
                continue
            settings = FitConfig(trees=TREES.get(name, DEFAULT_TREES), folds=FOLDS, predictors=[ROOFLINE])
            chosen = campaign.model_copy(update={"seed": seed, "fit": settings})
            fitted = TODAY if name in COMPOSING else name
            predictors = folder / fitted / str(seed)
            if not predictors.exists():
                with MECHANISMS[fitted](), patch.object(leave_out, "FOLDS_AT_MOST", DEALS):
                    fit(chosen, dataset, catalogue, predictors)
            with COMPOSING.get(name, nullcontext)(), MECHANISMS[fitted]():
                validate(chosen, datasets.get(name, dataset), catalogue, predictors, validation)
            accuracy = golden.accuracy(predictors, validation, golden.designed(dataset))
            found = {"name": name, "seed": seed, "accuracy": accuracy}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found), encoding="utf-8")
        say_times(dataset)


def say_times(dataset: Path) -> None:
    """Print the CPU time of fitting one predictor to all operations of a pass, by its number of trees."""
    for gpu in gpus_in(dataset):
        rows = read_samples(dataset, gpu)
        for pass_ in ("inference", "training"):
            data = training_data(rows, pass_)
            for trees in (DEFAULT_TREES, *TREES.values()) if data is not None else ():
                began_s = time.process_time()
                RooflinePredictor(trees=trees).fit(data.features[data.learnt], data.targets[data.learnt])
                print(f"{gpu} {pass_}: {trees} trees fitted in {time.process_time() - began_s:.2f} s of CPU time")


OPERATIONS, LEFT_OUT = "operations", "operations of networks left out"
MEASURED, PREDICTED = "networks from measured operations", "networks from predicted operations"
SHOWN = {
    OPERATIONS: (
        ("time_device_s", "time_host_s", "energy_dynamic_j", "power_w"),
        ("median", "mean", "p90"),
    ),
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

    from clockwatt.predict.features import channel_groups
    from clockwatt.schema.execution import TF32

    rows = others.read("thesis-a30-operations.parquet")
    print("pass, mechanism, quantity: median, mean, 90th percentile (means over the seeds; ± standard deviation)")
    for pass_, group in rows[rows["tf32"]].groupby("mode"):
        of = thesis_a30.prepared(group, str(pass_))
        targets, works, groups = of.targets, of.works, channel_groups(of.features).to_numpy()
        encoded = thesis_a30.at_default_clock(of.features, TF32)
        for name in given.only:
            if name != TODAY and name not in FEATURES and name not in TREES:
                continue
            kept = [column for column in encoded if not re.fullmatch(FEATURES.get(name, ""), column)]
            predict = thesis_a30.roofline(TREES.get(name, DEFAULT_TREES))
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
