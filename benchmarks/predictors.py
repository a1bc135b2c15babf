"""Every predictor on shipped H200 data, with related operations held out together.

    python benchmarks/predictors.py [--reference DIR] [--predictors NAME ...]

Builds the dataset of a folder laid out like `resources/reference/h200`; needs no GPU. Prints errors of time and dynamic
energy of each predictor by pass, and what fitting it once takes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import result_file

from clockwatt import config
from clockwatt.dataset.build import build_dataset
from clockwatt.io.resources import resource
from clockwatt.predict.evaluation.leave_out import cross_validate
from clockwatt.predict.models.predictors import PREDICTORS, check_installed
from clockwatt.predict.models.training_data import TrainingData, gpus_in, read_samples, training_data

JUDGED = ("time_device_corrected_s", "time_host_corrected_s", "energy_dynamic_corrected_j")


def main() -> None:
    """Cross-validate the predictors and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, default=resource("reference/h200"))
    parser.add_argument("--predictors", nargs="+", choices=list(PREDICTORS), default=list(PREDICTORS))
    given = parser.parse_args()
    check_installed(given.predictors)
    campaign = config.load(given.reference / "config.yaml")
    rows: list[list[str]] = []
    print("| GPU | pass | predictor | device time: mean / median | host time | dynamic energy | fit |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        dataset = Path(temporary)
        build_dataset(campaign, given.reference / "measurements", given.reference / "catalogue", dataset)
        for gpu in gpus_in(dataset):
            samples = read_samples(dataset, gpu)
            for pass_ in campaign.passes:
                problem = training_data(samples, pass_)
                if problem is not None:
                    for name in given.predictors:
                        rows.append([gpu, pass_, name, *judged(name, problem, campaign.fit)])
                        print(f"| {' | '.join(rows[-1])} |", flush=True)
    columns = [
        "GPU",
        "pass",
        "predictor",
        "device time: mean / median",
        "host time",
        "dynamic energy",
        "seconds to fit",
    ]
    result_file.write("predictors", "Every predictor, related operations held out together", columns, rows)


def judged(name: str, problem: TrainingData, fit: config.FitConfig) -> list[str]:
    """Return the errors of one predictor, as cells of a table."""
    began_s = time.perf_counter()
    validation = cross_validate(lambda: PREDICTORS[name](trees=fit.trees, seed=0), problem, folds=fit.folds, seed=0)
    fit_s = (time.perf_counter() - began_s) / validation.folds
    errors = (validation.predictions[problem.learnt] / problem.targets[problem.learnt] - 1).abs()
    cells = [f"{errors[target].mean():.1%} / {errors[target].median():.1%}" for target in JUDGED]
    return [*cells, f"{fit_s:.1f}"]


if __name__ == "__main__":
    main()
