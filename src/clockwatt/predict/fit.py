"""Fitting the predictors of every GPU of a dataset, with cross-validation and a model card."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import clockwatt
from clockwatt import files
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.dataset.schema import OPERATIONS_FILE
from clockwatt.errors import DataFileError
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.predict.crossval import (
    CrossValidation,
    Interval,
    conformal_interval,
    cross_validate,
    held_out_coverage,
)
from clockwatt.predict.features import OPERATION_CLASS, channel_groups, features_of, operation_features
from clockwatt.predict.gpumodel import ANY_CLASS, GpuDescription, GpuModel, PassDescription
from clockwatt.predict.hostcosts import PointCosts, read_point_costs
from clockwatt.predict.metrics import metrics, metrics_by
from clockwatt.predict.modelcard import model_card
from clockwatt.predict.predictors import PREDICTORS, TARGETS
from clockwatt.predict.samples import Samples, gpus_in, read_samples
from clockwatt.progress import Advance, progress, say

METRICS_FILE = "metrics.json"
CROSSVAL_FILE = "crossval.parquet"
MODEL_CARD_FILE = "model-card.md"

CROSSVAL_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("predictor", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        pa.field("operation_id", pa.string()),
        pa.field("operation_class", pa.string()),
        pa.field("fold", pa.int64()),
        pa.field("learnt", pa.bool_()),  # False: predicted, but excluded from fitting and from the metrics
        *(pa.field(name, pa.float64()) for name in TARGETS),
        *(pa.field(f"predicted_{name}", pa.float64()) for name in TARGETS),
    ],
    metadata={"kind": "cross-validation"},
)
"""Each measured operation with the prediction of a predictor that never saw its group."""


@dataclass(frozen=True)
class _Problem:
    """What is to be learnt for one GPU and pass; every array has one entry per row of `rows`."""

    rows: pd.DataFrame
    features: pd.DataFrame
    targets: pd.DataFrame
    groups: pd.Series
    usable: np.ndarray


def fit(config: CampaignConfig, dataset_dir: Path, output_dir: Path) -> None:
    """Fit every predictor of the config for every GPU of the dataset, in each pass.

    Writes `metrics.json`, `crossval.parquet`, and for each GPU a folder with its predictors, `description.json` and
    `model-card.md`. One GPU is in memory at a time.

    Parameters
    ----------
    config
        `fit` says which predictors, folds and trees; `seed` decides the rest.
    dataset_dir
        From `clockwatt dataset`.
    output_dir
        Where the predictors go.

    Raises
    ------
    DataFileError
        If the dataset is missing, damaged, or mixes virtual and measured rows under one label.
    UnknownGpuError
        If no specifications of a GPU are shipped.
    OutputError
        If something cannot be written.
    """
    gpus = gpus_in(dataset_dir)
    if not gpus:
        raise DataFileError(f"{dataset_dir / OPERATIONS_FILE}: holds no measurement. Run `clockwatt measure` first.")
    report: dict[str, Any] = {"campaign": config.campaign, "folds_wanted": config.fit.folds, "gpus": {}}
    with ExitStack() as stack:
        aside = stack.enter_context(files.written_aside(output_dir / CROSSVAL_FILE))
        writer = stack.enter_context(pq.ParquetWriter(aside, CROSSVAL_SCHEMA, compression=files.COMPRESSION))
        steps = len(gpus) * len(config.passes) * len(config.fit.predictors)
        advance = stack.enter_context(progress("fit", steps))
        for gpu in gpus:
            samples = read_samples(dataset_dir, gpu)
            costs = read_point_costs(dataset_dir, gpu)
            report["gpus"][gpu] = _fit_gpu(config, gpu, samples, costs, output_dir / gpu, writer, advance)
    files.write_text(json.dumps(report, indent=2) + "\n", output_dir / METRICS_FILE)


def _fit_gpu(
    config: CampaignConfig,
    gpu: str,
    samples: Samples,
    costs: dict[str, PointCosts],
    folder: Path,
    writer: pq.ParquetWriter,
    advance: Advance,
) -> dict[str, Any]:
    spec = find_spec(samples.gpu_name)
    model = GpuModel(folder, _description(config, gpu, samples, costs))
    report: dict[str, Any] = {
        "gpu_name": samples.gpu_name,
        "virtual": samples.virtual,
        "measurements": samples.measurements,
        "operations_at_points": len(samples.rows),
        "not_learnt_from": samples.exclusions,
        "passes": {},
    }
    for pass_ in config.passes:
        problem = _problem(samples, pass_, spec)
        if problem is None:
            say(f"fit: {gpu}: nothing to learn from in {pass_}; no predictor of it")
            report["passes"][pass_] = {"rows": 0}
            for name in config.fit.predictors:
                advance(f"{gpu} {pass_} {name}")
            continue
        described = PassDescription({}, _workless_host_s(samples, pass_, model.description.points))
        of_predictors: dict[str, Any] = {}
        report["passes"][pass_] = {"rows": int(problem.usable.sum()), "predictors": of_predictors}
        for name in config.fit.predictors:
            validation, of_predictors[name] = _fit_one(config, name, problem, model, pass_, described)
            writer.write_table(_crossval_table(gpu, samples.virtual, name, problem, validation))
            advance(f"{gpu} {pass_} {name}")
        model.description.passes[pass_] = described
    model.save_description()
    files.write_text(model_card(model.description, report), folder / MODEL_CARD_FILE)
    return report


def _description(config: CampaignConfig, gpu: str, samples: Samples, costs: dict[str, PointCosts]) -> GpuDescription:
    idle = samples.rows.groupby("point")["power_idle_w"].median()
    points = {
        str(point): costs.get(str(point), PointCosts()).or_idle_power(None if pd.isna(power) else float(power))
        for point, power in sorted(idle.items(), key=lambda item: _settings(str(item[0])))
    }
    return GpuDescription(
        gpu=gpu,
        gpu_name=samples.gpu_name,
        virtual=samples.virtual,
        predictors=list(config.fit.predictors),
        tf32=sorted({bool(value) for value in samples.rows["tf32"]}),
        points=points,
        clockwatt_version=clockwatt.__version__,
    )


def _settings(point: str) -> tuple[int, int, int]:
    """Operating points by their settings, the default first."""
    parsed = OperatingPoint.parse(point)
    return parsed.sm_clock_mhz or 0, parsed.memory_clock_mhz or 0, parsed.power_limit_w or 0


def _problem(samples: Samples, pass_: str, spec: GpuSpec) -> _Problem | None:
    """Rows of a pass that do something on the device; None where there is nothing to learn from."""
    rows = samples.rows
    rows = rows[(rows["pass"] == pass_) & rows["device_work"].astype(bool)].reset_index(drop=True)
    usable = (rows["excluded"] == "").to_numpy(bool)
    if not usable.any():
        return None
    operations = operation_features(samples.operations[samples.operations["pass"] == pass_])
    groups = rows["operation_id"].map(channel_groups(operations))
    return _Problem(rows, features_of(rows, operations, spec), rows[list(TARGETS)].astype(float), groups, usable)


def _fit_one(
    config: CampaignConfig, name: str, problem: _Problem, model: GpuModel, pass_: str, described: PassDescription
) -> tuple[CrossValidation, dict[str, Any]]:
    kind = PREDICTORS[name]
    validation = cross_validate(
        lambda: kind(trees=config.fit.trees, seed=config.seed),
        problem.features,
        problem.targets,
        problem.groups,
        problem.usable,
        folds=config.fit.folds,
        seed=config.seed,
    )
    predictor = kind(trees=config.fit.trees, seed=config.seed)
    predictor.fit(problem.features[problem.usable], problem.targets[problem.usable])
    model.save_forest(name, pass_, predictor)
    intervals, report = _evaluate(problem, validation)
    described.intervals[name] = intervals
    if validation.folds < config.fit.folds:
        say(f"fit: {model.description.gpu}: {validation.folds} folds in {pass_}, as many as groups")
    return validation, report


def _evaluate(problem: _Problem, validation: CrossValidation) -> tuple[dict[str, Interval], dict[str, Any]]:
    intervals: dict[str, Interval] = {}
    report: dict[str, Any] = {"folds": validation.folds, "targets": {}, "classes": {}, "intervals": {}}
    judged = problem.usable & validation.predictions.notna().all(axis=1).to_numpy(bool)
    classes = problem.features.loc[judged, OPERATION_CLASS]
    for target in TARGETS:
        measured = problem.targets.loc[judged, target].to_numpy(float)
        predicted = validation.predictions.loc[judged, target].to_numpy(float)
        report["targets"][target] = metrics(measured, predicted)
        report["classes"][target] = metrics_by(classes, measured, predicted)
        if judged.any():
            residuals = np.log(measured / predicted)
            interval = intervals[target] = conformal_interval(residuals)
            report["intervals"][target] = {
                "lower": interval.lower,
                "upper": interval.upper,
                "held_out_coverage": held_out_coverage(residuals, validation.fold[judged]),
            }
    return intervals, report


def _workless_host_s(samples: Samples, pass_: str, points: dict[str, PointCosts]) -> dict[str, float]:
    """Median host time of calls that do nothing on the device, by class and over all; the calibration's without any."""
    rows = samples.rows
    rows = rows[(rows["pass"] == pass_) & ~rows["device_work"].astype(bool) & rows["time_host_s"].notna()]
    if rows.empty:
        of_calls = [costs.per_call_s(pass_) for costs in points.values()]
        calibrated = [cost for cost in of_calls if cost is not None]
        return {ANY_CLASS: float(np.median(calibrated))} if calibrated else {}
    operations = samples.operations[samples.operations["pass"] == pass_].set_index("operation_id")
    classes = rows["operation_id"].map(operations[OPERATION_CLASS])
    medians = rows["time_host_s"].astype(float).groupby(classes).median()
    return {
        ANY_CLASS: float(rows["time_host_s"].median()),
        **{str(key): float(value) for key, value in medians.items()},
    }


def _crossval_table(gpu: str, virtual: bool, name: str, problem: _Problem, validation: CrossValidation) -> pa.Table:
    rows = problem.rows
    columns = {
        "gpu": [gpu] * len(rows),
        "virtual": [virtual] * len(rows),
        "predictor": [name] * len(rows),
        "fold": validation.fold,
        "learnt": problem.usable,
        "operation_class": problem.features[OPERATION_CLASS],
        **{key: rows[key] for key in ("pass", "point", "tf32", "operation_id")},
        **{target: problem.targets[target] for target in TARGETS},
        **{f"predicted_{target}": validation.predictions[target] for target in TARGETS},
    }
    arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in CROSSVAL_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=CROSSVAL_SCHEMA)
