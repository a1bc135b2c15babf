"""Fitting the predictors of one GPU in one pass, and judging them by what they have not seen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import clockwatt
from clockwatt.config import CampaignConfig
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.io.progress import say
from clockwatt.predict.composition.comparison import MEASURED, PREDICTED, compositions
from clockwatt.predict.composition.networks import Catalogue, CostsOfNetwork, whole_networks
from clockwatt.predict.composition.overhead_estimates import OverheadEstimates
from clockwatt.predict.costs.learnt import workless_host_s
from clockwatt.predict.costs.of_networks import left_out_costs, measured_costs, with_errors
from clockwatt.predict.description import GpuDescription, PassDescription
from clockwatt.predict.evaluation.judgement import (
    judge_left_out,
    judge_operations,
    network_errors,
    network_intervals,
)
from clockwatt.predict.evaluation.learning_curve import learning_curve
from clockwatt.predict.evaluation.leave_out import (
    LeftOutPredictions,
    cross_validate,
    leave_networks_out,
    predict_elsewhere,
)
from clockwatt.predict.evaluation.pass_errors import estimate_pass_errors
from clockwatt.predict.evaluation.tables import CROSSVAL_SCHEMA, LEFT_OUT_SCHEMA
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.models.borrowing import with_borrowed
from clockwatt.predict.models.predictors import PREDICTORS, TARGETS, CostPredictor
from clockwatt.predict.models.training_data import TrainingData, training_data, with_unmeasured
from clockwatt.predict.samples import Samples, read_samples
from clockwatt.schema.costs import BY_CORRECTED


@dataclass(frozen=True)
class _Networks:
    """Networks measured whole on one GPU, and predictions without each of them."""

    catalogue: Catalogue
    whole: pd.DataFrame
    measured: CostsOfNetwork
    overheads: OverheadEstimates
    left_out: list[pa.Table] = field(default_factory=list)

    def composed(self, pass_: str, source: str, costs: CostsOfNetwork) -> pd.DataFrame:
        """All of one pass, composed; see `comparison.compositions`."""
        whole = self.whole[self.whole["pass"] == pass_]
        return compositions(whole, self.catalogue, self.overheads.without, source, costs)


@dataclass(frozen=True)
class Fitted:
    """What there is of one GPU in one pass, beside the files of its folder.

    Attributes
    ----------
    description
        Of the GPU, and of this pass alone.
    of_gpu, of_pass
        Metrics.
    crossval, left_out
        Tables of held-out predictions.
    """

    description: GpuDescription
    of_gpu: dict[str, Any]
    pass_: str
    of_pass: dict[str, Any]
    crossval: list[pa.Table]
    left_out: list[pa.Table]


def fit_gpu(
    config: CampaignConfig,
    dataset_dir: Path,
    catalogue: Catalogue,
    gpu: str,
    lender: str | None,
    folder: Path,
    pass_: str,
) -> Fitted:
    """Fit one GPU in one pass; `lender` is another GPU, which it learns from too since it has few operations itself."""
    samples = read_samples(dataset_dir, gpu)
    whole, _ = whole_networks(dataset_dir, gpu)
    measured = measured_costs(samples.rows)
    overheads = OverheadEstimates.read(dataset_dir, gpu, samples, whole, catalogue, measured)
    networks = _Networks(catalogue, whole, measured, overheads)
    spec = find_spec(samples.gpu_name)
    model = GpuPredictor(folder, _description(config, gpu, samples, overheads))
    of_gpu = {
        "gpu_name": samples.gpu_name,
        "virtual": samples.virtual,
        "measurements": samples.measurements,
        "operations_at_points": len(samples.rows),
        "not_learnt_from": samples.exclusions,
    }
    crossval: list[pa.Table] = []
    data = training_data(samples, pass_, spec)
    if data is None:
        say(f"fit: {gpu}: nothing to learn from in {pass_}; no predictor of it")
        of_pass: dict[str, Any] = {"rows": 0}
    else:
        own_cells = len(data.cells)
        if lender is not None:
            data = with_borrowed(data, read_samples(dataset_dir, lender), pass_, spec)
        workless = workless_host_s(samples, pass_, model.description.points)
        of_pass = _fit_pass(config, data, workless, model, pass_, networks, crossval)
        if lender is not None:
            of_pass["borrowed"] = {"gpu": lender, "rows": len(data.cells) - own_cells}
        model.save_measured(pass_, samples.rows)
    return Fitted(model.description, of_gpu, pass_, of_pass, crossval, networks.left_out)


def _fit_pass(
    config: CampaignConfig,
    data: TrainingData,
    workless_s: dict[str, float],
    model: GpuPredictor,
    pass_: str,
    networks: _Networks,
    crossval: list[pa.Table],
) -> dict[str, Any]:
    description = model.description
    measured = set(data.cells["point"])
    learnt = [point for point in description.points if point in measured]
    described = PassDescription({}, learnt, workless_s)
    of_predictors: dict[str, Any] = {}
    curve: list[dict[str, Any]] = []
    for name in config.fit.predictors:
        left_out, of_predictors[name], validation = _fit_one(config, name, data, model, pass_, described)
        if name == config.fit.predictors[0]:
            curve = learning_curve(
                lambda: _unfitted(config, config.fit.predictors[0]), data, validation, seed=config.seed
            )
        crossval.append(_crossval_table(description.gpu, description.virtual, name, data, left_out))
    description.passes[pass_] = described
    model.save_domain(pass_, data.domain)
    from_measured = networks.composed(pass_, MEASURED, networks.measured)
    return {
        "learning_curve": curve,
        "rows": int(data.usable.sum()),
        "learnt_rows": int(data.learnt.sum()),
        "learnt_points": learnt,
        "predictors": of_predictors,
        "networks_left_out": _leave_out(config, data, model, pass_, networks, from_measured),
        "networks_measured": _of_measured(model, pass_, from_measured),
    }


def _description(config: CampaignConfig, gpu: str, samples: Samples, overheads: OverheadEstimates) -> GpuDescription:
    measured = set(samples.rows["point"])
    return GpuDescription(
        gpu=gpu,
        gpu_name=samples.gpu_name,
        virtual=samples.virtual,
        predictors=list(config.fit.predictors),
        tf32=sorted({bool(value) for value in samples.rows["tf32"]}),
        points={point: overheads.at(point) for point in overheads.calibrated if point in measured},
        clockwatt_version=clockwatt.__version__,
    )


def _unfitted(config: CampaignConfig, name: str) -> CostPredictor:
    return PREDICTORS[name](trees=config.fit.trees, seed=config.seed)


def _fit_one(
    config: CampaignConfig, name: str, data: TrainingData, model: GpuPredictor, pass_: str, described: PassDescription
) -> tuple[LeftOutPredictions, dict[str, Any], LeftOutPredictions]:
    """Fit, save and judge one predictor: what it said of every row and every cell left out, and the report between."""
    validation = cross_validate(
        lambda: _unfitted(config, name),
        data.features,
        data.targets,
        data.groups,
        data.learnt,
        folds=config.fit.folds,
        seed=config.seed,
    )
    predictor = _unfitted(config, name)
    predictor.fit(data.features[data.learnt], data.targets[data.learnt])
    model.save_forest(name, pass_, predictor)
    spec = find_spec(model.description.gpu_name)
    left_out = validation.at_rows(data, spec)
    described.intervals[name], report = judge_operations(data, left_out, _elsewhere(config, name, data, spec))
    report["folds"] = validation.folds
    if validation.folds < config.fit.folds:
        say(f"fit: {model.description.gpu}: {validation.folds} folds in {pass_}, as many as groups")
    return left_out, report, validation


def _elsewhere(
    config: CampaignConfig, name: str, data: TrainingData, spec: GpuSpec
) -> LeftOutPredictions | None:  # fmt: skip
    """Designed operations predicted from those that networks call, and these from the designed; None without both."""
    origin = np.where(data.designed, "designed", "called").astype(object)
    if len(set(origin)) == 1:
        return None
    predictions = predict_elsewhere(lambda: _unfitted(config, name), data.features, data.targets, origin, data.learnt)
    return predictions.at_rows(data, spec)


def _leave_out(
    config: CampaignConfig,
    data: TrainingData,
    model: GpuPredictor,
    pass_: str,
    networks: _Networks,
    from_measured: pd.DataFrame,
) -> dict[str, Any] | None:
    """Leave each network out that was measured whole; its errors are those of networks to come.

    `from_measured` are the compositions from measured operations.
    """
    names = networks.catalogue.names(networks.whole, pass_)
    operations, spec = networks.catalogue.operations, find_spec(model.description.gpu_name)
    called = networks.catalogue.called_by(networks.whole, pass_)
    rows = leave_networks_out(
        lambda: _unfitted(config, config.fit.predictors[0]),
        with_unmeasured(data, called, operations[operations["pass"] == pass_], spec),
        spec,
        networks.catalogue.called(pass_),
        names,
        seed=config.seed,
    )
    if rows.empty:
        return None
    rows = rows.assign(gpu=model.description.gpu, virtual=model.description.virtual)
    networks.left_out.append(pa.Table.from_pandas(rows, schema=LEFT_OUT_SCHEMA, preserve_index=False))
    costs = left_out_costs(rows, operations, model.description.workless_host_s)
    composed = networks.composed(pass_, PREDICTED, costs)
    described = model.description.passes[pass_]
    errors, report = estimate_pass_errors(
        composed[composed["calls_without_cost"] == 0],
        from_measured[from_measured["calls_without_cost"] == 0],
        with_errors(rows, described.intervals[config.fit.predictors[0]]),
        networks.catalogue,
    )
    model.description.passes[pass_] = replace(described, errors=errors)
    return {**judge_left_out(rows), "compositions": network_errors(composed), "intervals": report}


def _of_measured(model: GpuPredictor, pass_: str, from_measured: pd.DataFrame) -> dict[str, Any] | None:
    """Networks of which every operation was measured; their errors are those of others like them."""
    complete = from_measured[from_measured["calls_without_cost"] == 0]
    if complete.empty:
        return None
    intervals, described = network_intervals(complete)
    model.description.passes[pass_].networks_measured.update(intervals)
    return {"compositions": network_errors(complete), "intervals": described}


def _crossval_table(gpu: str, virtual: bool, name: str, data: TrainingData, left_out: LeftOutPredictions) -> pa.Table:
    rows = data.rows
    columns = {
        "gpu": [gpu] * len(rows),
        "virtual": [virtual] * len(rows),
        "predictor": [name] * len(rows),
        "fold": left_out.fold,
        "learnt": data.usable,
        **{key: rows[key] for key in ("pass", "point", "tf32", "operation_id", OPERATION_CLASS)},
        **{target: rows[target] for target in TARGETS},
        **{BY_CORRECTED[target].predicted: left_out.predictions[target] for target in TARGETS},
    }
    arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in CROSSVAL_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=CROSSVAL_SCHEMA)
