"""Fitting the predictors of every GPU of a dataset, with cross-validation and a model card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import clockwatt
from clockwatt.config import CampaignConfig
from clockwatt.errors import DataFileError
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.io import files
from clockwatt.io.progress import Advance, progress, say
from clockwatt.io.seal import SealedWriter
from clockwatt.predict.composition.networks import (
    MEASURED,
    PREDICTED,
    Catalogue,
    CostsOfNetwork,
    compositions,
    whole_networks,
)
from clockwatt.predict.composition.overhead_estimates import OverheadEstimates
from clockwatt.predict.costs.learnt import workless_host_s
from clockwatt.predict.costs.of_networks import left_out_costs, measured_costs, with_errors
from clockwatt.predict.description import GpuDescription, PassDescription
from clockwatt.predict.evaluation.beside_trees import as_wide_as, judge_perceptrons
from clockwatt.predict.evaluation.judgement import (
    judge_left_out,
    judge_operations,
    network_errors,
    network_intervals,
)
from clockwatt.predict.evaluation.leave_out import (
    CROSSVAL_SCHEMA,
    LeftOutPredictions,
    cross_validate,
    learning_curve,
    predict_elsewhere,
)
from clockwatt.predict.evaluation.networks_left_out import LEFT_OUT_SCHEMA, estimate_pass_errors, leave_networks_out
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts.costs import HostsSeen
from clockwatt.predict.model_card import model_card
from clockwatt.predict.model_card_details import model_card_details
from clockwatt.predict.models.borrowing import lenders, with_borrowed
from clockwatt.predict.models.cost_predictor import TARGETS, CostPredictor
from clockwatt.predict.models.predictors import PREDICTORS, check_installed
from clockwatt.predict.models.training_data import TrainingData, training_data, with_unmeasured
from clockwatt.predict.samples import Lacks, Samples, gpus_in, held, read_samples
from clockwatt.schema import layout
from clockwatt.schema.costs import BY_CORRECTED, TIME_DEVICE_CORRECTED


@files.damaged_set_aside()
def fit(config: CampaignConfig, dataset_dir: Path, catalogue_dir: Path, output_dir: Path) -> None:
    """Fit every predictor of the config for every GPU of the dataset, in each pass.

    Writes `metrics.json`, `training.json`, `crossval.parquet`, `networks-left-out.parquet`, and for each GPU a folder
    with its predictors, `description.json`, `model-card.md` and its details. One GPU is in memory at a time. All of it
    is written aside and put in place at the end, so a fit that fails leaves the predictors and metrics of the one
    before; folders of GPUs that are no longer in the dataset are removed.

    Parameters
    ----------
    config
        `fit` says which predictors, folds and trees; `seed` decides the rest.
    dataset_dir, catalogue_dir
        From `clockwatt dataset` and `clockwatt catalogue`.
    output_dir
        Where the predictors go.

    Raises
    ------
    DataFileError
        If the dataset is missing, damaged, or mixes virtual and measured rows under one label.
    MissingLibraryError
        If a predictor needs a library that is not installed.
    UnknownGpuError
        If no specifications of a GPU are shipped.
    OutputError
        If something cannot be written.
    """
    check_installed(config.fit.predictors)
    gpus = gpus_in(dataset_dir)
    if not gpus:
        raise DataFileError(
            f"{dataset_dir / layout.OPERATIONS_FILE}: holds no measurement. Run `clockwatt measure` first."
        )
    catalogue = Catalogue.read(catalogue_dir)
    lent = lenders(dataset_dir, gpus) if config.fit.borrow else {}
    report: dict[str, Any] = {"campaign": config.campaign, "folds_wanted": config.fit.folds, "gpus": {}}
    with ExitStack() as in_place:
        # put in place in reverse order: the list of GPUs last, when all that it lists is there
        metrics, training = (
            in_place.enter_context(files.written_aside(output_dir / name))
            for name in (layout.METRICS_FILE, layout.TRAINING_FILE)
        )
        writer, left_out_writer = (
            in_place.enter_context(files.table_writer(output_dir / name, schema))
            for name, schema in ((layout.CROSSVAL_FILE, CROSSVAL_SCHEMA), (layout.LEFT_OUT_FILE, LEFT_OUT_SCHEMA))
        )
        with progress("fit", len(gpus) * len(config.passes) * len(config.fit.predictors)) as advance:
            for gpu in gpus:
                lender = (lent[gpu], read_samples(dataset_dir, lent[gpu])) if gpu in lent else None
                samples, lacks = held(read_samples(dataset_dir, gpu), config.passes, lender[1] if lender else None)
                whole, _ = whole_networks(dataset_dir, gpu)
                measured = measured_costs(samples.rows)
                overheads = OverheadEstimates.read(dataset_dir, gpu, samples, whole, catalogue, measured)
                networks = _Networks(catalogue, whole, measured, overheads, left_out_writer)
                folder = in_place.enter_context(files.folder_written_aside(output_dir / gpu))
                report["gpus"][gpu] = _fit_gpu(config, gpu, samples, lacks, networks, folder, writer, advance, lender)
                HostsSeen.of_dataset(dataset_dir, gpu).write(folder)
        for open_writer in (writer, left_out_writer):
            open_writer.close()  # before anything is put in place: the disk may be full
        training.write_text(config.training.model_dump_json(indent=2) + "\n", encoding="utf-8")
        metrics.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    files.remove_folders(_of_others(output_dir, gpus))


def _of_others(output_dir: Path, gpus: Sequence[str]) -> list[Path]:
    """Folders of predictors that earlier fits left: of GPUs that are not among these, and of fits that were killed."""
    fitted = [path.parent for path in output_dir.glob(f"[!.]*/{layout.DESCRIPTION_FILE}")]
    return [*files.left_aside(output_dir), *(folder for folder in fitted if folder.name not in gpus)]


@dataclass(frozen=True)
class _Networks:
    """Networks measured whole on one GPU, and where predictions without each of them go."""

    catalogue: Catalogue
    whole: pd.DataFrame
    measured: CostsOfNetwork
    overheads: OverheadEstimates
    writer: SealedWriter

    def composed(self, pass_: str, source: str, costs: CostsOfNetwork) -> pd.DataFrame:
        """All of one pass, composed; see `comparison.compositions`."""
        whole = self.whole[self.whole["pass"] == pass_]
        return compositions(whole, self.catalogue, self.overheads.without, source, costs)


def _fit_gpu(
    config: CampaignConfig,
    gpu: str,
    samples: Samples,
    lacks: Lacks,
    networks: _Networks,
    folder: Path,
    writer: SealedWriter,
    advance: Advance,
    lender: tuple[str, Samples] | None = None,
) -> dict[str, Any]:
    """Fit one GPU of which each pass `lacks` something.

    `lender` is another one, which it learns from too since it has few operations of its own.
    """
    spec = find_spec(samples.gpu_name)
    model = GpuPredictor(folder, _description(config, gpu, samples, networks.overheads))
    report: dict[str, Any] = {
        "gpu_name": samples.gpu_name,
        "virtual": samples.virtual,
        "measurements": samples.measurements,
        "operations_at_points": len(samples.rows),
        "not_learnt_from": samples.exclusions,
        "passes": {},
    }
    own = {pass_: training_data(samples, pass_, spec) for pass_ in config.passes}
    known = {pass_: data for pass_, data in own.items() if data is not None}
    if lender is not None:
        known = {pass_: with_borrowed(data, lender[1], pass_, spec) for pass_, data in known.items()}
    for pass_ in config.passes:
        if pass_ not in known:
            say(f"fit: {gpu}: nothing to learn from in {pass_}; no predictor of it")
            report["passes"][pass_] = {"rows": 0}
            for name in config.fit.predictors:
                advance(f"{gpu} {pass_} {name}")
            continue
        data, other = known[pass_], next((one for name, one in known.items() if name != pass_), None)
        workless = workless_host_s(samples, pass_, model.description.points)
        described = PassDescription({}, _learnt_points(data, model), workless, lacks=lacks[pass_])
        for quantity, why in described.lacks.items():
            say(f"fit: {gpu}: no {quantity} is learnt in {pass_}: {why}")
        report["passes"][pass_] = _fit_pass(config, data, other, described, model, pass_, networks, writer, advance)
        if lender is not None and (mine := own[pass_]) is not None:
            report["passes"][pass_]["borrowed"] = {"gpu": lender[0], "rows": len(data.cells) - len(mine.cells)}
        model.save_measured(pass_, samples.rows)
    model.save_description()
    page = model_card(model.description, report, details=layout.MODEL_CARD_DETAILS_FILE)
    files.write_text(page, folder / layout.MODEL_CARD_FILE)
    files.write_text(model_card_details(model.description, report), folder / layout.MODEL_CARD_DETAILS_FILE)
    return report


def _fit_pass(
    config: CampaignConfig,
    data: TrainingData,
    other: TrainingData | None,
    described: PassDescription,
    model: GpuPredictor,
    pass_: str,
    networks: _Networks,
    writer: SealedWriter,
    advance: Advance,
) -> dict[str, Any]:
    """Fit all predictors of a pass; `other` is the data of the other one, if there is any."""
    description = model.description
    of_predictors: dict[str, Any] = {}
    curve: list[dict[str, Any]] = []
    for name in config.fit.predictors:
        left_out, of_predictors[name], validation = _fit_one(config, name, data, other, model, pass_, described)
        if name == config.fit.predictors[0]:
            curve = learning_curve(
                lambda: _unfitted(config, config.fit.predictors[0]), data, validation, seed=config.seed
            )
        writer.write_table(_crossval_table(description.gpu, description.virtual, name, data, left_out))
        advance(f"{description.gpu} {pass_} {name}")
    description.passes[pass_] = described
    model.save_domain(pass_, data.domain)
    from_measured = networks.composed(pass_, MEASURED, networks.measured)
    report = {
        "learning_curve": curve,
        "rows": int(data.usable.sum()),
        "learnt_rows": int(data.learnt.sum()),
        "learnt_points": described.learnt_points,
        "predictors": of_predictors,
        "networks_left_out": _leave_out(config, data, model, pass_, networks, from_measured),
        "networks_measured": _of_measured(model, pass_, from_measured),
    }
    for predictor, of_predictor in of_predictors.items():  # networks left out are told by forests, in their intervals
        if judged := of_predictor["perceptrons"]:
            intervals = description.passes[pass_].intervals[predictor]
            intervals[TIME_DEVICE_CORRECTED] = as_wide_as(intervals[TIME_DEVICE_CORRECTED], judged["width"])
    return report


def _learnt_points(data: TrainingData, model: GpuPredictor) -> list[str]:
    measured = set(data.cells["point"])
    return [point for point in model.description.points if point in measured]


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
    return PREDICTORS[name](trees=config.fit.trees, seed=config.seed, leaf=config.fit.leaf)


def _fit_one(
    config: CampaignConfig,
    name: str,
    data: TrainingData,
    other: TrainingData | None,
    model: GpuPredictor,
    pass_: str,
    described: PassDescription,
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
    if predictor.takes_perceptrons:
        predictor.set_params(perceptrons=config.fit.perceptrons)
    beside = None if other is None else (other.features[other.learnt], other.targets[other.learnt])
    predictor.fit(data.features[data.learnt], data.targets[data.learnt], beside)
    model.save_forest(name, pass_, predictor)
    spec = find_spec(model.description.gpu_name)
    left_out = validation.at_rows(data, spec)
    described.intervals[name], report = judge_operations(data, left_out, _elsewhere(config, name, data, spec))
    report["folds"] = validation.folds
    report["perceptrons"] = None
    if predictor.perceptrons_ is not None:
        judged = judge_perceptrons(
            lambda: _unfitted(config, name).set_params(perceptrons=config.fit.perceptrons), data, other,
            seed=config.seed,
        )  # fmt: skip
        report["perceptrons"] = asdict(judged) if judged is not None else {}
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
    networks.writer.write_table(pa.Table.from_pandas(rows, schema=LEFT_OUT_SCHEMA, preserve_index=False))
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
