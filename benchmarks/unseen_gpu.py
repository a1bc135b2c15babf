"""How well times on a GPU are told by others alone, GPU models left out in turn.

    python benchmarks/unseen_gpu.py [--trees 100] [--operations 600]

First what was measured: the shipped operations of an H200, and those of an NVIDIA A30 that others measured (master
thesis of C. Nicolai, Heidelberg; see `thesis_a30.py`), each card predicted from the other alone, which is less than
`fit.unseen_gpu` asks for. Of the A30 only back-to-back times are known, so these are compared. Then modelled GPUs: how
many it takes at best, for their times are rooflines with a smooth factor of each card's own.

Beside the predictor stands the roofline times one factor, the median of the cards learnt from.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import others
import pandas as pd
import pyarrow as pa
import thesis_a30

from clockwatt import config
from clockwatt.dataset.build import build_dataset
from clockwatt.gpu.specs import find_spec
from clockwatt.gpu.virtual.model import CardModel, Work
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.operations.spec.operation import MATRIX_CLASSES
from clockwatt.predict.features import CATALOGUE_COLUMNS, OPERATION_CLASS, ROOFLINE_TIME, operation_features
from clockwatt.predict.metrics import metrics, metrics_by
from clockwatt.predict.pool import Card, read_card
from clockwatt.predict.predictors import RooflinePredictor
from clockwatt.predict.unseen import on_card
from clockwatt.predict.unseenfit import fit_unseen
from clockwatt.predict.wholes import Catalogue
from clockwatt.schema import records, tables

REFERENCE = resource("reference/h200")
POOLS = (
    ("a30", "rtx2080ti", "rtx4090"),
    ("a30", "rtx2080ti", "rtx4090", "v100", "a100", "h100"),
    ("a30", "rtx2080ti", "rtx4090", "v100", "a100", "h100", "rtx3090", "l40s", "h200", "v100-pcie", "h100-pcie"),
)
CLOCK_SHARES = (1.0, 0.8, 0.6)
HOST_S, NOISE = 8e-6, 0.01
TIME = "time_eager_s"
LONG_S = {records.INFERENCE: 30e-6, records.TRAINING: 310e-6}
"""Twice the shortest operation of the A30, which is its host's: below, hosts are compared and not cards."""


def main() -> None:
    """Measured cards, then modelled ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--operations", type=int, default=600, help="how many of the catalogue, on modelled GPUs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measured(Path(temporary), given.trees)
        for number, pool in enumerate(POOLS):
            modelled(Path(temporary) / str(number), pool, given.operations, given.trees)


def measured(folder: Path, trees: int) -> None:
    """Each of two measured cards by the other."""
    build_dataset(config.load(REFERENCE / "config.yaml"), REFERENCE / "measurements", REFERENCE / "catalogue", folder)
    h200 = read_card(folder, "h200", config.PASSES)
    thesis = others.read("thesis-a30-operations.parquet")
    for pass_ in config.PASSES:
        cards = {"A30": of_thesis(thesis, pass_), "H200": of_card(h200, pass_)}
        shared = len(set(cards["A30"][2]) & set(cards["H200"][2]))
        print(f"\n{pass_}, TF32, {TIME}: {shared} operations were measured on both cards")
        for held, learnt in (("H200", "A30"), ("A30", "H200")):
            features, times, _ = cards[learnt]
            asked, truth, _ = cards[held]
            fitted = RooflinePredictor(trees=trees).fit(features, times)
            told(f"{held} by {learnt}", truth[TIME], fitted.predict(asked)[TIME], LONG_S[pass_], asked[OPERATION_CLASS])
            factor = (times[TIME] / features[ROOFLINE_TIME]).median()
            told(
                f"{held} by {learnt}, roofline × {factor:.2f}",
                truth[TIME],
                factor * asked[ROOFLINE_TIME],
                LONG_S[pass_],
            )


def of_card(card: Card, pass_: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series]:
    """Features, times and ids of the operations with TF32 that were measured on a card."""
    problem = card.problems[pass_]
    chosen = problem.learnt & problem.cells["tf32"].to_numpy(bool)
    features = on_card(problem.features[chosen], card.spec)
    return features, problem.targets.loc[chosen, [TIME]], problem.cells.loc[chosen, "operation_id"]


def of_thesis(rows: pd.DataFrame, pass_: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series]:
    """The same of the thesis's A30."""
    chosen = (rows["mode"] == pass_) & rows["tf32"] & (rows["repeat_time_ratio"] < thesis_a30.CONTRADICTION)
    rows = rows[chosen].reset_index(drop=True)
    operations = thesis_a30.catalogue(rows, pass_)
    works = operations["device_work"].to_numpy(bool)
    features = thesis_a30.at_default_clock(operation_features(operations[CATALOGUE_COLUMNS]), tf32=True)
    times = rows[["time_per_iter_s"]].set_axis([TIME], axis=1)
    return on_card(features[works], find_spec("a30")), times[works], operations.loc[works, "operation_id"]


def told(title: str, truth: pd.Series, predicted: pd.Series, long_s: float, classes: pd.Series | None = None) -> None:
    """Print errors over all operations, of the long ones, and of these by class, the classes with the most rows."""
    measured, expected = truth.to_numpy(float), predicted.to_numpy(float)
    long = measured >= long_s
    print(f"  {title:34s} {shown(metrics(measured, expected))}")
    print(f"    {f'from {long_s * 1e6:.0f} µs on':32s} {shown(metrics(measured[long], expected[long]))}")
    if classes is not None:
        by_class = metrics_by(classes[long], measured[long], expected[long])
        for name in sorted(by_class, key=lambda each: -by_class[each]["rows"])[:4]:
            print(f"      {name:30s} {shown(by_class[name])}", flush=True)


def shown(errors: dict) -> str:
    """Errors on one line."""
    return (
        f"{errors['rows']:5d} rows: median {errors['median_ape']:6.1%}, mean {errors['mape']:6.1%}, "
        f"95th percentile {errors['p95_ape']:6.1%}, bias {errors['bias']:+6.1%}"
    )


def modelled(folder: Path, pool: Sequence[str], count: int, trees: int) -> None:
    """Modelled GPUs, each by the others, as `clockwatt fit` does it."""
    campaign = config.parse(
        {
            "campaign": "unseen",
            "gpus": {name.replace("-", "_"): {"device": f"virtual:{name}"} for name in pool},
            "networks": [{"name": "resnet18", "input": [1, 3, 224, 224]}],
            "passes": ["inference"],
            "fit": {"unseen_gpu": True, "trees": trees},
        },
        source="benchmark",
    )
    catalogue = files.read_table(REFERENCE / "catalogue" / "operations.parquet", records.OPERATION_SCHEMA)
    rows = [row for row in catalogue.to_pylist() if row["device_work"] and row["pass"] == records.INFERENCE]
    chosen = [rows[number] for number in np.random.default_rng(0).permutation(len(rows))[:count]]
    tables = [operation_rows(label, gpu.device, chosen) for label, gpu in campaign.gpus.items()]
    files.write_table(pa.concat_tables(tables), folder / tables.OPERATIONS_FILE)
    files.write_table(tables.NETWORKS_SCHEMA.empty_table(), folder / tables.NETWORKS_FILE)
    files.write_table(records.CALIBRATION_SCHEMA.empty_table(), folder / tables.CALIBRATION_FILE)
    report = fit_unseen(campaign, folder, Catalogue.read(REFERENCE / "catalogue"), folder / "predictors")
    found = report["virtual"]["passes"]["inference"]
    print(f"\n{len(pool)} modelled GPUs, device time of {count} operations at {len(CLOCK_SHARES)} clocks")
    for name, errors in {"all": found["targets"], **found["models"]["time_device_s"]}.items():
        print(f"  {name:34s} {shown(errors['time_device_s'] if name == 'all' else errors)}")
    interval = found["intervals"]["time_device_s"]
    print(
        f"  interval × {interval['upper']:.2f} ({interval['method']}), made from the others it contains "
        f"{interval['left_out_coverage']:.1%} of a model's rows",
        flush=True,
    )


def operation_rows(label: str, device: str, operations: list[dict]) -> pa.Table:
    """Rows of the dataset at some clocks, by the model of a virtual card with noise."""
    spec = find_spec(device)
    card, memory_mhz = CardModel(spec, seed=0, card=0), spec.memory_clocks_mhz[-1]
    rng = np.random.default_rng(sum(label.encode()))
    rows = []
    for clock in sorted(
        {nearest(spec.supported_sm_clocks_mhz, share * spec.boost_clock_mhz) for share in CLOCK_SHARES}
    ):
        for row in operations:
            matrix = row["operation_class"] in MATRIX_CLASSES
            work = Work(row["flops"], row["bytes_read"] + row["bytes_written"], row["dtype"], tf32=True, matrix=matrix)
            time_s = card.activity(work, clock, memory_mhz).time_s * (1 + NOISE * rng.standard_normal())
            power_w, idle_w = card.power_w(work, 1.0, clock, memory_mhz), spec.power_w.idle
            values = records.MeasurementRow(
                kind=records.OPERATION, subject_id=row["operation_id"], pass_=records.INFERENCE, gpu=label,
                point=f"sm{clock}", tf32=True, dtype=row["dtype"], virtual=True, gpu_name=f"virtual {spec.name}",
                time_device_s=time_s, time_host_s=HOST_S, time_eager_s=max(time_s, HOST_S), power_w=power_w,
                power_idle_w=idle_w, energy_j=power_w * time_s, energy_dynamic_j=(power_w - idle_w) * time_s,
            )  # fmt: skip
            described = {
                tables.dataset_name(name): row[name] for name in tables.joined_columns(records.OPERATION_SCHEMA)
            }
            rows.append({records.column_name(name): value for name, value in asdict(values).items()} | described)
    return pa.Table.from_pylist(rows, schema=tables.OPERATIONS_SCHEMA)


def nearest(supported: Sequence[int], mhz: float) -> int:
    """The supported clock nearest to one."""
    return min(supported, key=lambda each: abs(each - mhz))


if __name__ == "__main__":
    main()
