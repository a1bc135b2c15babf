"""How well networks composed from their operations agree with the same networks measured whole, on shipped H200 data.

    python benchmarks/composition.py [--reference DIR] [--output-dir DIR] [--splits N]

Runs the stages `dataset`, `fit` and `validate` on `resources/reference/h200`, or on any folder laid out like it (one
`config.yaml`, `catalogue/`, `measurements/`); needs no GPU. Writes errors by pass and source, and prints errors on
operations of networks left out, and what share of held-out groups conformal intervals contain, over several splits.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from pathlib import Path

import pandas as pd
import result_file

from clockwatt import config
from clockwatt.dataset.build import build_dataset
from clockwatt.io.resources import resource
from clockwatt.predict.evaluation.leave_out import cross_validate, judge_left_out, judge_operations
from clockwatt.predict.fit import fit
from clockwatt.predict.models.predictors import PREDICTORS
from clockwatt.predict.models.training_data import gpus_in, read_samples, training_data
from clockwatt.predict.validate import validate
from clockwatt.schema import layout

TARGETS = {
    ("measured", "time", "inference"): (2, 6),
    ("measured", "time", "training"): (3, 8),
    **{("measured", "energy", pass_): (3, 8) for pass_ in ("inference", "training")},
    **{("predicted", "time", pass_): (5, 15) for pass_ in ("inference", "training")},
    **{("predicted", "energy", pass_): (8, 20) for pass_ in ("inference", "training")},
}
"""Median and worst error, %, by source, quantity and pass."""
JUDGED = ("time_device_corrected_s", "energy_dynamic_corrected_j")


def main() -> None:
    """Run the stages and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, default=resource("reference/h200"))
    parser.add_argument("--output-dir", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run(given.reference, given.output_dir or Path(temporary), given.splits)


def run(reference: Path, folder: Path, splits: int) -> None:
    """Run the stages in `folder` and print what came out."""
    campaign = config.load(reference / "config.yaml")
    catalogue = reference / "catalogue"
    dataset, predictors, validation = (folder / name for name in ("dataset", "predictors", "validation"))
    build_dataset(campaign, reference / "measurements", catalogue, dataset)
    fit(campaign, dataset, catalogue, predictors)
    validate(campaign, dataset, catalogue, predictors, validation)
    rows = pd.read_parquet(validation / "networks.parquet")
    report(rows)
    for gpu, judged in json.loads((validation / layout.VALIDATION_FILE).read_text(encoding="utf-8"))["gpus"].items():
        print(f"{gpu}: {judged['whole_network_rows_left_out']} rows of whole networks can be held against nothing")
    report_left_out(pd.read_parquet(predictors / layout.LEFT_OUT_FILE))
    report_coverage(campaign, dataset, splits)


def report(rows: pd.DataFrame) -> None:
    """Print every composition, and write median and worst errors by source and pass."""
    incomplete = rows[rows["calls_without_cost"] > 0]
    rows = rows.drop(incomplete.index)
    errors = rows.assign(
        time=rows["time_s"] / rows["measured_time_s"] - 1,
        energy=rows["energy_j"] / rows["measured_energy_j"] - 1,
        plain=rows["plain_time_s"] / rows["measured_time_s"] - 1,
    ).sort_values(["source", "pass", "network_id", "point", "execution"])
    shown = ["network_id", "pass", "execution", "source", "time", "energy", "plain"]
    print(errors[shown].to_string(index=False, float_format="{:+.1%}".format))
    table, targets = [], []
    for (source, pass_), group in errors.groupby(["source", "pass"]):
        absolute = 100 * group[["time", "energy", "plain"]].abs()
        cells = [f"{values.median():.1f} / {values.max():.1f} %" for _, values in absolute.items()]
        table.append([f"{source} operations, {pass_}", len(group), *cells])
        for name in ("time", "energy"):
            what = f"{name} from {source} operations, {pass_}"
            middle, worst = TARGETS[source, name, pass_]
            targets += [
                result_file.target(f"{what}: {kind}", value, at_most=bound, unit="%")
                for kind, value, bound in (
                    ("median", absolute[name].median(), middle),
                    ("worst", absolute[name].max(), worst),
                )
            ]
    columns = ["compositions of", "passes", "time: median / worst", "energy: median / worst",
               "sum of back-to-back times: median / worst"]  # fmt: skip
    result_file.write(
        "composition", "Networks of the shipped H200 data, composed and measured whole", columns, table,
        targets=targets, hardware="NVIDIA H200, shipped data; computed without a GPU",
        notes=[f"{len(incomplete)} compositions lack the cost of an operation and do not count.",
               "Operations that a network alone calls are predicted by a predictor that was not trained on them."],
    )  # fmt: skip


def report_left_out(rows: pd.DataFrame) -> None:
    """Print errors on the operations that only the network left out calls, by class."""
    for pass_, own in rows.groupby("pass"):
        judged = judge_left_out(own)
        for target in JUDGED:
            print(f"\n{pass_}, networks left out, {target}")
            table = pd.DataFrame({"all": judged["targets"][target], **judged["classes"][target]}).T
            print(table.to_string(float_format="{:.3f}".format))


def report_coverage(campaign: config.CampaignConfig, dataset: Path, splits: int) -> None:
    """Print the share of held-out groups inside the intervals that other folds give, over splits into folds."""
    kind = PREDICTORS[campaign.fit.predictors[0]]
    for gpu in gpus_in(dataset):
        samples = read_samples(dataset, gpu)
        found = []
        for pass_ in campaign.passes:
            data = training_data(samples, pass_)
            for seed in range(splits if data is not None else 0):
                make = functools.partial(kind, trees=campaign.fit.trees, seed=seed)
                validation = cross_validate(make, data, folds=campaign.fit.folds, seed=seed)
                intervals = judge_operations(data, validation.at_rows(data))[1]["intervals"]
                for target in JUDGED:
                    found.append((pass_, target, "pooled", intervals[target]["held_out_coverage"]))
                    of_classes = intervals[target]["classes"].items()
                    found += [(pass_, target, name, one["held_out_coverage"]) for name, one in of_classes]
        table = pd.DataFrame(found, columns=["pass", "quantity", "class", "covered"])
        print(f"\n{gpu}: share of held-out groups inside 90 % intervals, mean over {splits} splits")
        means = table.pivot_table(index="class", columns=["pass", "quantity"], values="covered")
        print(means.to_string(float_format="{:.1%}".format))


if __name__ == "__main__":
    main()
