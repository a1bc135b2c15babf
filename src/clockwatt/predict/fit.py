"""Fit the predictors of every GPU of a dataset, with cross-validation and a model card."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import clockwatt
from clockwatt.config import CampaignConfig
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.io.progress import Advance, progress, say
from clockwatt.io.seal import SealedWriter
from clockwatt.predict.composition.networks import MEASURED, Catalogue
from clockwatt.predict.costs import workless_host_s
from clockwatt.predict.description import GpuDescription, PassDescription, model_card, model_card_details
from clockwatt.predict.evaluation.errors import Interval
from clockwatt.predict.evaluation.leave_out import (
    CROSSVAL_SCHEMA,
    LEFT_OUT_SCHEMA,
    LeftOutPredictions,
    as_wide_as,
    cross_validate,
    judge_operations,
    judge_perceptrons,
    learning_curve,
    network_errors,
    network_intervals,
    predict_elsewhere,
)
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.models.predictors import PREDICTORS, CostPredictor, check_installed
from clockwatt.predict.models.training_data import (
    Lacks,
    Samples,
    TrainingData,
    gpus_in,
    held,
    read_samples,
    training_data,
)
from clockwatt.predict.models.transfer import transfer_sources, with_borrowed
from clockwatt.predict.whole_networks import WholeNetworks, complete, networks_of_gpus
from clockwatt.schema import layout
from clockwatt.schema.costs import TIME_DEVICE_CORRECTED
from clockwatt.schema.execution import ExecutionSettings


@files.damaged_set_aside()
def fit(config: CampaignConfig, dataset_dir: Path, catalogue_dir: Path, output_dir: Path) -> None:
    """Fit every predictor of the config for every GPU of the dataset, in each pass.

    Writes `metrics.json`, `training.json`, `crossval.parquet`, `networks-left-out.parquet`, and for each GPU a folder
    with its predictors, `description.json`, `model-card.md` and its details. One GPU is in memory at a time. All files
    are written to a temporary folder and moved at the end, so a failed fit leaves the previous predictors and metrics.
    Folders of GPUs that are no longer in the dataset are removed.

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
    lent = transfer_sources(dataset_dir, gpus) if config.fit.transfer else {}
    networks_of = networks_of_gpus(dataset_dir, gpus, catalogue, transfer=config.fit.transfer)
    report: dict[str, Any] = {"campaign": config.campaign, "folds_wanted": config.fit.folds, "gpus": {}}
    with ExitStack() as in_place:
        # moved in reverse order: the list of GPUs last, when all GPUs that it lists are there
        metrics, training = (
            in_place.enter_context(files.written_aside(output_dir / name))
            for name in (layout.METRICS_FILE, layout.TRAINING_FILE)
        )
        crossval, left_out = (
            in_place.enter_context(files.table_writer(output_dir / name, schema))
            for name, schema in ((layout.CROSSVAL_FILE, CROSSVAL_SCHEMA), (layout.LEFT_OUT_FILE, LEFT_OUT_SCHEMA))
        )
        with progress("fit", len(gpus) * len(config.passes) * len(config.fit.predictors)) as advance:
            for gpu in gpus:
                lender = (lent[gpu], read_samples(dataset_dir, lent[gpu])) if gpu in lent else None
                samples, lacks = held(read_samples(dataset_dir, gpu), config.passes, lender[1] if lender else None)
                networks = networks_of(gpu)
                folder = in_place.enter_context(files.folder_written_aside(output_dir / gpu))
                model = GpuPredictor(folder, _description(config, gpu, samples, networks))
                of_gpu = _GpuFit(config, samples, lacks, lender, networks, model, crossval, left_out, advance)
                report["gpus"][gpu] = of_gpu.run()
                networks.hosts_seen(dataset_dir).write(folder)
        for writer in (crossval, left_out):
            writer.close()  # before anything is moved: the disk may be full
        training.write_text(config.training.model_dump_json(indent=2) + "\n", encoding="utf-8")
        metrics.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    files.remove_folders(_of_others(output_dir, gpus))


def _of_others(output_dir: Path, gpus: Sequence[str]) -> list[Path]:
    """Return folders of predictors to remove: of GPUs that are not among these, and of killed fits."""
    fitted = [path.parent for path in output_dir.glob(f"[!.]*/{layout.DESCRIPTION_FILE}")]
    return [*files.left_aside(output_dir), *(folder for folder in fitted if folder.name not in gpus)]


def _description(config: CampaignConfig, gpu: str, samples: Samples, networks: WholeNetworks) -> GpuDescription:
    """Return the description of a GPU before anything is fitted."""
    measured, overheads = set(samples.rows["point"]), networks.overheads
    return GpuDescription(
        gpu=gpu,
        gpu_name=samples.gpu_name,
        virtual=samples.virtual,
        predictors=list(config.fit.predictors),
        execution=sorted({ExecutionSettings(text) for text in samples.rows["execution"]}),
        points={point: overheads.at(point) for point in overheads.calibrated if point in measured},
        clockwatt_version=clockwatt.__version__,
    )


@dataclass(frozen=True)
class _GpuFit:
    """Fit the predictors of one GPU.

    Attributes
    ----------
    samples, lacks
        Measurements on it, and what each pass lacks.
    lender
        Label and measurements of another GPU to transfer from; None where no other has operations that this one lacks.
    networks
        Networks that were measured whole on it.
    model
        Predictor of the GPU that is written.
    crossval, left_out
        Writers of predictions with groups of operations, and with networks, held out.
    advance
        Called after each fitted predictor.
    """

    config: CampaignConfig
    samples: Samples
    lacks: Lacks
    lender: tuple[str, Samples] | None
    networks: WholeNetworks
    model: GpuPredictor
    crossval: SealedWriter
    left_out: SealedWriter
    advance: Advance

    def run(self) -> dict[str, Any]:
        """Fit all passes and write the GPU's folder; return its entry of `metrics.json`."""
        description, samples = self.model.description, self.samples
        report: dict[str, Any] = {
            "gpu_name": samples.gpu_name,
            "virtual": samples.virtual,
            "measurements": samples.measurements,
            "operations_at_points": len(samples.rows),
            "not_learnt_from": samples.exclusions,
            "passes": {},
        }
        known = self._known()
        for pass_ in self.config.passes:
            if pass_ not in known:
                say(f"fit: {description.gpu}: nothing to learn from in {pass_}; no predictor of it")
                report["passes"][pass_] = {"rows": 0}
                for name in self.config.fit.predictors:
                    self.advance(f"{description.gpu} {pass_} {name}")
                continue
            for quantity, why in self.lacks[pass_].items():
                say(f"fit: {description.gpu}: no {quantity} is fitted in {pass_}: {why}")
            other = next((data for name, data in known.items() if name != pass_), None)
            report["passes"][pass_] = self._fit_pass(known[pass_], other)
            self.model.save_measured(pass_, samples.rows)
        self.model.save_description()
        folder, details = self.model.folder, layout.MODEL_CARD_DETAILS_FILE
        files.write_text(model_card(description, report, details=details), folder / layout.MODEL_CARD_FILE)
        files.write_text(model_card_details(description, report), folder / details)
        return report

    def _known(self) -> dict[str, TrainingData]:
        """Return training data of each pass with measurements, with transferred cells."""
        return {
            pass_: data if self.lender is None else with_borrowed(data, self.lender[1])
            for pass_ in self.config.passes
            if (data := training_data(self.samples, pass_)) is not None
        }

    def _fit_pass(self, data: TrainingData, other: TrainingData | None) -> dict[str, Any]:
        """Fit all predictors of a pass; `other` is the data of the other one, if there is any."""
        pass_, description, first = data.pass_, self.model.description, self.config.fit.predictors[0]
        intervals: dict[str, dict[str, dict[str, Interval]]] = {}
        of_predictors: dict[str, Any] = {}
        curve: list[dict[str, Any]] = []
        for name in self.config.fit.predictors:
            validation = cross_validate(self._make(name), data, folds=self.config.fit.folds, seed=self.config.seed)
            intervals[name], of_predictors[name] = self._fit_predictor(name, data, other, validation)
            if name == first:
                curve = learning_curve(self._make(name), data, validation, seed=self.config.seed)
            self.advance(f"{description.gpu} {pass_} {name}")
        self.model.save_domain(pass_, data.domain)
        described, of_networks = self._judge_networks(data, intervals)
        description.passes[pass_] = described
        report = {
            "learning_curve": curve,
            "rows": int(data.usable.sum()),
            "learnt_rows": int(data.learnt.sum()),
            "learnt_points": described.learnt_points,
            "predictors": of_predictors,
            **of_networks,
        }
        for name in self.config.fit.predictors:  # after held-out networks, which forests alone predict
            if judged := of_predictors[name]["perceptrons"]:
                told = described.intervals[name]
                told[TIME_DEVICE_CORRECTED] = as_wide_as(told[TIME_DEVICE_CORRECTED], judged["width"])
        if self.lender is not None:
            report["borrowed"] = {"gpu": self.lender[0], "rows": data.borrowed}
        return report

    def _fit_predictor(
        self, name: str, data: TrainingData, other: TrainingData | None, validation: LeftOutPredictions
    ) -> tuple[dict[str, dict[str, Interval]], dict[str, Any]]:
        """Fit, save and evaluate one predictor; return its intervals and its report."""
        config, description = self.config.fit, self.model.description
        make = self._make(name, perceptrons=config.mlps)
        predictor = make()
        predictor.fit(*data.to_learn, None if other is None else other.to_learn)
        self.model.save_forest(name, data.pass_, predictor)
        left_out, elsewhere = validation.at_rows(data), predict_elsewhere(self._make(name), data)
        intervals, report = judge_operations(data, left_out, elsewhere.at_rows(data) if elsewhere else None)
        report |= {"folds": validation.folds, "perceptrons": None}
        if predictor.perceptrons_ is not None:
            judged = judge_perceptrons(make, data, other, seed=self.config.seed)
            report["perceptrons"] = judged or {}
        if validation.folds < config.folds:
            say(f"fit: {description.gpu}: {validation.folds} folds in {data.pass_}, as many as groups")
        table = left_out.table(data, gpu=description.gpu, virtual=description.virtual, predictor=name)
        self.crossval.write_table(table)
        return intervals, report

    def _judge_networks(
        self, data: TrainingData, intervals: dict[str, dict[str, dict[str, Interval]]]
    ) -> tuple[PassDescription, dict[str, Any]]:
        """Evaluate networks, held out and composed from measured operations; the former estimate errors on unseen ones.

        `intervals` are those of each predictor. Return the description of the pass, and both reports.
        """
        description, first = self.model.description, self.config.fit.predictors[0]
        workless = workless_host_s(self.samples, data.pass_, description.points)
        from_measured = complete(self.networks.composed(MEASURED, self.networks.measured, data.pass_))
        errors, of_left_out = None, None
        rows = self.networks.left_out(self._make(first), data, seed=self.config.seed)
        if not rows.empty:
            rows = rows.assign(gpu=description.gpu, virtual=description.virtual)
            self.left_out.write_table(pa.Table.from_pandas(rows, schema=LEFT_OUT_SCHEMA, preserve_index=False))
            errors, of_left_out = self.networks.judge_left_out(rows, from_measured, intervals[first], workless)
        of_measured: dict[str, Interval] = {}
        report: dict[str, Any] | None = None
        if not from_measured.empty:
            host_bound = from_measured["host_s"] > from_measured["device_s"]
            of_measured, said = network_intervals(from_measured[~host_bound])
            report = {"compositions": network_errors(from_measured), "intervals": said}
        learnt_points = [point for point in description.points if data.cells["point"].eq(point).any()]
        described = PassDescription(
            intervals, learnt_points, workless, errors, of_measured,
            call_times=self.networks.call_times.get(data.pass_, {}), lacks=self.lacks[data.pass_],
        )  # fmt: skip
        return described, {"networks_left_out": of_left_out, "networks_measured": report}

    def _make(self, name: str, *, perceptrons: int = 0) -> Callable[[], CostPredictor]:
        """Return a factory of unfitted predictors of this name, with MLPs where it supports them."""
        config, kind = self.config.fit, PREDICTORS[name]
        beside = {"perceptrons": perceptrons} if kind.takes_perceptrons else {}
        return functools.partial(kind, trees=config.trees, seed=self.config.seed, leaf=config.leaf, **beside)
