"""All that the page shows, as one document that its script reads."""

from __future__ import annotations

import json
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import clockwatt
from clockwatt.config import PASSES, CampaignConfig, OperatingPoint, reference_point
from clockwatt.errors import DataFileError
from clockwatt.figures.palette import gpu_colours
from clockwatt.io import files
from clockwatt.page import choices, measured, method, trust
from clockwatt.page.answers import COLUMNS, Answers, answer_all
from clockwatt.page.packing import packed, plain
from clockwatt.page.words import clock_mhz, network_words, operation_words
from clockwatt.predict.gpu_predictor import GpuPredictor, load_models
from clockwatt.predict.hosts import DIFFERENT_HOSTS
from clockwatt.predict.recommend import BY_CLOCK_MODEL, REPEATED
from clockwatt.schema import layout
from clockwatt.schema.records import NETWORK_SCHEMA, OPERATION_SCHEMA

_KINDS = {"question": "i4", "gpu": "u1", "point": "i4", "measured_point": "u1", "measured_share": "f4",
          "told_for_host": "u1", "host_paced": "u1"}  # fmt: skip
"""Compact types of columns of the candidates; all others affect a choice and stay exact."""


@dataclass(frozen=True)
class _Catalogued:
    """Catalogue entries of the networks and operations shown."""

    networks: dict[str, dict[str, Any]]
    classes: dict[str, str]
    specs: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> _Catalogued:
        columns = ["network_id", "network", "input_shape", "dtype", "assumed_branches"]
        networks = files.read_table(folder / layout.NETWORKS_FILE, NETWORK_SCHEMA, columns).to_pandas()
        columns = ["operation_id", "operation_class", "spec"]
        table = files.read_table(folder / layout.OPERATIONS_FILE, OPERATION_SCHEMA, columns)
        ids, classes, specs = (table[name].to_pylist() for name in columns)
        by_id = {str(row["network_id"]): row for row in networks.to_dict("records")}
        return cls(by_id, dict(zip(ids, classes, strict=True)), dict(zip(ids, specs, strict=True)))


def page_content(
    config: CampaignConfig,
    dataset_dir: Path,
    predictors_dir: Path,
    validation_dir: Path,
    measurements_dir: Path | None = None,
) -> Any:
    """Return the content of the page.

    Parameters
    ----------
    config
        Its name and first predictor.
    dataset_dir, predictors_dir, validation_dir
        What the stages before wrote.
    measurements_dir
        The shards' files, for readings of the sensors; None if there are none.

    Returns
    -------
    dict
        For JSON; columns of numbers are `packing.packed`.

    Raises
    ------
    DataFileError
        If a result is missing or damaged.
    """
    models = load_models(predictors_dir, validation_dir)
    catalogue_dir = dataset_dir / layout.DATASET_CATALOGUE.name
    asked = measured.networks_asked(config, dataset_dir)
    answers, known = answer_all(models, catalogue_dir, asked), _Catalogued.read(catalogue_dir)
    beside, left_out = measured.beside_candidates(answers, models, dataset_dir, validation_dir)
    predictor = config.fit.predictors[0]
    return plain({
        "campaign": config.campaign,
        "version": clockwatt.__version__,
        "predictor": predictor,
        "gpus": _gpus(models),
        "networks": _networks(answers, known, asked[True]),
        **_candidates(answers, beside),
        "regrets": _regrets(validation_dir),
        "different_hosts": DIFFERENT_HOSTS,
        "joules": _joules(answers, known),
        "trust": {
            "classes": trust.class_rows(predictors_dir, predictor, answers, known.classes),
            "networks": trust.whole_errors(predictors_dir),
            "points": _scatter(trust.held_out_points(predictors_dir, predictor, known.specs), models),
            "counts": trust.counts(dataset_dir, predictors_dir),
            "left_out": [*left_out, *_left_out(config, models, answers, len(asked[False] - asked[True]))],
        },
        "method": method.described(dataset_dir, list(models), measurements_dir),
    })  # fmt: skip


def _gpus(models: dict[str, GpuPredictor]) -> list[dict[str, Any]]:
    colours = gpu_colours(models)
    found = []
    for label, model in models.items():
        described = model.description
        points = []
        for point in described.points:
            asked = OperatingPoint.parse(point)
            points.append({
                "name": point, "clock_mhz": clock_mhz(described.gpu_name, point),
                "memory_mhz": asked.memory_clock_mhz, "limit_w": asked.power_limit_w,
                "law": point not in _learnt(model),
            })  # fmt: skip
        reference = reference_point(described.points)
        hosts = {pass_: model.hosts_seen.told_for(pass_, is_network=True) for pass_ in described.passes}
        found.append({
            "label": label, "name": described.gpu_name.removeprefix("virtual "), "virtual": described.virtual,
            "colour": colours[label], "points": points, "execution": described.execution,
            "hosts": hosts,
            "reference": None if reference is None else list(described.points).index(reference),
        })  # fmt: skip
    return found


def _left_out(
    config: CampaignConfig, models: dict[str, GpuPredictor], answers: Answers, networks_of_measured_alone: int
) -> list[str]:
    """Return sentences on what the page leaves out."""
    said = (
        [] if answers.questions else ["The campaign has no network: there is nothing to choose an operating point for."]
    )
    asked = {question.pass_ for question in answers.questions}
    if any(model.description.virtual for model in models.values()) and networks_of_measured_alone:
        said.append(
            f"{networks_of_measured_alone} networks were measured on real GPUs alone: virtual GPUs are not "
            "predicted for them here. Use `clockwatt recommend`."
        )
    said += [f"{pass_.capitalize()} was not measured in this campaign." for pass_ in PASSES if pass_ not in asked]
    for label, model in models.items():
        missing = [pass_ for pass_ in config.passes if pass_ in asked and pass_ not in model.description.passes]
        said += [f"{label} predicts no {pass_}: too little of it was measured." for pass_ in missing]
        if len(model.description.points) < 2:
            said.append(f"{label} was measured at one operating point: no clock can be chosen there.")
        without = sum(answers.gpus[gpu] == label for _, gpu in answers.without_room)
        if without:
            said.append(f"{without} passes do not fit into the memory of {label}.")
    return said


def _learnt(model: GpuPredictor) -> set[str]:
    return {point for known in model.description.passes.values() for point in known.learnt_points}


def _networks(answers: Answers, known: _Catalogued, on_virtual: Set[str]) -> list[dict[str, Any]]:
    """Return the networks in the order of prediction: those of the campaign first.

    `on_virtual` are the ids to predict on virtual GPUs.
    """
    found = []
    for network_id in dict.fromkeys(question.network_id for question in answers.questions):
        row: dict[str, Any] = known.networks[network_id]
        words = network_words(row["network"], list(row["input_shape"]), row["dtype"], list(row["assumed_branches"]))
        command = _command(network_id, row)
        found.append({"id": network_id, **words, "command": command, "on_virtual": network_id in on_virtual})
    return found


def _command(network_id: str, row: dict[str, Any]) -> str | None:
    """Return how the command line names a network; None where that takes more than its input's shape."""
    shape, dtype = [str(size) for size in row["input_shape"]], row["dtype"]
    if network_id != f"{row['network']}-{'x'.join(shape)}-{dtype}":
        return None
    return f"{row['network']} --input {','.join(shape)}"


def _candidates(answers: Answers, beside: pd.DataFrame) -> dict[str, Any]:
    flag_sets: dict[tuple[str, ...], int] = {}
    for flags in [(), *beside["flags"]]:
        flag_sets.setdefault(flags, len(flag_sets))
    columns = {name: packed(answers.candidates[name], _KINDS.get(name, "f8")) for name in COLUMNS}
    columns |= {name: packed(places, "i4") for name, places in choices.ranks(answers.candidates).items()}
    columns |= {name: packed(beside[name], "f4") for name in measured.COLUMNS}
    columns["flags"] = packed([flag_sets[flags] for flags in beside["flags"]], "i4")
    warnings: dict[str, dict[str, list[str]]] = {}
    for (question, gpu), said in answers.warnings.items():
        warnings.setdefault(str(question), {})[str(gpu)] = said
    ids = {
        network_id: number for number, network_id in enumerate(dict.fromkeys(q.network_id for q in answers.questions))
    }
    return {
        "questions": [[ids[one.network_id], one.pass_, one.execution] for one in answers.questions],
        "candidates": columns,
        "as_good": choices.as_good(answers.candidates),
        "same_gpu_error": {"measured": REPEATED, "extrapolated": BY_CLOCK_MODEL},
        "flag_sets": [list(flags) for flags in flag_sets],
        "warnings": warnings,
        "without_room": [list(pair) for pair in answers.without_room],
    }


def _regrets(validation_dir: Path) -> dict[str, Any]:
    path = validation_dir / layout.VALIDATION_FILE
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return {gpu: own.get("regret", []) for gpu, own in report["gpus"].items()}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise DataFileError(f"{path}: not a validation ({error}). Run `clockwatt validate` again.") from error


def _joules(answers: Answers, known: _Catalogued) -> dict[str, Any]:
    """Return parts of each network and pass once, and their shares on each GPU."""
    modules: dict[str, int] = {}
    operations: dict[str, int] = {}
    parts = {
        f"{network_id}/{pass_}": {
            "module": packed([modules.setdefault(one, len(modules)) for one in own.modules], "i4"),
            "operation": packed([operations.setdefault(one, len(operations)) for one in own.operation_ids], "i4"),
            "calls": packed(own.calls, "i4"),
        }
        for (network_id, pass_), own in answers.parts.items()
    }
    shares: dict[str, dict[str, Any]] = {}
    for (question, gpu), own in answers.shares.items():
        shares.setdefault(str(question), {})[str(gpu)] = {
            "share": packed(own.share, "f4"), "measured": packed(own.measured, "u1"),
        }  # fmt: skip
    return {
        "modules": list(modules),
        "operations": [[known.classes[one], operation_words(known.specs[one])] for one in operations],
        "parts": parts,
        "shares": shares,
    }


def _scatter(rows: pd.DataFrame, models: dict[str, GpuPredictor]) -> dict[str, Any]:
    names = {name: number for number, name in enumerate(sorted(set(rows["class"])))}
    words = {name: number for number, name in enumerate(dict.fromkeys(rows["words"]))}
    labels, passes = list(models), ["inference", "training"]
    points = [str(point) for point in rows["point"].unique()]
    points_at = {name: number for number, name in enumerate(points)}
    executions = sorted(set(rows["execution"]))
    return {
        "classes": list(names),
        "words": list(words),
        "points": points,
        "executions": executions,
        "gpu": packed([labels.index(one) if one in labels else 255 for one in rows["gpu"]], "u1"),
        "pass": packed([passes.index(one) for one in rows["pass"]], "u1"),
        "execution": packed([executions.index(one) for one in rows["execution"]], "u1"),
        "point": packed([points_at[str(one)] for one in rows["point"]], "i4"),
        "class": packed([names[one] for one in rows["class"]], "i4"),
        "operation": packed([words[one] for one in rows["words"]], "i4"),
        **{name: packed(rows[name].to_numpy(np.float64), "f4") for name in (
            "time", "predicted_time", "energy", "predicted_energy",
        )},
    }  # fmt: skip
