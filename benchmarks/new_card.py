"""How well times on a card are told from another one, with 0, 30 or 300 operations of its own.

    python benchmarks/new_card.py --new ROWS.parquet --other ROWS.parquet … --catalogue-dir FOLDER … [--thesis]

Rows are measurements as `clockwatt measure` writes them (`--other` may be given several times, shipped reference data
of an H200 are always among them), catalogues say what their operations are; the shipped catalogue is always known.
Prints for twins (the same operation was measured on the other card), and for all operations as if none had a twin (the
other card's predictor answers, fitted without them in folds), the median, mean and 90th percentile of the absolute
error and the share inside the 90 % interval, means over draws of the operations that are learnt from; beside them the
other card's time as it stands, and in proportion to the rooflines, and how far its predictor is off on its own card.
`--thesis` does so between the shipped H200 and an NVIDIA A30 (back-to-back times), both ways.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import others
import pandas as pd
import thesis_a30

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.predict.features import (
    CATALOGUE_COLUMNS,
    OPERATION_CLASS,
    ROOFLINE_TIME,
    Setting,
    features_at,
    operation_features,
)
from clockwatt.predict.models.predictors import RooflinePredictor
from clockwatt.predict.models.transfer import FLOOR_S, OtherCard, Transfer
from clockwatt.schema.execution import TF32, ExecutionSettings
from clockwatt.schema.records import MEASUREMENT_SCHEMA, OK, OPERATION, OPERATION_SCHEMA

OWN = (0, 30, 300)
DRAWS = 10
FOLDS = 5
KEY = ["operation_id", "pass", "execution"]
SHIPPED = "reference/h200"
TARGET = "time_device_corrected_s"
"""A predictor learns one time, whichever it is, by this name."""


def main() -> None:
    """Print the errors of what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", type=Path)
    parser.add_argument("--other", type=Path, action="append", default=[])
    parser.add_argument("--catalogue-dir", type=Path, action="append", default=[])
    parser.add_argument("--thesis", action="store_true")
    given = parser.parse_args()
    shipped = resource(SHIPPED)
    catalogue = read_catalogue([shipped / "catalogue", *given.catalogue_dir])
    rows = [*sorted((shipped / "measurements/h200/default").glob("[0-9]*.parquet")), *given.other]
    if given.new:
        other, new = (read_rows(paths, "time_device_s", catalogue) for paths in (rows, [given.new]))
        compare("device time", other, new, catalogue)
    if given.thesis:
        theirs, operations = read_thesis()
        everything = pd.concat([catalogue, operations]).drop_duplicates(["operation_id", "pass"], ignore_index=True)
        other = read_rows(rows, "time_eager_s", catalogue)
        for source, target in ((other, theirs), (theirs, other)):
            compare("back to back", source, target, everything)


def read_catalogue(folders: list[Path]) -> pd.DataFrame:
    """What operations are, each once per pass."""
    columns = ["pass", "device_work", *CATALOGUE_COLUMNS]
    tables = [files.read_table(one / "operations.parquet", OPERATION_SCHEMA, columns).to_pandas() for one in folders]
    return pd.concat(tables).drop_duplicates(["operation_id", "pass"], ignore_index=True)


def read_rows(paths: list[Path], column: str, catalogue: pd.DataFrame) -> pd.DataFrame:
    """Times of operations at the default operating point: `KEY`, `gpu_name` and `seconds`, medians of repetitions."""
    columns = ["kind", "status", "subject_id", "pass", "execution", "gpu_name", "point", column]
    rows = pd.concat([files.read_table(path, MEASUREMENT_SCHEMA, columns).to_pandas() for path in paths])
    fine = rows[(rows["kind"] == OPERATION) & (rows["status"] == OK) & (rows["point"] == "default")]
    named = fine.rename(columns={"subject_id": "operation_id", column: "seconds"})
    works = catalogue.loc[catalogue["device_work"], ["operation_id", "pass"]]
    return medians(named[named["seconds"] > 0].merge(works, on=["operation_id", "pass"]))


def read_thesis() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Times on the A30, and what was timed; its switch for TF32 did not reach linear layers."""
    rows = others.read("thesis-a30-operations.parquet")
    measured = rows[rows["repeat_time_ratio"] < thesis_a30.CONTRADICTION].reset_index(drop=True)
    parts, catalogues = [], []
    for pass_, group in measured.groupby("mode"):
        operations = thesis_a30.catalogue(group, str(pass_)).assign(**{"pass": pass_})
        full = operations[OPERATION_CLASS].isin(thesis_a30.FULL_PRECISION_CLASSES).to_numpy()
        tf32 = (group["execution"] == TF32).to_numpy() & ~full
        seconds = group["time_per_iter_s"].to_numpy(float)
        timed = operations[["operation_id", "pass"]].assign(tf32=tf32, gpu_name="NVIDIA A30", seconds=seconds)
        parts.append(timed[operations["device_work"].to_numpy(bool)])
        catalogues.append(operations)
    return medians(pd.concat(parts)), pd.concat(catalogues)


def medians(rows: pd.DataFrame) -> pd.DataFrame:
    """Repetitions merged."""
    return rows.groupby(KEY, as_index=False).agg(gpu_name=("gpu_name", "first"), seconds=("seconds", "median"))


def compare(what: str, source: pd.DataFrame, target: pd.DataFrame, catalogue: pd.DataFrame) -> None:
    """Print errors of times on `target`'s card told from `source`'s."""
    names = [str(card["gpu_name"].iloc[0]) for card in (source, target)]
    twins = target.merge(source[[*KEY, "seconds"]], on=KEY, how="left", suffixes=("", "_other"))
    at_source, at_target = (at_card(twins, catalogue, name) for name in names)
    predicted_s = left_out(source, at_card(source, catalogue, names[0]), twins["operation_id"], at_source)
    classes = at_target[OPERATION_CLASS].to_numpy(object)
    numbers = at_target.drop(columns=[OPERATION_CLASS]).to_numpy(float)
    rooflines = [at[ROOFLINE_TIME].to_numpy(float) for at in (at_source, at_target)]
    own_s, measured_s = twins["seconds"].to_numpy(float), twins["seconds_other"].to_numpy(float)
    is_twin = np.isfinite(measured_s)
    print(f"{names[0]} → {names[1]}, {what}: {len(twins)} operations, {is_twin.sum()} of them twins")
    on_own_card = error(predicted_s[is_twin], measured_s[is_twin])
    print(f"  the predictor of {names[0]} on its own card: {np.median(on_own_card):.1%} off (median)")
    print("  told from, own operations: median, mean, 90th percentile of the error, in the 90 % interval, operations")
    for kind, of_other, rows in (
        ("twin", OtherCard(measured_s, rooflines[0]), is_twin),
        ("predictor", OtherCard(predicted_s, rooflines[0]), np.ones(len(twins), bool)),
    ):
        chosen = np.flatnonzero(rows)
        if len(chosen) <= max(OWN):
            print(f"  {kind}: too few")
            continue
        other, roofline_s = of_other.among(chosen), rooflines[1][chosen]
        same = error(other.times_s, own_s[chosen])
        proportional_s = other.times_s * (roofline_s + FLOOR_S) / (other.rooflines_s + FLOOR_S)
        show(f"{kind}, the same time", [same])
        show(f"{kind}, by the rooflines", [error(proportional_s, own_s[chosen])])
        for own in OWN:
            show(f"{kind}, {own}", *learnt(classes[chosen], other, roofline_s, own_s[chosen], numbers[chosen], own))


def left_out(source: pd.DataFrame, features: pd.DataFrame, wanted: pd.Series, at_source: pd.DataFrame) -> np.ndarray:
    """What the other card's predictor says of operations, each fold of them fitted without it; shape (wanted,)."""
    fold_of = {name: number % FOLDS for number, name in enumerate(sorted(set(wanted)))}
    folds = wanted.map(fold_of).to_numpy()
    predicted_s = np.full(len(wanted), np.nan)
    for fold in range(FOLDS):
        kept = (source["operation_id"].map(fold_of) != fold).to_numpy()
        predictor = RooflinePredictor(trees=100, seed=0)
        predictor.fit(features[kept], pd.DataFrame({TARGET: source.loc[kept, "seconds"]}))
        predicted_s[folds == fold] = predictor.predict(at_source[folds == fold])[TARGET].to_numpy(float)
    return predicted_s


def at_card(rows: pd.DataFrame, catalogue: pd.DataFrame, gpu_name: str) -> pd.DataFrame:
    """Features of rows on a card at its default clock; shape (rows, features), in their order."""
    spec, parts = find_spec(gpu_name), []
    for (pass_, execution), group in rows.groupby(["pass", "execution"]):
        own = catalogue[(catalogue["pass"] == pass_) & catalogue["operation_id"].isin(group["operation_id"])]
        features = operation_features(own[CATALOGUE_COLUMNS]).loc[group["operation_id"]]
        parts.append(
            features_at(features, Setting(spec, OperatingPoint(), ExecutionSettings(str(execution)))).set_index(
                group.index
            )
        )
        parts[-1]["training"] = float(pass_ == "training")
    return pd.concat(parts).loc[rows.index]


def learnt(
    classes: np.ndarray,
    other: OtherCard,
    rooflines_s: np.ndarray,
    own_s: np.ndarray,
    numbers: np.ndarray,
    own: int,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Errors on what is not learnt from, and whether it lies in its interval, of each draw of `own` operations."""
    errors, inside = [], []
    for draw in range(DRAWS if own else 1):
        order = np.random.default_rng(draw).permutation(len(own_s))
        known, rest = order[:own], order[max(OWN) :]
        transfer = Transfer().fit(classes[known], other.among(known), rooflines_s[known], own_s[known], numbers[known])
        expected_s, ends_s = transfer.predict(classes[rest], other.among(rest), rooflines_s[rest], numbers[rest])
        errors.append(error(expected_s, own_s[rest]))
        inside.append((ends_s[:, 0] <= own_s[rest]) & (own_s[rest] <= ends_s[:, 1]))
    return errors, inside


def error(predicted_s: np.ndarray, measured_s: np.ndarray) -> np.ndarray:
    """Absolute, relative to what was measured."""
    return np.abs(predicted_s / measured_s - 1)


def show(title: str, errors: list[np.ndarray], inside: list[np.ndarray] | None = None) -> None:
    """Print means over draws."""
    numbers = np.array([[np.median(each), each.mean(), np.quantile(each, 0.9)] for each in errors]).mean(axis=0)
    held = f"{np.mean([each.mean() for each in inside]):5.0%}" if inside else "    –"
    print(f"  {title:30s} {numbers[0]:6.1%} {numbers[1]:6.1%} {numbers[2]:6.1%} {held} {len(errors[0]):5d}", flush=True)


if __name__ == "__main__":
    main()
