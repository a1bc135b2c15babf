"""Fitting the predictors of every GPU of a dataset, with cross-validation and a model card."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clockwatt.config import CampaignConfig
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.io.progress import progress
from clockwatt.predict import beside
from clockwatt.predict.composition.networks import Catalogue
from clockwatt.predict.evaluation.tables import CROSSVAL_SCHEMA, LEFT_OUT_SCHEMA
from clockwatt.predict.fit_gpu import Fitted, fit_gpu
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts.costs import HostsSeen
from clockwatt.predict.model_card import model_card
from clockwatt.predict.model_card_details import model_card_details
from clockwatt.predict.models.borrowing import lenders
from clockwatt.predict.models.predictors import check_installed
from clockwatt.predict.samples import gpus_in, rows_in
from clockwatt.schema import layout


def fit(config: CampaignConfig, dataset_dir: Path, catalogue_dir: Path, output_dir: Path) -> None:
    """Fit every predictor of the config for every GPU of the dataset, in each pass.

    Writes `metrics.json`, `training.json`, `crossval.parquet`, `networks-left-out.parquet`, and for each GPU a folder
    with its predictors, `description.json`, `model-card.md` and its details. Of much data one GPU is in memory at a
    time; of less, GPUs and passes are fitted beside each other, in processes of their own (`beside`). All of it is
    written aside and put in place at the end, so a fit that fails leaves the predictors and metrics of the one before;
    folders of GPUs that are no longer in the dataset are removed.

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
        folders = {gpu: in_place.enter_context(files.folder_written_aside(output_dir / gpu)) for gpu in gpus}
        parts = list(itertools.product(gpus, config.passes))
        fitting = beside.each(
            fit_gpu,
            [(config, dataset_dir, catalogue, gpu, lent.get(gpu), folders[gpu], pass_) for gpu, pass_ in parts],
            rows_in(dataset_dir),
        )
        of_gpu: dict[str, list[Fitted]] = {gpu: [] for gpu in gpus}
        with progress("fit", len(parts)) as advance:
            for (gpu, pass_), fitted in zip(parts, fitting, strict=True):
                of_gpu[gpu].append(fitted)
                for open_writer, made in ((writer, fitted.crossval), (left_out_writer, fitted.left_out)):
                    for table in made:
                        open_writer.write_table(table)
                    made.clear()
                advance(f"{gpu} {pass_}")
        for gpu, fitted_passes in of_gpu.items():
            report["gpus"][gpu] = _describe(fitted_passes, folders[gpu])
            HostsSeen.of_dataset(dataset_dir, gpu).write(folders[gpu])
        for open_writer in (writer, left_out_writer):
            open_writer.close()  # before anything is put in place: the disk may be full
        training.write_text(config.training.model_dump_json(indent=2) + "\n", encoding="utf-8")
        metrics.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    files.remove_folders(_of_others(output_dir, gpus))


def _of_others(output_dir: Path, gpus: Sequence[str]) -> list[Path]:
    """Folders of predictors that earlier fits left: of GPUs that are not among these, and of fits that were killed."""
    fitted = [path.parent for path in output_dir.glob(f"[!.]*/{layout.DESCRIPTION_FILE}")]
    return [*files.left_aside(output_dir), *(folder for folder in fitted if folder.name not in gpus)]


def _describe(fitted: Sequence[Fitted], folder: Path) -> dict[str, Any]:
    """Write what describes a GPU that was fitted in each pass; returns its metrics."""
    description, report = fitted[0].description, fitted[0].of_gpu | {"passes": {}}
    for one in fitted:
        description.passes.update(one.description.passes)
        report["passes"][one.pass_] = one.of_pass
    GpuPredictor(folder, description).save_description()
    page = model_card(description, report, details=layout.MODEL_CARD_DETAILS_FILE)
    files.write_text(page, folder / layout.MODEL_CARD_FILE)
    files.write_text(model_card_details(description, report), folder / layout.MODEL_CARD_DETAILS_FILE)
    return report
