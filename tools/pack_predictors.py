"""Fit predictors to the measurements that the project ships, and pack them so that they are shipped too.

    python tools/pack_predictors.py [--reference NAME...] [--only GPU... | --passes] [--output-dir resources]
                                     [--keep DIR]

Joins the named folders of `resources/reference`, fits with the default settings but for fewer and smaller trees, with
transfer from the H200 to the H100, validates, and writes `predictors/` and `validation/` below the output folder,
each in place of what was there. Forests are compressed without loss, so they predict to the last bit what they did
before; costs that were measured, to be looked up, are rounded to six digits, and answers must be the same to five.
Predictions of operations that were left out, of which figures are made, are not shipped, and of `metrics.json` only
which GPUs there are: model cards say the rest. More than 16 MB are refused.

`packed.json` says what they were fitted to and with, and a few answers: `tests/unit/test_shipped_predictors.py` holds
them against data, settings and code as they are, and says when to run this again. `--keep` names a folder for
all that was made, of which a second run takes what is there. GPUs with back-to-back times are fitted in
inference, each to the reference of its name; `--only` fits these alone, and leaves the other predictors and all of
`validation/` as they are. `--passes` leaves the predictors, too: overheads of passes and pooled host times are
estimated again, and how errors add up in a pass from networks that are held out and predicted again, with the
intervals of operations that are shipped.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from packing import rounded_column, write_small

from clockwatt import config
from clockwatt.config import CampaignConfig, FitConfig
from clockwatt.dataset.build import join_sources
from clockwatt.dataset.reference import Source, references
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.predict.api import Predictors
from clockwatt.predict.composition.networks import MEASURED, Catalogue
from clockwatt.predict.description import interval_lines, shipped_catalogue
from clockwatt.predict.evaluation.leave_out import LEFT_OUT_SCHEMA
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import GpuPredictor, load_models
from clockwatt.predict.models.predictors import PREDICTORS
from clockwatt.predict.models.training_data import Samples, TrainingData, gpus_in, held, read_samples, training_data
from clockwatt.predict.models.transfer import transfer_sources, with_borrowed
from clockwatt.predict.validate import validate
from clockwatt.predict.whole_networks import complete, networks_of_gpus
from clockwatt.schema import layout

MAX_BYTES = 16_000_000
TREES, LEAF, MLPS = 20, 2, 2
"""With the default 50 and 1 they take five times as much; `docs/results/predictors.md` has what that costs."""
REFERENCES = ("h200", "h200-wide", "h100", "a30", "rtx2080ti")
SUMS = ("a30", "rtx2080ti")
"""References with back-to-back times; a sum of them is too far off in training (`benchmarks/thesis_left_out.py`)."""
PACKED_FILE = "packed.json"
BITS = {"relative_error": 8, "log_": 16}
"""Significant bits of columns whose name has this in it; a factor of 1.0007 in FLOPs or bytes is no difference."""
SAME = 1e-5
"""By how much answers may differ for rounding."""
_NOT_SHIPPED = ("crossval.parquet", "networks-left-out.parquet")
QUESTIONS = (
    ("h200", "resnet50", "inference", "tf32"),
    ("h200", "resnet50", "training", "tf32"),
    ("h200", "densenet121", "inference", "tf32"),
    ("h200", "swin_b", "training", "tf32"),
    ("h200", "vit_b_16", "inference", "bf16"),
    ("h200", "bert_base", "training", "tf32"),
    ("h100", "resnet50", "inference", "tf32"),
    ("h100", "vgg16", "training", "tf32"),
    ("a30", "resnet50", "inference", "tf32-conv"),
    ("rtx2080ti", "resnet50", "inference", "fp32"),
)
"""GPU, network, pass and precision of the answers that are kept."""
KEPT = ("time_s", "device_s", "host_s", "energy_j", "power_w")
CHECKED = 8
"""Every so many-th operation, in the order of classes, is held against code and settings: to read what all say takes
half a minute."""


def main() -> int:
    """Fit and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", nargs="+", default=list(REFERENCES), metavar="NAME")
    parser.add_argument("--output-dir", type=Path, default=resource("predictors").parent)
    parser.add_argument("--keep", type=Path, metavar="DIR")
    parser.add_argument("--only", nargs="+", default=[], metavar="GPU")
    parser.add_argument("--passes", action="store_true")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            results = given.keep or Path(temporary)
            campaign = campaign_of(given.reference)
            if given.passes:
                estimate_again(
                    campaign_of([name for name in given.reference if name not in SUMS]), results, given.output_dir
                )
                return 0
            if given.only:
                copy_shipped(given.output_dir, results)
            else:
                make(campaign_of([name for name in given.reference if name not in SUMS]), results)
            add(campaign, given.only or [name for name in given.reference if name in SUMS], results)
            pack(campaign, results, given.output_dir)
    except ClockwattError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def campaign_of(names: list[str]) -> CampaignConfig:
    """The first reference's campaign, which takes in the others, fitted with the default settings but for the trees."""
    first = config.load(resource(f"reference/{names[0]}") / "config.yaml")
    return first.model_copy(update={"reference": names[1:], "fit": FitConfig(trees=TREES, leaf=LEAF, mlps=MLPS)})


def make(campaign: CampaignConfig, results: Path) -> None:
    """Write dataset, predictors and validation, those that are not there yet."""
    dataset, predictors, validation = (results / name for name in ("dataset", "predictors", "validation"))
    if not (dataset / layout.QUALITY_FILE).exists():
        join(campaign, dataset)
    catalogue = results / layout.DATASET_CATALOGUE
    if not (predictors / layout.METRICS_FILE).exists():
        fit(campaign, dataset, catalogue, predictors)
    if not (validation / layout.NETWORKS_FILE).exists():
        validate(campaign, dataset, catalogue, predictors, validation)


def estimate_again(campaign: CampaignConfig, results: Path, output: Path) -> None:
    """Write what passes take beyond their operations into the shipped descriptions, from networks held out again."""
    dataset, rows = results / "dataset", results / "networks-left-out"
    if not (dataset / layout.QUALITY_FILE).exists():
        join(campaign, dataset)
    models, gpus = load_models(output / layout.PREDICTORS), gpus_in(dataset)
    networks_of = networks_of_gpus(
        dataset, gpus, Catalogue.read(results / layout.DATASET_CATALOGUE), transfer=campaign.fit.transfer
    )
    lent = transfer_sources(dataset, gpus) if campaign.fit.transfer else {}
    make = functools.partial(PREDICTORS["roofline"], trees=TREES, leaf=LEAF, seed=campaign.seed)
    for gpu in gpus:
        networks, description = networks_of(gpu), models[gpu].description
        lender = read_samples(dataset, lent[gpu]) if gpu in lent else None
        samples, _ = held(read_samples(dataset, gpu), list(config.PASSES), lender)
        for pass_ in config.PASSES:
            data = training_data(samples, pass_)
            assert data is not None
            if lender is not None:
                data = with_borrowed(data, lender)
            kept = rows / f"{gpu}-{pass_}.parquet"
            if not kept.exists():
                found = networks.left_out(make, data, seed=campaign.seed).assign(gpu=gpu, virtual=False)
                files.write_table(pa.Table.from_pandas(found, LEFT_OUT_SCHEMA, preserve_index=False), kept)
            described = description.passes[pass_]
            errors, report = networks.judge_left_out(
                files.read_table(kept, LEFT_OUT_SCHEMA).to_pandas(),
                complete(networks.composed(MEASURED, networks.measured, pass_)),
                described.intervals["roofline"],
                described.workless_host_s,
            )
            print(f"{gpu} {pass_}: {described.errors} → {errors}")
            description.passes[pass_] = replace(described, errors=errors, call_times=networks.call_times[pass_])
            card = output / layout.PREDICTORS / gpu / layout.MODEL_CARD_DETAILS_FILE
            lines = "\n".join(interval_lines(report["intervals"]))
            of_pass = rf"(## {pass_.title()}\n.*?### Held-out networks\n.*?\n)- errors of two operations.*?(?=\n\n)"
            text = re.sub(of_pass, rf"\g<1>{lines}", card.read_text(encoding="utf-8"), count=1, flags=re.DOTALL)
            card.write_text(text, encoding="utf-8")
        description = replace(description, points={point: networks.overheads.at(point) for point in description.points})
        with tempfile.TemporaryDirectory() as scratch:
            GpuPredictor(Path(scratch), description).save_description()
            networks.hosts_seen(dataset).write(Path(scratch))
            for path in Path(scratch).iterdir():
                compress(path, output / layout.PREDICTORS / gpu / path.name)
    packed = output / layout.PREDICTORS / PACKED_FILE
    content = json.loads(packed.read_text(encoding="utf-8")) | {"answers": answers(packed.parent)}
    files.write_text(json.dumps(content, indent=1) + "\n", packed)


def copy_shipped(shipped: Path, results: Path) -> None:
    """Write the shipped predictors and validation."""
    for name in (layout.PREDICTORS, layout.VALIDATION):
        shutil.copytree(shipped / name, results / name)
    (results / layout.PREDICTORS / PACKED_FILE).unlink()


def add(campaign: CampaignConfig, gpus: list[str], results: Path) -> None:
    """Fit some GPUs with back-to-back times in inference, beside the predictors there are; join the dataset of all."""
    metrics = json.loads((results / layout.PREDICTORS / layout.METRICS_FILE).read_text(encoding="utf-8"))
    for gpu in gpus:
        alone = campaign_of([gpu]).model_copy(update={"passes": ["inference"]})
        dataset, predictors = results / gpu / "dataset", results / gpu / layout.PREDICTORS
        join(alone, dataset)
        fit(alone, dataset, dataset / layout.CATALOGUE, predictors)
        target = results / layout.PREDICTORS / gpu
        files.remove_folders([target] if target.exists() else [])
        shutil.copytree(predictors / gpu, target)
        metrics["gpus"] |= json.loads((predictors / layout.METRICS_FILE).read_text(encoding="utf-8"))["gpus"]
    files.write_text(json.dumps(metrics), results / layout.PREDICTORS / layout.METRICS_FILE)
    join(campaign, results / "dataset")


def join(campaign: CampaignConfig, dataset: Path) -> None:
    """Join the shipped measurements."""
    join_sources(campaign.campaign, shipped(campaign), dataset)


def shipped(campaign: CampaignConfig) -> list[Source]:
    """All shipped measurements that are learnt from."""
    (first,) = campaign.gpus
    return references(campaign.model_copy(update={"reference": [first, *campaign.reference]}))


def pack(campaign: CampaignConfig, results: Path, output: Path) -> None:
    """Compress what is shipped of `results` and put it into `output`, whole or not at all.

    Raises
    ------
    DataFileError
        If it is more than may be shipped.
    """
    with tempfile.TemporaryDirectory(prefix=".packed.", dir=output) as scratch:
        aside = Path(scratch)
        for name in (layout.PREDICTORS, layout.VALIDATION):
            for path in sorted((results / name).rglob("*")):
                if path.is_file() and path.name not in _NOT_SHIPPED:
                    compress(path, aside / path.relative_to(results))
        packed = aside / layout.PREDICTORS
        content = {
            "data": digests(campaign),
            "settings": settings(campaign),
            "learnt_from": learnt_from(results / "dataset", list(load_models(packed))),
            "answers": answers(packed),
        }
        shorten_metrics(packed / layout.METRICS_FILE)
        files.write_text(json.dumps(content, indent=1) + "\n", packed / PACKED_FILE)
        sizes = {path: path.stat().st_size for path in aside.rglob("*") if path.is_file()}
        for path, size in sorted(sizes.items()):
            before = results / path.relative_to(aside)
            was = f"{before.stat().st_size:>12,}" if before.exists() else f"{'':>12}"
            print(f"{was} → {size:>10,}  {path.relative_to(aside)}")
        if sum(sizes.values()) > MAX_BYTES:
            raise DataFileError(f"{sum(sizes.values()):,} bytes when packed, more than {MAX_BYTES:,}.")
        check_same(results / layout.PREDICTORS, packed)
        for name in (layout.PREDICTORS, layout.VALIDATION):
            if (output / name).exists():
                (output / name).rename(aside / f"replaced-{name}")
            (aside / name).rename(output / name)
    print(f"{sum(sizes.values()):,} bytes in all")


def compress(path: Path, output: Path) -> None:
    """Write a file as small as it gets, with numbers of Parquet files rounded."""
    output.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            np.savez_compressed(output, allow_pickle=False, **archive)
    elif path.suffix == ".parquet":
        write_small(rounded(pq.read_table(path)), output)
    elif path.suffix == ".json":
        output.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")), separators=(",", ":")) + "\n")
    else:
        shutil.copyfile(path, output)


def rounded(rows: pa.Table) -> pa.Table:
    """The rows with numbers of no more digits than are known, or matter."""
    for field in rows.schema:
        if pa.types.is_floating(field.type):
            rows = rounded_column(rows, field.name, BITS)
    return rows


def shorten_metrics(path: Path) -> None:
    """Leave of each GPU what it is and how much was learnt from."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for label, report in content["gpus"].items():
        content["gpus"][label] = {name: report[name] for name in ("gpu_name", "virtual", "measurements")}
    files.write_text(json.dumps(content) + "\n", path)


def check_same(before: Path, packed: Path) -> None:
    """Refuse packed predictors that answer otherwise than those that were fitted.

    Raises
    ------
    DataFileError
        If a number of an answer differs by more than rounding makes.
    """
    was, now = (pd.DataFrame(answers(folder), dtype=float) for folder in (before, packed))
    if not np.allclose(was, now, rtol=SAME, atol=0, equal_nan=True):
        raise DataFileError(f"{packed}: answers otherwise than {before}: packing lost something.")


def digests(campaign: CampaignConfig) -> dict[str, str]:
    """What the data are that predictors are fitted to, by name."""
    return {str(source.reference): source.digest() for source in shipped(campaign)}


def settings(campaign: CampaignConfig) -> dict[str, Any]:
    """What predictors are fitted with."""
    return campaign.model_dump(mode="json", include={"seed", "passes", "fit"})


@functools.cache
def learnt_by(dataset: Path, gpu: str, pass_: config.Pass) -> tuple[Samples, TrainingData]:
    """What is measured of some operations on a GPU, and what of it is learnt from in a pass; nobody may change it."""
    samples = read_samples(dataset, gpu)
    named = samples.operations.drop_duplicates("operation_id").sort_values(["operation_class", "operation_id"])
    some = named["operation_id"][::CHECKED]
    rows, operations = (
        table[table["operation_id"].isin(some)].reset_index(drop=True) for table in (samples.rows, samples.operations)
    )
    samples = replace(samples, rows=rows, operations=operations)
    data = training_data(samples, pass_) or training_data(held(samples, [pass_])[0], pass_)  # back-to-back times
    assert data is not None
    return samples, data


def learnt_from(dataset: Path, gpus: list[str]) -> dict[str, Any]:
    """Mean and spread of each feature and target that is learnt from, by GPU and pass: the code's part in it."""
    found: dict[str, Any] = {}
    for gpu in gpus:
        for pass_ in config.PASSES:
            _, data = learnt_by(dataset, gpu, pass_)
            tables = (data.features[data.learnt], data.targets[data.learnt])
            columns = {name: own[name] for own in tables for name in own.select_dtypes("number")}
            found[f"{gpu} {pass_}"] = {
                "rows": int(data.learnt.sum()),
                **{name: [float(column.mean()), float(column.std())] for name, column in columns.items()},
            }
    return json.loads(json.dumps(found).replace("NaN", "null"))


def answers(predictors: Path) -> dict[str, dict[str, float | None]]:
    """Answers to a few questions, without anything looked up that is not beside the predictors."""
    loaded = Predictors(load_models(predictors), predictors, shipped_catalogue(), predictors.parent / "validation")
    found = {}
    for gpu, network, pass_, precision in QUESTIONS:
        expected = loaded.predict(network, gpu=gpu, pass_=pass_, precision=precision).expected
        found[f"{gpu} {network} {pass_} {precision}"] = {name: getattr(expected, name) for name in KEPT}
    return found


if __name__ == "__main__":
    sys.exit(main())
