"""The predictors of time for GPUs that were never measured: fitted, judged on GPU models left out, and written."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import clockwatt
from clockwatt.config import CampaignConfig
from clockwatt.errors import OutputError
from clockwatt.io import files
from clockwatt.io.progress import progress, say
from clockwatt.predict.crossval import ANY_CLASS
from clockwatt.predict.domain import Domain
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.grouped import GroupedInterval, left_out_inside, worst_group_interval
from clockwatt.predict.metrics import metrics, metrics_by
from clockwatt.predict.pool import LEFT_OUT_SCHEMA, Card, leave_models_out, models_of, read_card, time_predictor
from clockwatt.predict.predictors import TIMES
from clockwatt.predict.samples import gpus_in
from clockwatt.predict.unseen import UnseenModel, unseen_dir
from clockwatt.predict.unseencard import unseen_card
from clockwatt.predict.unseendescription import DEVICE, HOST, OPERATIONS, UnseenDescription, UnseenPass
from clockwatt.predict.wholes import Catalogue

MODELS_AT_LEAST = 3
"""With two, each would be predicted from a single other one."""

MODEL_CARD_FILE = "model-card.md"
LEFT_OUT_FILE = "left-out.parquet"


def fit_unseen(config: CampaignConfig, dataset_dir: Path, catalogue: Catalogue, output_dir: Path) -> dict[str, Any]:
    """Fit predictors of time for GPUs never measured: one from the measured GPUs, and one from the virtual ones.

    What an earlier fit left of them is removed. Where there are too few GPU models a line says so, and nothing is
    written.

    Parameters
    ----------
    config
        `fit.unseen_gpu` says whether, `fit.trees` and `seed` how.
    dataset_dir
        From `clockwatt dataset`.
    catalogue
        What networks call.
    output_dir
        Where the predictors of single GPUs lie.

    Returns
    -------
    dict
        `measured` and `virtual` to what was learnt from and the errors on models left out; empty where there is none.

    Raises
    ------
    DataFileError
        If the dataset is damaged.
    OutputError
        If something cannot be written.
    """
    folders = {kind: unseen_dir(output_dir, virtual=kind == "virtual") for kind in ("measured", "virtual")}
    for folder in folders.values():
        _remove(folder)
    if not config.fit.unseen_gpu:
        return {}
    read = (read_card(dataset_dir, gpu, config.passes) for gpu in gpus_in(dataset_dir))
    cards = [card for card in read if card.problems]
    report = {}
    for kind, folder in folders.items():
        own = [card for card in cards if card.virtual == (kind == "virtual")]
        if len(models_of(own)) >= MODELS_AT_LEAST:
            report[kind] = _fit_kind(config, own, catalogue, folder)
    if not report:
        named = ", ".join(f"{card.gpu} ({'virtual ' if card.virtual else ''}{card.spec.name})" for card in cards)
        say(
            f"fit: fit.unseen_gpu takes {MODELS_AT_LEAST} GPU models to learn from, all measured or all virtual; there "
            f"are {named or 'none'}. So there is no predictor for GPUs never measured: measure more, or set the key to "
            "false in config.yaml."
        )
    return report


def _remove(folder: Path) -> None:
    """Remove a folder that an earlier fit may have left, lest its answers be taken for those of this fit."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be removed ({error}). Remove it, then run `clockwatt fit` again."
        ) from error


def _fit_kind(config: CampaignConfig, cards: Sequence[Card], catalogue: Catalogue, folder: Path) -> dict[str, Any]:
    clocks = {ratio for card in cards for ratio in card.sm_clock_ratios()}
    description = UnseenDescription(
        virtual=cards[0].virtual,
        gpus={card.gpu: card.gpu_name for card in cards},
        tf32=sorted({value for card in cards for value in card.tf32}),
        sm_clock_ratios=(min(clocks), max(clocks)),
        clockwatt_version=clockwatt.__version__,
    )
    model = UnseenModel(folder, description)
    report: dict[str, Any] = {"gpus": description.gpus, "models": description.models, "passes": {}}
    left_out = []
    for pass_ in config.passes:
        own = [card for card in cards if pass_ in card.problems]
        if len(models_of(own)) < MODELS_AT_LEAST:
            say(
                f"fit: fewer than {MODELS_AT_LEAST} GPU models have {pass_}: no predictor of it for GPUs never measured"
            )
            continue
        rows, report["passes"][pass_] = _fit_pass(config, own, catalogue, pass_, model)
        left_out.append(rows)
    if left_out:
        table = pa.Table.from_pandas(pd.concat(left_out), schema=LEFT_OUT_SCHEMA, preserve_index=False)
        files.write_table(table, folder / LEFT_OUT_FILE)
        files.write_text(unseen_card(description, report), folder / MODEL_CARD_FILE)
        model.save_description()
    return report


def _fit_pass(
    config: CampaignConfig, cards: Sequence[Card], catalogue: Catalogue, pass_: str, model: UnseenModel
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Fit one pass into the model; its predictions of GPU models left out, and what they say."""
    trees, seed = config.fit.trees, config.seed
    operations, networks = [], []
    with progress(f"fit {pass_} for unseen GPUs", len(models_of(cards)) + 1) as advance:
        for of_operations, of_networks in leave_models_out(cards, pass_, catalogue, trees=trees, seed=seed):
            operations.append(of_operations)
            networks.append(of_networks)
            advance(f"without {of_operations['model'].iloc[0]}")
        predictor = time_predictor(cards, pass_, trees=trees, seed=seed)
        advance("all")
    rows, whole = pd.concat(operations, ignore_index=True), pd.concat(networks, ignore_index=True)
    intervals = {name: _class_intervals(rows, name) for name in TIMES}
    report = _report(rows, whole)
    model.save(pass_, predictor, Domain.union([card.problems[pass_].domain for card in cards]))
    model.description.passes[pass_] = UnseenPass(
        workless_host_s=predictor.workless_host_s,
        host=predictor.host,
        intervals=intervals,
        networks={
            bound: worst_group_interval(_residuals(judged), judged["model"].to_numpy(object))
            for bound in report["networks"]
            for judged in [_judged_networks(whole, bound)]
        },
        errors={
            OPERATIONS: report["targets"]["time_device_s"],
            **{bound: judged["all"] for bound, judged in report["networks"].items()},
        },
    )
    return rows, report


def _class_intervals(rows: pd.DataFrame, target: str) -> dict[str, GroupedInterval]:
    """Interval of each operation class that all GPU models have; under `ANY_CLASS` that of all rows."""
    models = rows["model"].nunique()
    complete = [
        (str(name), group) for name, group in rows.groupby(OPERATION_CLASS) if group["model"].nunique() == models
    ]
    return {
        name: worst_group_interval(_residuals(group, target), group["model"].to_numpy(object))
        for name, group in [(ANY_CLASS, rows), *complete]
    }


def _judged_networks(whole: pd.DataFrame, bound: str) -> pd.DataFrame:
    """Networks that are bound so; all of them, where too few GPU models have such ones."""
    own = whole[whole["bound"] == bound]
    return own if own["model"].nunique() >= MODELS_AT_LEAST else whole


def _report(rows: pd.DataFrame, whole: pd.DataFrame) -> dict[str, Any]:
    """Errors over all GPU models, by model and by class, and the intervals with their coverage of models left out."""
    report: dict[str, Any] = {"rows": len(rows), "targets": {}, "models": {}, "classes": {}, "intervals": {}}
    for name in TIMES:
        measured, predicted = (rows[column].to_numpy(float) for column in (name, f"predicted_{name}"))
        report["targets"][name] = metrics(measured, predicted)
        report["models"][name] = metrics_by(rows["model"], measured, predicted)
        report["classes"][name] = metrics_by(rows[OPERATION_CLASS], measured, predicted)
        report["intervals"][name] = _interval(rows, name)
    report["networks"] = {}
    for bound in (DEVICE, HOST) if whole["model"].nunique() >= MODELS_AT_LEAST else ():
        judged = _judged_networks(whole, bound)
        measured, composed = (judged[column].to_numpy(float) for column in ("measured_time_s", "time_s"))
        report["networks"][bound] = {
            "all": metrics(measured, composed),
            "models": metrics_by(judged["model"], measured, composed),
            "interval": _interval(judged),
        }
    return report


def _residuals(rows: pd.DataFrame, target: str = "") -> NDArray[np.float64]:
    """log(measured / predicted) of a target of operations, or of whole networks."""
    measured, predicted = (target, f"predicted_{target}") if target else ("measured_time_s", "time_s")
    residuals: NDArray[np.float64] = np.log(rows[measured].to_numpy(float) / rows[predicted].to_numpy(float))
    return residuals


def _interval(rows: pd.DataFrame, target: str = "") -> dict[str, Any]:
    residuals, models = _residuals(rows, target), rows["model"].to_numpy(object)
    inside = left_out_inside(residuals, models, worst_group_interval)
    coverage = None if np.isnan(inside).all() else float(np.nanmean(inside))
    return {**asdict(worst_group_interval(residuals, models)), "left_out_coverage": coverage}
